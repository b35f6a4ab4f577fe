"""Grouped advantages (UserRL section 3, "Grouped Advantage Estimation"), per turn, in float64.

A group is all trajectories of one task in one step. With S the scores of a group's admitted trajectories, z = (S -
mean) / (std + 1e-6). Three forms map shaped credit a_t to the advantage of a turn's tokens:

- ``released`` (the published code): a_t z N / sum(a). The sum covers the trajectory's agent tokens, and N is the
  number of those with non-zero credit. The mean over those tokens is z; credit only redistributes it between turns.
- ``paper`` (the formula as printed): (a_t - mean) / (std + 1e-6).
- ``centred`` (ours): ``paper`` minus its mean over the group's admitted trajectories. In this mean a turn is weighted
  by its share of the trajectory's tokens (see `bias.py`).

Under ``equalized`` every form gives z. Without a signal the advantage is zero.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import DTypeLike, NDArray

from userrl_core.errors import ConfigError
from userrl_core.records import Trajectory
from userrl_core.rewards.config import CreditConfig, Form, Rounding, Scoring
from userrl_core.rewards.diagnostics import Diagnostics, diagnose
from userrl_core.rewards.optional import adjusted_rewards
from userrl_core.rewards.ragged import (
    EPSILON,
    Rewards,
    TurnTokens,
    column_sum,
    group_means,
    group_statistics,
    index_of,
    lengths,
    pad_rewards,
    pad_tokens,
    rows,
    turn_weights,
)
from userrl_core.rewards.scoring import score as score_of
from userrl_core.rewards.shaping import Bools, Floats, shape


@dataclass(frozen=True, slots=True)
class Credits:
    """All quantities derived from a batch's rewards; N trajectories.

    shaped, advantages: one array of shape [T_i] per trajectory. scores: [N], NaN for null trajectories. z: [N]. mean,
    std: [N], statistics of the trajectory's group. admitted, signal: [N]. ``signal`` is False where the group has
    zero variance or is too small, and for null trajectories: these give no gradient.
    """

    shaped: list[Floats]
    advantages: list[Floats]
    scores: Floats
    z: Floats
    mean: Floats
    std: Floats
    admitted: Bools
    signal: Bools
    diagnostics: Diagnostics


def turn_advantages(
    rewards: Rewards,
    groups: Sequence[Hashable],
    *,
    turn_tokens: TurnTokens | None = None,
    shaping: str = "equalized",
    score: Scoring = "r2g",
    gamma: float = 0.8,
    k: float = 2.0,
    form: Form = "released",
    ddof: int = 0,
    rounding: Rounding = "none",
) -> list[list[float]]:
    """Return the advantage of every turn of every trajectory; all tokens of a turn share it.

    The settings are those of `CreditConfig`, under which `assign_credit` gives more than the advantages. Raises
    ConfigError, with a remedy, where they contradict each other or the rewards.
    """
    config = CreditConfig.of(shaping=shaping, score=score, gamma=gamma, k=k, form=form, ddof=ddof, rounding=rounding)
    credits = assign_credit(rewards, groups, config, turn_tokens=turn_tokens)
    return [row.tolist() for row in credits.advantages]


def assign_credit(
    rewards: Rewards,
    groups: Sequence[Hashable],
    config: CreditConfig,
    *,
    turn_tokens: TurnTokens | None = None,
    admitted: Sequence[bool] | None = None,
    good: Sequence[bool] | None = None,
) -> Credits:
    """Return shaped credit, scores, z and advantages under a recipe's ``credit`` block.

    rewards: raw turn rewards, ragged; a None marks the whole trajectory as null. groups: one id per trajectory.
    turn_tokens: agent tokens per turn, ragged like rewards; one token per turn by default (used by ``released`` and
    ``centred``). admitted: False rejects a trajectory, in addition to null rewards. good: True for trajectories that
    succeeded, for the diagnostics. Raises ConfigError, with a remedy, where the settings do not fit the rewards.
    """
    turns_N = lengths(rewards, groups)
    real_NT = np.arange(turns_N.max(initial=0)) < turns_N[:, None]
    rewards_NT, admitted_N = pad_rewards(rewards, turns_N, real_NT, admitted)
    # A rejected trajectory is left out of every mean and every sum from here on. A null reward rejects it too.
    real_NT &= admitted_N[:, None]
    tokens_NT = pad_tokens(turn_tokens, turns_N, real_NT)

    shaped_NT = shape(rewards_NT, real_NT, config)
    # The form divides by the sum of the credit, which would turn the sign of every turn with a negative one.
    if config.form == "released" and shaped_NT.size and shaped_NT.min() < 0.0:
        raise ConfigError(
            "credit.negative",
            f"Form released inverts the sign of negative credit, and shaping {config.shaping} gave "
            f"{shaped_NT.min():g}. Set credit.form to paper, or credit.shaping to equalized.",
        )
    score_N = score_of(rewards_NT, turns_N, config)
    ids, group_N = index_of(groups)
    stats = group_statistics(score_N, group_N, admitted_N, len(ids), config.ddof)
    mean_N, std_N = stats.mean[group_N], stats.std[group_N]
    # A group says nothing where its scores are equal (std < 1e-6), or where it has fewer than two admitted trajectories.
    signal_N = admitted_N & stats.signal[group_N]
    z_N = np.where(signal_N, (score_N - mean_N) / (std_N + EPSILON), 0.0)

    advantage_NT = formed(config, shaped_NT, tokens_NT, mean_N, std_N, z_N)
    # Most of a `paper` advantage is an offset that all turns of the group share.
    if config.form == "centred" and config.shaping != "equalized":
        advantage_NT -= group_means(advantage_NT, turn_weights(tokens_NT) * signal_N[:, None], group_N)[:, None]
    advantage_NT = np.where(real_NT & signal_N[:, None], advantage_NT, 0.0)

    # Without any credit there is nothing to redistribute: no gradient, and the diagnostics say so.
    without_credit_N = signal_N & (column_sum(shaped_NT * tokens_NT) == 0.0)
    return Credits(
        shaped=rows(shaped_NT, turns_N),
        advantages=rows(advantage_NT, turns_N),
        scores=np.where(admitted_N, score_N, np.nan),
        z=z_N,
        mean=mean_N,
        std=std_N,
        admitted=admitted_N,
        signal=signal_N,
        diagnostics=diagnose(ids, group_N, admitted_N, without_credit_N, stats, good),
    )


def formed(
    config: CreditConfig, shaped_NT: Floats, tokens_NT: Floats, mean_N: Floats, std_N: Floats, z_N: Floats
) -> Floats:
    """Return the advantage of each turn under given statistics of its group, [N, T]; not yet centred, and meaningless
    at padding.
    """
    # A constant credit does not depend on the trajectory, so z alone tells the trajectories apart.
    if config.shaping == "equalized":
        return np.broadcast_to(z_N[:, None], shaped_NT.shape)
    if config.form != "released":
        # As printed (UserRL section 3): a turn's credit less the mean of trajectory scores.
        centred_NT: Floats = (shaped_NT - mean_N[:, None]) / (std_N[:, None] + EPSILON)
        return centred_NT
    credit_N1 = column_sum(shaped_NT * tokens_NT)[:, None]
    # N of the released code: with it the mean over the credited tokens is z.
    counted_N = column_sum((shaped_NT != 0.0) * tokens_NT)
    # The share first: it lies in [0, 1] for arbitrarily small credit, where z N / sum(a) may overflow.
    share_NT = np.divide(shaped_NT, credit_N1, out=np.zeros_like(shaped_NT), where=credit_N1 != 0.0)
    released_NT: Floats = share_NT * (counted_N * z_N)[:, None]
    return released_NT


def greedy_scores(trajectories: Sequence[Trajectory], config: CreditConfig) -> list[float]:
    """Return the scores of greedy conversations (remax), computed as in training; NaN for rejected conversations."""
    rewards = [adjusted_rewards(trajectory, config.terms) for trajectory in trajectories]
    admitted = [trajectory.admitted for trajectory in trajectories]
    scores: list[float] = assign_credit(rewards, range(len(rewards)), config, admitted=admitted).scores.tolist()
    return scores


def spread_to_tokens(
    advantages: Sequence[Floats] | Sequence[Sequence[float]], turn_tokens: TurnTokens, *, dtype: DTypeLike = np.float32
) -> NDArray[np.floating]:
    """Repeat each turn's advantage over its agent tokens, all trajectories concatenated; shape [tokens].

    Raises ValueError where the two arguments differ in a trajectory's number of turns.
    """
    if list(map(len, advantages)) != list(map(len, turn_tokens)):
        raise ValueError("Advantages and turn_tokens differ in their numbers of turns; pass one count per turn.")
    if not len(advantages):
        return np.zeros(0, dtype)
    counts = np.fromiter(chain.from_iterable(turn_tokens), dtype=np.int64)
    # Float64 until here; a trainer computes in float32.
    return np.repeat(np.concatenate(advantages).astype(dtype), counts)
