"""Differences between AgentGym's environment servers, so that its own clients can play our gyms (AgentGym @3ef9235).

TextCraft's client reads the first observation from the answer of ``/create``. SciWorld's client reads a
``task_description`` next to the observation, and a score in points. SearchQA's client names its session ``env_idx``,
sends its actions in tags, and reads bare answers: a number from ``/create``, a string from ``/reset`` and
``/observation``. Its server answers an error with status 500.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel

from userrl_core.gyms.base import Gym

BEGUN = frozenset({"textcraft"})
"""Gyms whose ``/create`` also starts a task and returns its first observation."""


@runtime_checkable
class InPoints(Protocol):
    """A gym that scores as SciWorld's server does."""

    points: int
    """The score so far, from -100 to 100."""

    def brief(self) -> str:
        """Return the task alone."""


class BareCreate(BaseModel):
    """The body of SearchQA's ``/create``."""

    id: int
    """Index of the task."""


class BareReset(BaseModel):
    """The body of SearchQA's ``/reset``."""

    env_idx: int
    """Number of the session."""
    id: int
    """Index of the task."""


class BareStep(BaseModel):
    """The body of SearchQA's ``/step``."""

    env_idx: int
    """Number of the session."""
    action: str
    """A model's whole message, with a ``<search>`` or an ``<answer>`` in it."""


class BareSession(BaseModel):
    """The body of SearchQA's ``/close``."""

    env_idx: int
    """Number of the session."""


def told(gym: Gym[Any], state: dict[str, Any]) -> dict[str, Any]:
    """Return a session's state in the form of the environment's server.

    ``score`` is in that server's units: points from -100 to 100 for SciWorld, the gym's metric elsewhere. ``metric`` is the
    gym's metric.
    """
    score = gym.points if isinstance(gym, InPoints) else state["score"]
    return {**state, "score": score, "metric": state["score"]}


def opened(gym: Gym[Any], state: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to ``/reset``. SciWorld's answer separates the task from the observation."""
    if not isinstance(gym, InPoints):
        return told(gym, state)
    task = gym.brief()
    return {**told(gym, state), "task_description": task, "observation": state["observation"].removeprefix(f"{task}\n")}


def tagged(text: str, choices: Sequence[str]) -> tuple[str, str] | None:
    """Return the choice and the content of the first pair of tags that names a choice, or None."""
    match = re.search(rf"<({'|'.join(choices)})>(.*?)</\1>", text, re.DOTALL)
    return None if match is None else (match[1], match[2].strip())


def unread(choices: Sequence[str]) -> str:
    """Return the reply to a message without such tags."""
    return f"The message could not be read; write {' or '.join(f'<{choice}>...</{choice}>' for choice in choices)}."
