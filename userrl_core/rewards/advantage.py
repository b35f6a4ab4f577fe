"""Grouped advantages (UserRL section 3, "Grouped Advantage Estimation"), per turn, in float64.

A group is all trajectories of one task in one step. With S the scores of a group's admitted trajectories, z = (S -
mean) / (std + 1e-6). Three forms map shaped credit a_t to the advantage of a turn's tokens:

- ``released`` (the published code): a_t z N / sum(a). The sum covers the trajectory's agent tokens, and N is the
  number of those with non-zero credit. The mean over those tokens is z; credit only redistributes it between turns.
  Negative credit would invert signs by the division, so it is refused.
- ``paper`` (the formula as printed): (a_t - mean) / (std + 1e-6). Under ``equalized`` the constant credit would not
  depend on the trajectory at all, so there every form gives z.
- ``centred`` (ours): ``paper`` minus its mean over the group's admitted trajectories. In this mean a turn is weighted
  by its share of the trajectory's tokens (see `push.py`). Most of a ``paper`` advantage is such an offset.

Without a signal the advantage is zero. This holds where std < 1e-6, where fewer than two trajectories are admitted,
and for a trajectory with a null reward, which is left out of mean and std.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import get_args

import numpy as np
from numpy.typing import DTypeLike, NDArray

from userrl_core.errors import ConfigError
from userrl_core.records import Trajectory
from userrl_core.rewards.config import CreditConfig, Form
from userrl_core.rewards.optional import adjusted_rewards
from userrl_core.rewards.ragged import (
    Rewards,
    TurnTokens,
    column_sum,
    group_means,
    index_of,
    lengths,
    pad_rewards,
    pad_tokens,
    rows,
    turn_weights,
)
from userrl_core.rewards.scoring import Scoring
from userrl_core.rewards.scoring import score as score_of
from userrl_core.rewards.shaping import Bools, Floats, Ints, Rounding, shape

EPSILON = 1e-6
"""Added to the standard deviation; a smaller deviation counts as zero."""


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """Statistics of a batch's groups. Group ids are the caller's; trajectories are identified by index.

    zero_variance: groups of two or more admitted trajectories with equal scores. too_small: groups with fewer than
    two admitted. null: trajectories with a null reward or without a turn. zero_credit: admitted trajectories, in a
    group with a signal, whose shaped credit sums to zero; form ``released`` gives them no gradient. all_good /
    all_bad / mixed: number of groups of two or more admitted trajectories with only good, only bad, or both kinds.
    """

    groups: int
    zero_variance: tuple[Hashable, ...]
    too_small: tuple[Hashable, ...]
    null: tuple[int, ...]
    zero_credit: tuple[int, ...]
    all_good: int
    all_bad: int
    mixed: int

    def metrics(self) -> dict[str, float]:
        """Return the metrics that are logged per step."""
        groups = max(self.groups, 1)
        return {
            "groups/zero_variance/share": len(self.zero_variance) / groups,
            "groups/too_small/share": len(self.too_small) / groups,
            "groups/all_good/share": self.all_good / groups,
            "groups/all_bad/share": self.all_bad / groups,
            "groups/mixed/share": self.mixed / groups,
            "groups/all/count": float(self.groups),
            "credit/null/count": float(len(self.null)),
            "credit/zero_credit/count": float(len(self.zero_credit)),
        }


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

    rewards: raw turn rewards, ragged; a None marks the whole trajectory as null. groups: one id per trajectory.
    turn_tokens: agent tokens per turn, ragged like rewards; one token per turn by default (used by ``released``
    only). Raises ConfigError, with a remedy, where the settings contradict each other or the rewards.
    """
    credits = assign_credit(
        rewards,
        groups,
        turn_tokens=turn_tokens,
        shaping=shaping,
        score=score,
        gamma=gamma,
        k=k,
        form=form,
        ddof=ddof,
        rounding=rounding,
    )
    return [row.tolist() for row in credits.advantages]


