"""Agreement of a credit rule's advantages with the utilities of turns, over groups of real trajectories.

The continuations are split into two halves. A rule's expected advantage from one half is compared with the utility from the
other half, so the two share no error. Noise lowers a cosine by the root of two reliabilities: the utilities' and the rule's
expected advantages'. The second differs by rule, so noise does not lower all cosines alike.

Array suffixes: P prefixes, K continuations of each prefix, T turns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import scipy

from analysis.credit.rules import AuditedRule, Padded, frozen, paid
from analysis.credit.utility import gap, least_error, return_from, utilities
from analysis.measure.interval import Interval, resampled
from userrl_core.rewards.advantage import assign_credit
from userrl_core.rewards.bias import MeanAdvantageBias, measure_bias
from userrl_core.rewards.shaping import Floats

RANKED_FROM = 0.3
"""Minimum split-half reliability of the utilities for ranking rules."""

SHORTEST = 3
"""Minimum turns of a trajectory for a rank correlation within it."""


@dataclass(frozen=True, slots=True)
class AuditedGroup:
    """One task's trajectories, and the continuations of their prefixes.

    trajectories: [N] trajectories. ends: [N] final scores of the gym. at: for each trajectory the indices of its prefixes,
    beginning with the empty prefix. starts: [P] turns of each prefix. continuations: P x K continuations in the order of the
    prefixes, including the prefix's turns. way_ends: [P, K] final scores of the gym. The first K / 2 continuations
    are one half, the others the second. kinds: [all turns] the kind of each turn (its choice of tool).
    """

    trajectories: Padded
    ends: Floats
    at: Sequence[Sequence[int]]
    starts: Sequence[int]
    continuations: Padded
    way_ends: Floats
    kinds: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Worth:
    """The utilities of a group's turns, each array [all turns].

    halves: from either half of the continuations. both: from all of them. error: the standard error. togo: [P, K]
    return after each prefix in each continuation.
    """

    halves: tuple[Floats, Floats]
    both: Floats
    error: Floats
    togo: Floats


def worth(group: AuditedGroup, goal: str, gamma: float, reach: float) -> Worth:
    """Estimate the utilities of a group's turns.

    goal: ``sum`` (of rewards), ``r2g`` (discounted) or ``score`` (the gym's final score). reach: the range of the values.
    """
    discount = gamma if goal == "r2g" else 1.0
    shape_PK = group.way_ends.shape
    togo_PK = group.way_ends
    if goal != "score":
        rewards_PKT = group.continuations.rewards.reshape(*shape_PK, -1)
        togo_PK = np.stack(
            [return_from(rewards_PKT[p], start, discount) for p, start in enumerate(group.starts)]
        ).reshape(shape_PK)
    rewards = [
        [0.0] * (turns - 1) + [end] if goal == "score" else row[:turns].tolist()
        for row, turns, end in zip(
            group.trajectories.rewards, group.trajectories.turns.tolist(), group.ends.tolist(), strict=True
        )
    ]
    half = shape_PK[1] // 2

    def of(values_P: Floats) -> Floats:
        rows = [utilities(r, values_P[list(at)], discount) for r, at in zip(rewards, group.at, strict=True)]
        return np.concatenate(rows)

    spread_P = np.maximum(togo_PK.std(axis=1, ddof=1) / np.sqrt(shape_PK[1]), least_error(shape_PK[1], reach))
    errors = []
    for at in group.at:
        error_T = spread_P[list(at)]
        errors.append(np.hypot(error_T, discount * np.append(error_T[1:], 0.0)))
    return Worth(
        (of(togo_PK[:, :half].mean(axis=1)), of(togo_PK[:, half:].mean(axis=1))),
        of(togo_PK.mean(axis=1)),
        np.concatenate(errors),
        togo_PK,
    )


@dataclass(frozen=True, slots=True)
class Expected:
    """A rule's expected advantages and the credit it paid, each array [all turns].

    halves: mean credit of the action minus mean credit in that state, from either half. paid: the credit it paid.
    at_prefix: [P, K] credit of the turn after each prefix in each continuation.
    """

    halves: tuple[Floats, Floats]
    paid: Floats
    at_prefix: Floats


def expected(group: AuditedGroup, rule: AuditedRule, gamma: float, k: float) -> Expected:
    """Estimate a rule's expected advantages. Raises ConfigError if the rule does not allow the rewards."""
    shape_PK = group.way_ends.shape
    paid_NT = paid(rule, group.trajectories, gamma, k)
    pays_PKT = frozen(rule, group.trajectories, group.continuations, gamma, k).reshape(*shape_PK, -1)
    half = shape_PK[1] // 2

    def of(part: slice) -> Floats:
        mean_PT = pays_PKT[:, part].mean(axis=1)
        rows = []
        for n, at in enumerate(group.at):
            last = len(at) - 1
            action_T = [paid_NT[n, t] if t == last else mean_PT[at[t + 1], t] for t in range(len(at))]
            rows.append(np.array(action_T) - mean_PT[list(at), np.arange(len(at))])
        return np.concatenate(rows)

    return Expected(
        (of(slice(half)), of(slice(half, None))),
        np.concatenate([row[:turns] for row, turns in zip(paid_NT, group.trajectories.turns.tolist(), strict=True)]),
        np.stack([pays_PKT[p, :, start] for p, start in enumerate(group.starts)]),
    )


@dataclass(frozen=True, slots=True)
class Measures:
    """The agreement of a rule with the utilities of one goal. Intervals are over tasks.

    cosine: of expected advantage and utility, between turns of the same prefix. reliability: split-half, of this
    rule's expected advantages. corrected: the cosine divided by the root of this reliability times the utilities', at
    most 1; nan if either is not above 0. median: over tasks, of the cosines within a task. within: rank correlation
    of credit and utility over the turns of a trajectory. between: the same over trajectories' means. wrong: among
    significant turns with credit, the share whose credit has the opposite sign. silent: share of significant turns
    without credit. gap, true_gap: mean credit and mean utility of continuing minus stopping, from the same prefix,
    divided by the root mean square of the expected advantages and utilities. mean, rms: of the credit. significant:
    turns with abs(U) above two standard errors. push: of the advantages, before the loss aggregation. kinds: mean
    expected advantage of the turns of each kind, divided by the root mean square over all turns.
    """

    rule: AuditedRule
    cosine: Interval
    reliability: float
    within: Interval
    between: Interval
    wrong: Interval
    silent: float
    gap: float
    true_gap: float
    mean: float
    rms: float
    significant: int
    push: MeanAdvantageBias
    kinds: dict[str, Interval]
    corrected: float = math.nan
    median: float = math.nan
    sums: Floats = field(default_factory=lambda: np.zeros((0, 8)), repr=False, compare=False)


def measure(
    groups: Sequence[AuditedGroup], worths: Sequence[Worth], rule: AuditedRule, gamma: float, k: float
) -> Measures:
    """Measure the agreement of one rule. Raises ConfigError if the rewards do not allow the rule."""
    pays = [expected(group, rule, gamma, k) for group in groups]
    products, within, between, wrong = [], [], [], []
    significant = silent = 0
    for group, true, credit in zip(groups, worths, pays, strict=True):
        (e1, e2), (u1, u2) = credit.halves, true.halves
        products.append([e1 @ u2, e2 @ u1, e1 @ e1, e2 @ e2, u1 @ u1, u2 @ u2, e1 @ e2, u1 @ u2])
        ends = np.cumsum(group.trajectories.turns)[:-1]
        paid_rows, true_rows = np.split(credit.paid, ends), np.split(true.both, ends)
        inside = [rank_correlation(a, u) for a, u in zip(paid_rows, true_rows, strict=True) if len(a) >= SHORTEST]
        within.append([sum(inside), len(inside)])
        means = np.array([a.mean() for a in paid_rows]), np.array([u.mean() for u in true_rows])
        between.append([rank_correlation(*means), 1])
        is_significant = (np.abs(true.both) > 2 * true.error) & (np.abs(true.both) > 1e-9)
        nothing = np.abs(credit.paid) < 1e-9
        wrong.append(
            [
                int((is_significant & ~nothing & (credit.paid * true.both < 0)).sum()),
                int((is_significant & ~nothing).sum()),
            ]
        )
        significant += int(is_significant.sum())
        silent += int((is_significant & nothing).sum())
    every = np.concatenate([credit.paid for credit in pays])
    gaps = [_gap(group, credit.at_prefix) for group, credit in zip(groups, pays, strict=True)]
    true_gaps = [_gap(group, true.togo) for group, true in zip(groups, worths, strict=True)]
    first, second = (np.concatenate([credit.halves[h] for credit in pays]) for h in (0, 1))
    return Measures(
        rule,
        resampled(np.array(products), cosine_of),
        correlation(first, second),
        resampled(np.array(within, dtype=float), _ratio),
        resampled(np.array(between, dtype=float), _ratio),
        resampled(np.array(wrong, dtype=float), _ratio),
        silent / max(significant, 1),
        _scaled(gaps, first),
        _scaled(true_gaps, np.concatenate([true.both for true in worths])),
        float(every.mean()),
        float(np.sqrt((every**2).mean())),
        significant,
        bias_of([group.trajectories for group in groups], rule, gamma, k),
        by_kind(groups, [(credit.halves[0] + credit.halves[1]) / 2 for credit in pays]),
        corrected_cosine(
            float(cosine_of(np.array(products).sum(axis=0))), correlation(first, second), reliability(worths)
        ),
        _median(cosine_of(np.array(products))),
        np.array(products),
    )


def corrected_cosine(cosine: float, of_rule: float, of_worth: float) -> float:
    """Return a cosine corrected for the noise of both halves (Spearman's correction for attenuation), clipped to [-1, 1]."""
    if not (of_rule > 0 and of_worth > 0):
        return math.nan
    return max(-1.0, min(1.0, cosine / math.sqrt(of_rule * of_worth)))


def _median(cosines_M: Floats) -> float:
    finite_M = cosines_M[~np.isnan(cosines_M)]
    return float(np.median(finite_M)) if finite_M.size else math.nan


def by_kind(groups: Sequence[AuditedGroup], values: Sequence[Floats]) -> dict[str, Interval]:
    """Return the mean of a value by kind of turn, divided by the root mean square over all turns; intervals over tasks.

    A mean over all turns hides rare turns that are always wrong. A rule that unlearns the one search of a
    conversation agrees well.
    """
    every = np.concatenate(values)
    scale = float(np.sqrt((every**2).mean())) or 1.0
    means = {}
    for kind in sorted({kind for group in groups for kind in group.kinds}):
        of_kind = [np.array(group.kinds) == kind for group in groups]
        sums = [[value[is_it].sum() / scale, is_it.sum()] for value, is_it in zip(values, of_kind, strict=True)]
        means[kind] = resampled(np.array(sums, dtype=float), _ratio)
    return means


def bias_of(groups: Sequence[Padded], rule: AuditedRule, gamma: float, k: float) -> MeanAdvantageBias:
    """Measure how far the rule's advantages are from averaging 0 in the real groups. This needs no continuations."""
    plain = replace(rule, aggregation="token_mean")
    advantages = [row for group in groups for row in group.ragged(paid(plain, group, gamma, k))]
    rewards = [row for group in groups for row in group.ragged(group.rewards)]
    tokens = [[int(n) for n in row] for group in groups for row in group.ragged(group.tokens)]
    ids = [n for n, group in enumerate(groups) for _ in group.turns]
    return measure_bias(
        advantages, ids, assign_credit(rewards, ids, turn_tokens=tokens, score=rule.score, gamma=gamma), tokens
    )


def reliability(worths: Sequence[Worth]) -> float:
    """Return the split-half reliability: the correlation over turns of the two halves' utilities."""
    first, second = (np.concatenate([true.halves[h] for true in worths]) for h in (0, 1))
    return correlation(first, second)


def correlation(a: Floats, b: Floats) -> float:
    """Return Pearson's correlation, or nan if either array is constant."""
    if len(a) < 2 or a.std() < 1e-12 or b.std() < 1e-12:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])


