"""A gym of ours as TRL's GRPOTrainer wants its environments (`environment_factory`, TRL 1.16).

TRL makes one object for each conversation of a batch and uses it again in the next. It calls `reset` with the columns of the row,
offers every other public method to the model as a tool, and reads `get_reward` when the model stops calling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from userrl_core.episode import Episode, EpisodeRules
from userrl_core.errors import GymError
from userrl_core.gyms.registry import make
from userrl_core.gyms.sync import complete
from userrl_core.interact import InteractCall, render_call
from userrl_core.records import PolicyReply, Task

OVER = "over"
"""The reply to a call after the end. TRL continues until the model makes no call; an environment cannot end a conversation."""


class GymEnvironment:
    """One conversation at a time, at the task that the row numbers."""

    def __init__(self, gym: str, tasks: Sequence[Task], rules: EpisodeRules) -> None:
        self._gym = gym
        self._tasks = tasks
        self._rules = rules
        self._episode: Episode | None = None

    def reset(self, *, task: int, **row: Any) -> str:
        """Begin the conversation at a task; returns the opening, which TRL appends to the row's last message."""
        if self._episode is not None:
            complete(self._episode.gym.aclose())
        self._episode = Episode(make(self._gym, self._tasks[task]), self._rules)
        return "\n\n".join(message["content"] for message in self._episode.start())

    def interact_with_env(self, choice: str, content: str) -> str:
        """
        Talk to the user, look something up, or hand in an answer.

        Args:
            choice: The kind of step.
            content: What to say, look up or answer.

        Returns:
            What comes back.
        """
        episode = self._played()
        if episode.finished:
            return OVER
        shown = complete(episode.submit(PolicyReply(render_call(InteractCall(choice, content)))))
        return shown[-1]["content"] if shown else episode.trajectory.turns[-1].observation

    def get_reward(self) -> float:
        """Return the score. Raises GymError where a turn could not be scored: TRL would read a missing reward as 0."""
        episode = self._played()
        score = episode.trajectory.score if episode.finished else episode.gym.score()
        if score is None:
            raise GymError("gym.not_scored", f"A turn was not scored: {episode.trajectory.reject_reason}.")
        return score

    def _played(self) -> Episode:
        if self._episode is None:
            raise GymError("gym.misused", "No conversation has begun. Call reset first.")
        return self._episode
