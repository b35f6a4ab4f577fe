"""The trajectories of one step, and their advantages.

Shapes: N trajectories; T_i turns and S_i agent tokens of trajectory i.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from userrl_core.records import Trajectory
from userrl_core.rewards import CreditConfig, Credits, adjusted_rewards, assign_credit, spread_to_tokens
from userrl_core.training.local.samples import Sample

Tokens = NDArray[np.float32]
Turns = NDArray[np.float64]


@dataclass(slots=True)
class Batch:
    """Trajectories in the order they were played.

    groups: [N], the group number of each trajectory. baselines: [N], the score of the greedy conversation on the same
    task (remax), NaN without a score; None under other algorithms.
    """

    trajectories: list[Trajectory]
    samples: list[Sample]
    groups: list[int]
    baselines: list[float] | None = None

    def __len__(self) -> int:
        return len(self.trajectories)

    def __add__(self, other: Batch) -> Batch:
        # Groups of the two batches are different tasks, so those of the second get new numbers.
        offset = max(self.groups, default=-1) + 1
        return Batch(
            self.trajectories + other.trajectories,
            self.samples + other.samples,
            self.groups + [group + offset for group in other.groups],
            None if self.baselines is None else self.baselines + (other.baselines or []),
        )

    @property
    def tokens(self) -> tuple[int, int]:
        """Return the number of all tokens and the number of agent tokens."""
        return sum(len(sample.ids) for sample in self.samples), sum(sample.agent_tokens for sample in self.samples)

    @property
    def turn_tokens(self) -> list[list[int]]:
        """Return the agent tokens per turn, ragged [N][T_i]."""
        return [s.turn_tokens(len(t.turns)) for s, t in zip(self.samples, self.trajectories, strict=True)]

    @property
    def outcomes(self) -> list[list[tuple[int, int]]]:
        """Return, by group, the horizon of every admitted trajectory and the turns after which it succeeded (0 if it failed)."""
        outcomes: list[list[tuple[int, int]]] = [[] for _ in range(max(self.groups, default=-1) + 1)]
        for group, trajectory in zip(self.groups, self.trajectories, strict=True):
            if trajectory.admitted:
                succeeded = trajectory.stop_reason == "success"
                # The horizon too, since some schedules give each group its own.
                outcomes[group].append((trajectory.horizon, len(trajectory.turns) if succeeded else 0))
        return outcomes

    def credits(self, config: CreditConfig) -> Credits:
        """Return shaped credit, scores and grouped advantages under a recipe's credit block."""
        return assign_credit(
            [adjusted_rewards(trajectory, config.terms) for trajectory in self.trajectories],
            self.groups,
            config,
            turn_tokens=self.turn_tokens,
            admitted=[trajectory.admitted for trajectory in self.trajectories],
            good=[trajectory.stop_reason == "success" for trajectory in self.trajectories],
        )


@dataclass(slots=True)
class Advantages:
    """The advantages of a batch.

    tokens: [N][S_i]. turns: [N][T_i], for the log. trains: [N], False leaves the trajectory out of the loss. returns:
    [N][S_i], the critic's targets, None without a critic. metrics: metrics to log. scores: [N], which dpo compares; None under
    other algorithms.
    """

    tokens: list[Tokens]
    turns: list[Turns]
    trains: NDArray[np.bool_]
    metrics: dict[str, float]
    returns: list[Tokens] | None = None
    scores: NDArray[np.float64] | None = None


def from_turns(batch: Batch, turns: list[Turns], trains: NDArray[np.bool_], metrics: dict[str, float]) -> Advantages:
    """Spread advantages that are constant within a turn over its tokens."""
    flat = spread_to_tokens(turns, batch.turn_tokens)
    ends = np.cumsum([sample.agent_tokens for sample in batch.samples])[:-1]
    return Advantages(list(np.split(np.asarray(flat, np.float32), ends)), turns, trains, metrics)


def from_scores(batch: Batch, values: Turns, trains: NDArray[np.bool_], metrics: dict[str, float]) -> Advantages:
    """Give all tokens of a trajectory its one advantage; 0 where it is not trained on."""
    turns = [
        np.full(len(trajectory.turns), value if train else 0.0)
        for trajectory, value, train in zip(batch.trajectories, values.tolist(), trains.tolist(), strict=True)
    ]
    return from_turns(batch, turns, trains, metrics)