def rank_correlation(a: Floats, b: Floats) -> float:
    """Return Spearman's correlation, or 0 if either array is constant."""
    coefficient = correlation(scipy.stats.rankdata(np.round(a, 12)), scipy.stats.rankdata(np.round(b, 12)))
    return 0.0 if np.isnan(coefficient) else coefficient


def cosine_of(sums: Floats) -> Floats:
    """Return the cosine of each half with the other one, averaged. sums: [..., 8], as in `Measures.sums`."""
    e1_u2, e2_u1, e1, e2, u1, u2, _, _ = np.moveaxis(sums, -1, 0)
    return (_quotient(e1_u2, np.sqrt(e1 * u2)) + _quotient(e2_u1, np.sqrt(e2 * u1))) / 2


def corrected_of(sums: Floats) -> Floats:
    """Return the cosine that noiseless halves would have; nan if a half says nothing about the other. sums: [..., 8]."""
    e1_u2, e2_u1, _, _, _, _, e1_e2, u1_u2 = np.moveaxis(sums, -1, 0)
    common = np.where((e1_e2 > 0) & (u1_u2 > 0), e1_e2 * u1_u2, 0.0)
    return _quotient((e1_u2 + e2_u1) / 2, np.sqrt(common))


def _ratio(sums: Floats) -> Floats:
    return _quotient(sums[..., 0], sums[..., 1])


def _quotient(above: Floats, below: Floats) -> Floats:
    nowhere = np.full(np.shape(above), np.nan)
    quotient: Floats = np.divide(above, below, out=nowhere, where=np.abs(below) > 1e-12)
    return quotient


def _gap(group: AuditedGroup, values_PK: Floats) -> list[tuple[float, float]]:
    turns_PK = group.continuations.turns.reshape(values_PK.shape)
    return [gap(values_PK[p], turns_PK[p] == start + 1) for p, start in enumerate(group.starts)]


def _scaled(gaps: Sequence[Sequence[tuple[float, float]]], of: Floats) -> float:
    """Return the weighted mean gap of all prefixes, divided by the root mean square of `of`; nan if no prefix has a
    choice to stop.
    """
    weight = sum(w for group_gaps in gaps for _, w in group_gaps)
    scale = float(np.sqrt((of**2).mean()))
    return (
        sum(value * w for group_gaps in gaps for value, w in group_gaps) / weight / scale
        if weight and scale
        else float("nan")
    )