def credit(
    rewards: Rewards,
    groups: Sequence[Hashable],
    config: CreditConfig,
    *,
    turn_tokens: TurnTokens | None = None,
    admitted: Sequence[bool] | None = None,
    good: Sequence[bool] | None = None,
) -> Credits:
    """Call `assign_credit` with the settings of a recipe's ``credit`` block."""
    return assign_credit(
        rewards,
        groups,
        turn_tokens=turn_tokens,
        shaping=config.shaping,
        score=config.score,
        gamma=config.gamma,
        k=config.k,
        form=config.form,
        ddof=config.ddof,
        rounding=config.rounding,
        admitted=admitted,
        good=good,
    )


def greedy_scores(trajectories: Sequence[Trajectory], config: CreditConfig) -> list[float]:
    """Return the scores of greedy conversations (remax), computed as in training; NaN for rejected conversations."""
    rewards = [adjusted_rewards(trajectory, config.terms) for trajectory in trajectories]
    admitted = [trajectory.admitted for trajectory in trajectories]
    scores: list[float] = credit(rewards, range(len(rewards)), config, admitted=admitted).scores.tolist()
    return scores


def assign_credit(
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
    admitted: Sequence[bool] | None = None,
    good: Sequence[bool] | None = None,
) -> Credits:
    """Return advantages as in `turn_advantages`, with shaped credit, scores, z and diagnostics.

    admitted: False rejects a trajectory, in addition to null rewards. good: True for trajectories that succeeded, for
    the all-good / all-bad / mixed counts. Without it a group of equal scores is all-good when the scores are above
    zero.
    """
    if form not in get_args(Form):
        raise ConfigError("credit.unknown_rule", f"Unknown advantage form {form!r}. Use released, paper or centred.")
    if ddof not in (0, 1):
        raise ConfigError("credit.bad_setting", f"credit.ddof must be 0 or 1, not {ddof}.")
    if rounding not in ("none", "released"):
        raise ConfigError("credit.bad_setting", f"credit.rounding must be none or released, not {rounding!r}.")
    turns_N = lengths(rewards, groups)
    real_NT = np.arange(turns_N.max(initial=0)) < turns_N[:, None]
    rewards_NT, admitted_N = pad_rewards(rewards, turns_N, real_NT, admitted)
    real_NT &= admitted_N[:, None]
    tokens_NT = pad_tokens(turn_tokens, turns_N, real_NT)

    shaped_NT = shape(shaping, rewards_NT, real_NT, gamma=gamma, k=k, rounding=rounding)
    if form == "released" and shaped_NT.size and shaped_NT.min() < 0.0:
        raise ConfigError(
            "credit.negative",
            f"Form released inverts the sign of negative credit, and shaping {shaping} gave "
            f"{shaped_NT.min():g}. Set credit.form to paper, or credit.shaping to equalized.",
        )
    score_N = score_of(score, rewards_NT, turns_N, gamma=gamma, rounding=rounding)
    ids, group_N = index_of(groups)
    stats = _group_statistics(score_N, group_N, admitted_N, len(ids), ddof)
    mean_N, std_N = stats.mean[group_N], stats.std[group_N]
    signal_N = admitted_N & stats.signal[group_N]
    z_N = np.where(signal_N, (score_N - mean_N) / (std_N + EPSILON), 0.0)

    credit_N = column_sum(shaped_NT * tokens_NT)
    zero_N = signal_N & (credit_N == 0.0)
    advantage_NT = formed(form, shaping, shaped_NT, tokens_NT, mean_N, std_N, z_N)
    if form == "centred" and shaping != "equalized":
        advantage_NT -= group_means(advantage_NT, turn_weights(tokens_NT) * signal_N[:, None], group_N)[:, None]
    advantage_NT = np.where(real_NT & signal_N[:, None], advantage_NT, 0.0)

    return Credits(
        shaped=rows(shaped_NT, turns_N),
        advantages=rows(advantage_NT, turns_N),
        scores=np.where(admitted_N, score_N, np.nan),
        z=z_N,
        mean=mean_N,
        std=std_N,
        admitted=admitted_N,
        signal=signal_N,
        diagnostics=Diagnostics(
            groups=len(ids),
            zero_variance=tuple(ids[g] for g in np.flatnonzero((stats.count >= 2) & ~stats.signal)),
            too_small=tuple(ids[g] for g in np.flatnonzero(stats.count < 2)),
            null=tuple(np.flatnonzero(~admitted_N).tolist()),
            zero_credit=tuple(np.flatnonzero(zero_N).tolist()),
            **_count_kinds(score_N, group_N, admitted_N, stats, good),
        ),
    )


