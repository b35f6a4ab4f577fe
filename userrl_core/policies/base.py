"""The protocols of a policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from userrl_core.records import Message, PolicyReply

if TYPE_CHECKING:
    from userrl_core.episode import Episode
    from userrl_core.gyms.base import Gym


class Session(Protocol):
    """A policy within one conversation; single-use.

    A session that calls a served model has `open_calls`: the calls (`ModelCall`) for a reply that has not come.
    """

    async def act(self, new: Sequence[Message]) -> PolicyReply:
        """Return the next agent message. new: the messages since the last call (first the opening), never the whole
        conversation.

        Raises PolicyError when the model gave no reply after all retries.
        """


class Policy(Protocol):
    """A policy with one session per conversation."""

    name: str
    """Its name in reports and in the warehouse, such as ``scripted(skill=0.4)`` or ``gpt-4o``."""

    def session(self, gym: Gym[Any], seed: int) -> Session:
        """Return a session for one episode of this gym. A scripted policy may read the gym's task; a model never sees it."""


@runtime_checkable
class BatchPolicy(Protocol):
    """A policy that plays many episodes in lock-step (the local model with its shared key-value cache)."""

    name: str

    async def play(self, episodes: Sequence[Episode]) -> None:
        """Play every episode to its end."""
