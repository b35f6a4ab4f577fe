"""The attempts of one step, and what an algorithm makes of them.

N attempts; T_i turns and S_i agent tokens of attempt i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from userrl_core.records import Trajectory
from userrl_core.rewards import CreditConfig, Credits, adjusted_rewards, credit, spread_to_tokens
from userrl_core.training.local.samples import Sample

Tokens = NDArray[np.float32]
Turns = NDArray[np.float64]


@dataclass(slots=True)
class Batch:
    """Attempts in the order they were played. groups: [N], a number per task drawn; attempts at it share it."""

    trajectories: list[Trajectory]
    samples: list[Sample]
    groups: list[int]

    def __len__(self) -> int:
        return len(self.trajectories)

    def __add__(self, other: Batch) -> Batch:
        shift = max(self.groups, default=-1) + 1
        return Batch(
            self.trajectories + other.trajectories,
            self.samples + other.samples,
            self.groups + [group + shift for group in other.groups],
        )

    def where(self, keep: Sequence[bool] | NDArray[np.bool_]) -> Batch:
        """Those attempts only, their groups' numbers unchanged."""
        rows = np.flatnonzero(np.asarray(keep)).tolist()
        return Batch(
            [self.trajectories[i] for i in rows], [self.samples[i] for i in rows], [self.groups[i] for i in rows]
        )

    @property
    def turn_tokens(self) -> list[list[int]]:
        """Agent tokens per turn, ragged [N][T_i]."""
        return [s.turn_tokens(len(t.turns)) for s, t in zip(self.samples, self.trajectories, strict=True)]

    def credits(self, config: CreditConfig) -> Credits:
        """Shaped credit, scores and grouped advantages under a recipe's credit block."""
        return credit(
            [adjusted_rewards(trajectory, config.terms) for trajectory in self.trajectories],
            self.groups,
            config,
            turn_tokens=self.turn_tokens,
            admitted=[trajectory.admitted for trajectory in self.trajectories],
            good=[trajectory.stop_reason == "success" for trajectory in self.trajectories],
        )


@dataclass(slots=True)
class Advantages:
    """What the update is to do with each attempt.

    tokens: [N][S_i]. turns: [N][T_i], for the record. trains: [N], False leaves the attempt out of the loss.
    returns: [N][S_i], what a critic should have said; empty without one. metrics: numbers to log.
    """

    tokens: list[Tokens]
    turns: list[Turns]
    trains: NDArray[np.bool_]
    metrics: dict[str, float]
    returns: list[Tokens] | None = None


def from_turns(batch: Batch, turns: list[Turns], trains: NDArray[np.bool_], metrics: dict[str, float]) -> Advantages:
    """Advantages that are constant within a turn: spread over its tokens last."""
    flat = spread_to_tokens(turns, batch.turn_tokens)
    ends = np.cumsum([sample.agent_tokens for sample in batch.samples])[:-1]
    return Advantages(list(np.split(np.asarray(flat, np.float32), ends)), turns, trains, metrics)


def from_scores(batch: Batch, values: Turns, trains: NDArray[np.bool_], metrics: dict[str, float]) -> Advantages:
    """One advantage per attempt, the same for all of its tokens; 0 where it does not train."""
    turns = [
        np.full(len(trajectory.turns), value if train else 0.0)
        for trajectory, value, train in zip(batch.trajectories, values.tolist(), trains.tolist(), strict=True)
    ]
    return from_turns(batch, turns, trains, metrics)