def formed(
    form: Form, shaping: str, shaped_NT: Floats, tokens_NT: Floats, mean_N: Floats, std_N: Floats, z_N: Floats
) -> Floats:
    """Return the advantage of each turn under given statistics of its group, [N, T]; not yet centred, and meaningless
    at padding.
    """
    if shaping == "equalized":
        return np.broadcast_to(z_N[:, None], shaped_NT.shape)
    if form != "released":
        centred_NT: Floats = (shaped_NT - mean_N[:, None]) / (std_N[:, None] + EPSILON)
        return centred_NT
    credit_N1 = column_sum(shaped_NT * tokens_NT)[:, None]
    counted_N = column_sum((shaped_NT != 0.0) * tokens_NT)
    # The share first: it lies in [0, 1] for arbitrarily small credit, where z N / sum(a) may overflow.
    share_NT = np.divide(shaped_NT, credit_N1, out=np.zeros_like(shaped_NT), where=credit_N1 != 0.0)
    released_NT: Floats = share_NT * (counted_N * z_N)[:, None]
    return released_NT


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
    return np.repeat(np.concatenate(advantages).astype(dtype), counts)


@dataclass(frozen=True, slots=True)
class _GroupStatistics:
    count: Ints
    mean: Floats
    std: Floats
    signal: Bools


def _group_statistics(score_N: Floats, group_N: Ints, admitted_N: Bools, groups: int, ddof: int) -> _GroupStatistics:
    """Return mean and deviation over the admitted trajectories of each group: two passes, summed in batch order."""
    admitted_group = group_N[admitted_N]
    count_G = np.bincount(admitted_group, minlength=groups)
    total_G = np.bincount(admitted_group, weights=score_N[admitted_N], minlength=groups)
    mean_G = total_G / np.maximum(count_G, 1)
    square_N = (score_N - mean_G[group_N])[admitted_N] ** 2
    std_G = np.sqrt(np.bincount(admitted_group, weights=square_N, minlength=groups) / np.maximum(count_G - ddof, 1))
    return _GroupStatistics(count_G, mean_G, std_G, (count_G >= 2) & (std_G >= EPSILON))


def _count_kinds(
    score_N: Floats, group_N: Ints, admitted_N: Bools, stats: _GroupStatistics, good: Sequence[bool] | None
) -> dict[str, int]:
    compared_G = stats.count >= 2
    if good is None:
        equal_G = compared_G & ~stats.signal
        all_good = int((equal_G & (stats.mean > 0)).sum())
        return {"all_good": all_good, "all_bad": int(equal_G.sum()) - all_good, "mixed": int(stats.signal.sum())}
    if len(good) != len(score_N):
        raise ValueError(f"{len(good)} values in good for {len(score_N)} trajectories; pass one per trajectory.")
    good_G = np.bincount(group_N[admitted_N], weights=np.asarray(good, float)[admitted_N], minlength=len(stats.count))
    all_good = int((compared_G & (good_G == stats.count)).sum())
    all_bad = int((compared_G & (good_G == 0)).sum())
    return {"all_good": all_good, "all_bad": all_bad, "mixed": int(compared_G.sum()) - all_good - all_bad}
