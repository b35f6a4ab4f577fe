"""Ragged turns as padded matrices, so that credit is computed for a whole batch at once.

Shape suffixes: N trajectories, T turns of the longest one. Rows are left-aligned; padding is zero.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from userrl_core.errors import ConfigError
from userrl_core.rewards.shaping import Bools, Floats, Ints

Rewards = Sequence[Sequence[float | None]]
TurnTokens = Sequence[Sequence[int]]

EPSILON = 1e-6
"""Added to a standard deviation; a smaller deviation counts as zero."""

MAX_REWARD = 1e100
"""Maximum absolute reward; the square of a larger one may overflow."""


def lengths(rewards: Rewards, groups: Sequence[Hashable]) -> Ints:
    """Return the turns of every trajectory, shape [N]. Raises ValueError unless there is one group id per trajectory."""
    if len(rewards) != len(groups):
        raise ValueError(f"{len(groups)} group ids for {len(rewards)} trajectories; pass one per trajectory.")
    return np.fromiter(map(len, rewards), dtype=np.int64, count=len(rewards))


def pad_rewards(
    rewards: Rewards, turns_N: Ints, real_NT: Bools, admitted: Sequence[bool] | None
) -> tuple[Floats, Bools]:
    """Return rewards as a padded matrix, zero in rejected rows, and the admitted rows."""
    rewards_NT = np.zeros(real_NT.shape)
    rewards_NT[real_NT] = np.array([r for row in rewards for r in row], dtype=np.float64)
    # A trajectory without a turn has nothing to credit.
    admitted_N = turns_N > 0
    if admitted is not None:
        if len(admitted) != len(rewards):
            raise ValueError(f"{len(admitted)} values in admitted for {len(rewards)} trajectories; pass one each.")
        admitted_N &= np.asarray(admitted, dtype=bool)
    # None became NaN. A number that is NaN by itself is a bug of a gym, and not a missing score.
    for i in np.flatnonzero(~np.isfinite(rewards_NT).all(axis=1)).tolist():
        if None not in rewards[i]:
            raise ConfigError(
                "credit.out_of_range",
                f"Trajectory {i} has a reward that is not a finite number. Write a null reward as None.",
            )
        admitted_N[i] = False
    rewards_NT[~admitted_N] = 0.0
    if rewards_NT.size and np.abs(rewards_NT).max() > MAX_REWARD:
        raise ConfigError(
            "credit.out_of_range",
            f"A reward of {np.abs(rewards_NT).max():g} is too large to compare. Scale the gym's rewards down.",
        )
    return rewards_NT, admitted_N


def pad_tokens(turn_tokens: TurnTokens | None, turns_N: Ints, real_NT: Bools) -> Floats:
    """Return agent tokens per turn as a padded matrix, zero in rejected rows."""
    if turn_tokens is None:
        return real_NT.astype(np.float64)
    if [len(row) for row in turn_tokens] != turns_N.tolist():
        raise ValueError("turn_tokens and rewards differ in their numbers of turns; pass one count per turn.")
    tokens_NT = np.zeros(real_NT.shape)
    # Not `real_NT`, since rejected trajectories have counts too. The product below sets those to zero.
    tokens_NT[np.arange(real_NT.shape[1]) < turns_N[:, None]] = np.array(
        [n for row in turn_tokens for n in row], dtype=np.float64
    )
    if tokens_NT.size and tokens_NT.min() < 0:
        raise ValueError("turn_tokens holds a negative count.")
    return tokens_NT * real_NT


def column_sum(values_NT: Floats) -> Floats:
    """Sum each row."""
    # From the first turn to the last: numpy's pairwise sum would round differently with another padding.
    total_N = np.zeros(values_NT.shape[0])
    for t in range(values_NT.shape[1]):
        total_N += values_NT[:, t]
    return total_N


def turn_weights(tokens_NT: Floats) -> Floats:
    """Return each turn's share of its trajectory's tokens, [N, T]: its weight when all trajectories weigh the same."""
    total_N = column_sum(tokens_NT)[:, None]
    return np.divide(tokens_NT, total_N, out=np.zeros_like(tokens_NT), where=total_N > 0)


def group_means(values_NT: Floats, weights_NT: Floats, group_N: Ints) -> Floats:
    """Return the weighted mean over all turns of a trajectory's group, [N]; 0 where all weights are 0."""
    total_G = np.bincount(group_N, weights=column_sum(values_NT * weights_NT))
    weight_G = np.bincount(group_N, weights=column_sum(weights_NT))
    mean_G = np.divide(total_G, weight_G, out=np.zeros_like(total_G), where=weight_G > 0)
    means_N: Floats = mean_G[group_N]
    return means_N


def index_of(groups: Sequence[Hashable]) -> tuple[list[Hashable], Ints]:
    """Return the distinct ids in order of appearance, and every trajectory's index into them."""
    index: dict[Hashable, int] = {}
    index_N = np.fromiter((index.setdefault(g, len(index)) for g in groups), dtype=np.int64, count=len(groups))
    return list(index), index_N


def rows(values_NT: Floats, turns_N: Ints) -> list[Floats]:
    """Return the ragged rows of a padded matrix."""
    return [row[:n] for row, n in zip(values_NT, turns_N.tolist(), strict=True)]


@dataclass(frozen=True, slots=True)
class GroupStatistics:
    """Of each group: the number of its admitted trajectories, mean and deviation of their scores, whether they differ."""

    count: Ints
    mean: Floats
    std: Floats
    signal: Bools


def group_statistics(score_N: Floats, group_N: Ints, admitted_N: Bools, groups: int, ddof: int) -> GroupStatistics:
    """Return mean and deviation over the admitted trajectories of each group."""
    # Two passes: the difference of large sums would lose the small deviations that `signal` depends on.
    admitted_group = group_N[admitted_N]
    count_G = np.bincount(admitted_group, minlength=groups)
    total_G = np.bincount(admitted_group, weights=score_N[admitted_N], minlength=groups)
    mean_G = total_G / np.maximum(count_G, 1)
    square_N = (score_N - mean_G[group_N])[admitted_N] ** 2
    # The maximum with 1: under ddof 1 a group of one trajectory would divide by zero.
    std_G = np.sqrt(np.bincount(admitted_group, weights=square_N, minlength=groups) / np.maximum(count_G - ddof, 1))
    # Equal scores may differ by rounding, so a deviation below EPSILON is none.
    return GroupStatistics(count_G, mean_G, std_G, (count_G >= 2) & (std_G >= EPSILON))
