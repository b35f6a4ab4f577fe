"""Who acts: the policy protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from userrl_core.records import Message, PolicyReply

if TYPE_CHECKING:
    from userrl_core.episode import Episode
    from userrl_core.gyms.base import Gym


class Session(Protocol):
    """A policy within one conversation; single-use."""

    async def act(self, new: Sequence[Message]) -> PolicyReply:
        """The next message. new: what was added since the last call (the opening messages at first), never a re-rendering.

        Raises PolicyError when the model gave no reply after all retries.
        """
        ...


class Policy(Protocol):
    """Makes a session per conversation."""

    name: str
    """As reports and the warehouse name it, e.g. ``scripted(skill=0.4)`` or ``gpt-4o``."""

    def session(self, gym: Gym[Any], seed: int) -> Session:
        """A new conversation in this gym. A scripted policy may read the gym's task; a model never sees it."""
        ...


@runtime_checkable
class BatchPolicy(Protocol):
    """A policy that plays many episodes in lock-step itself (the local model with its shared key-value cache)."""

    name: str

    async def play(self, episodes: Sequence[Episode]) -> None:
        """Drive every episode until it is finished."""
        ...
