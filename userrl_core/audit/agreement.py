"""How far a credit rule's advantages agree with what turns were worth, over groups of real trajectories.

Two halves of the continuations are kept apart: a rule's expected advantage from one half is held against the utility from the
other, so that no error is shared. Noise lowers a cosine by the root of two reliabilities: that of the utilities, and that of the
rule's expected advantages. The second differs by rule, so noise does not lower all cosines alike.

Array suffixes: P prefixes, K continuations of each, T turns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import rankdata

from userrl_core.audit.rules import AuditedRule, Padded, frozen, paid
from userrl_core.audit.utility import gap, least_error, return_from, utilities
from userrl_core.measure.interval import Interval, resampled
from userrl_core.rewards.advantage import assign_credit
from userrl_core.rewards.push import Push, measure_push
from userrl_core.rewards.shaping import Floats

RANKED_FROM = 0.3
"""Split-half reliability of the utilities below which rules are not ranked."""

SHORTEST = 3
"""Turns that a trajectory needs for its own rank correlation."""


@dataclass(frozen=True, slots=True)
class AuditedGroup:
    """One task's trajectories, and the continuations of their prefixes.

    own: [N] trajectories. ends: [N], the gym's scores. at: per trajectory the index of each of its prefixes, the first without
    any turn. starts: [P], the number of turns of a prefix. ways: P x K continuations, prefix by prefix, the prefix's own turns
    included. way_ends: [P, K], the gym's scores. The first half of the K is one half, the rest the other. kinds: [all turns], what
    each turn did (its choice of tool).
    """

    own: Padded
    ends: Floats
    at: Sequence[Sequence[int]]
    starts: Sequence[int]
    ways: Padded
    way_ends: Floats
    kinds: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Worth:
    """The utilities of a group's turns: of either half, of both together, and a standard error; each [all turns].

    togo: [P, K], what came after each prefix on each way.
    """

    halves: tuple[Floats, Floats]
    both: Floats
    error: Floats
    togo: Floats


def worth(group: AuditedGroup, goal: str, gamma: float, reach: float) -> Worth:
    """goal: ``sum`` (of rewards), ``r2g`` (discounted) or ``score`` (the gym's, at the end). reach: by how much values differ."""
    discount = gamma if goal == "r2g" else 1.0
    shape_PK = group.way_ends.shape
    togo_PK = group.way_ends
    if goal != "score":
        rewards_PKT = group.ways.rewards.reshape(*shape_PK, -1)
        togo_PK = np.stack(
            [return_from(rewards_PKT[p], start, discount) for p, start in enumerate(group.starts)]
        ).reshape(shape_PK)
    own = [
        [0.0] * (turns - 1) + [end] if goal == "score" else row[:turns].tolist()
        for row, turns, end in zip(group.own.rewards, group.own.turns.tolist(), group.ends.tolist(), strict=True)
    ]
    half = shape_PK[1] // 2

    def of(values_P: Floats) -> Floats:
        rows = [utilities(r, values_P[list(at)], discount) for r, at in zip(own, group.at, strict=True)]
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
    """What a rule pays an action on average, less what it pays there on average; and what it paid. Each [all turns].

    at_prefix: [P, K], what it pays the turn that follows each prefix, on each way.
    """

    halves: tuple[Floats, Floats]
    paid: Floats
    at_prefix: Floats


def expected(group: AuditedGroup, rule: AuditedRule, gamma: float, k: float) -> Expected:
    """Raises ConfigError where the rule does not allow the rewards."""
    shape_PK = group.way_ends.shape
    paid_NT = paid(rule, group.own, gamma, k)
    pays_PKT = frozen(rule, group.own, group.ways, gamma, k).reshape(*shape_PK, -1)
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
        np.concatenate([row[:turns] for row, turns in zip(paid_NT, group.own.turns.tolist(), strict=True)]),
        np.stack([pays_PKT[p, :, start] for p, start in enumerate(group.starts)]),
    )


@dataclass(frozen=True, slots=True)
class Measures:
    """A rule beside the utilities of one goal; intervals over tasks.

    cosine: of expected advantage and utility, between turns of the same prefix. reliability: split-half, of this rule's
    expected advantages. corrected: the cosine over the root of this reliability and that of the utilities, at most 1; nan
    where one of them is not above 0. median: over tasks, of the cosines within a task. within, between: rank correlation of
    the credit with the utility, over the turns of a trajectory, and of trajectories' means. wrong: share of significant turns
    that got credit of the other sign. silent: share of significant turns that got no credit. gap, true_gap: credit, and
    worth, of going on less those of stopping from the same prefix, each in root mean squares of its kind. mean, rms: of the
    credit. significant: turns with abs(U) above two standard errors. push: of the advantages, before the loss aggregation.
    kinds: mean expected advantage of the turns of each kind, in root mean squares of all.
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
    push: Push
    kinds: dict[str, Interval]
    corrected: float = math.nan
    median: float = math.nan


def measure(
    groups: Sequence[AuditedGroup], worths: Sequence[Worth], rule: AuditedRule, gamma: float, k: float
) -> Measures:
    """Raises ConfigError where the rewards do not allow the rule."""
    pays = [expected(group, rule, gamma, k) for group in groups]
    products, within, between, wrong = [], [], [], []
    significant = silent = 0
    for group, true, given in zip(groups, worths, pays, strict=True):
        (e1, e2), (u1, u2) = given.halves, true.halves
        products.append([e1 @ u2, e2 @ u1, e1 @ e1, e2 @ e2, u1 @ u1, u2 @ u2])
        ends = np.cumsum(group.own.turns)[:-1]
        paid_rows, true_rows = np.split(given.paid, ends), np.split(true.both, ends)
        inside = [rank_correlation(a, u) for a, u in zip(paid_rows, true_rows, strict=True) if len(a) >= SHORTEST]
        within.append([sum(inside), len(inside)])
        means = np.array([a.mean() for a in paid_rows]), np.array([u.mean() for u in true_rows])
        between.append([rank_correlation(*means), 1])
        told = (np.abs(true.both) > 2 * true.error) & (np.abs(true.both) > 1e-9)
        nothing = np.abs(given.paid) < 1e-9
        wrong.append([int((told & ~nothing & (given.paid * true.both < 0)).sum()), int((told & ~nothing).sum())])
        significant += int(told.sum())
        silent += int((told & nothing).sum())
    every = np.concatenate([given.paid for given in pays])
    gaps = [_gap(group, given.at_prefix) for group, given in zip(groups, pays, strict=True)]
    true_gaps = [_gap(group, true.togo) for group, true in zip(groups, worths, strict=True)]
    first, second = (np.concatenate([given.halves[h] for given in pays]) for h in (0, 1))
    return Measures(
        rule,
        resampled(np.array(products), _cosine),
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
        push_of([group.own for group in groups], rule, gamma, k),
        by_kind(groups, [(given.halves[0] + given.halves[1]) / 2 for given in pays]),
        corrected_cosine(
            float(_cosine(np.array(products).sum(axis=0))), correlation(first, second), reliability(worths)
        ),
        _median(_cosine(np.array(products))),
    )


def corrected_cosine(cosine: float, of_rule: float, of_worth: float) -> float:
    """Return a cosine without the noise of both halves (Spearman's correction for attenuation), cut at 1 either way."""
    if not (of_rule > 0 and of_worth > 0):
        return math.nan
    return max(-1.0, min(1.0, cosine / math.sqrt(of_rule * of_worth)))


def _median(cosines_M: Floats) -> float:
    known = cosines_M[~np.isnan(cosines_M)]
    return float(np.median(known)) if known.size else math.nan


def by_kind(groups: Sequence[AuditedGroup], values: Sequence[Floats]) -> dict[str, Interval]:
    """Mean of a value over the turns of each kind, in root mean squares of all turns' values; intervals over tasks.

    A mean over turns hides what is rare and always wrong: a rule that unlearns the one search of a conversation agrees well.
    """
    every = np.concatenate(values)
    scale = float(np.sqrt((every**2).mean())) or 1.0
    found = {}
    for kind in sorted({kind for group in groups for kind in group.kinds}):
        of_kind = [np.array(group.kinds) == kind for group in groups]
        sums = [[value[is_it].sum() / scale, is_it.sum()] for value, is_it in zip(values, of_kind, strict=True)]
        found[kind] = resampled(np.array(sums, dtype=float), _ratio)
    return found


def push_of(groups: Sequence[Padded], rule: AuditedRule, gamma: float, k: float) -> Push:
    """How far the rule's advantages fail to average 0 in the real groups: needs no continuation."""
    plain = replace(rule, aggregation="token_mean")
    advantages = [row for own in groups for row in own.ragged(paid(plain, own, gamma, k))]
    rewards = [row for own in groups for row in own.ragged(own.rewards)]
    tokens = [[int(n) for n in row] for own in groups for row in own.ragged(own.tokens)]
    ids = [n for n, own in enumerate(groups) for _ in own.turns]
    return measure_push(
        advantages, ids, assign_credit(rewards, ids, turn_tokens=tokens, score=rule.score, gamma=gamma), tokens
    )


def reliability(worths: Sequence[Worth]) -> float:
    """Split-half: correlation over turns of the utilities from either half."""
    first, second = (np.concatenate([true.halves[h] for true in worths]) for h in (0, 1))
    return correlation(first, second)


def correlation(a: Floats, b: Floats) -> float:
    """Pearson's; nan where one of the two does not vary."""
    if len(a) < 2 or a.std() < 1e-12 or b.std() < 1e-12:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])


def rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's; 0 where one of the two does not vary."""
    found = correlation(rankdata(np.round(a, 12)), rankdata(np.round(b, 12)))
    return 0.0 if np.isnan(found) else found


def _cosine(sums: Floats) -> Floats:
    """Of either half with the other, averaged."""
    e1_u2, e2_u1, e1, e2, u1, u2 = np.moveaxis(sums, -1, 0)
    return (_quotient(e1_u2, np.sqrt(e1 * u2)) + _quotient(e2_u1, np.sqrt(e2 * u1))) / 2


def _ratio(sums: Floats) -> Floats:
    return _quotient(sums[..., 0], sums[..., 1])


def _quotient(above: Floats, below: Floats) -> Floats:
    nowhere = np.full(np.shape(above), np.nan)
    found: Floats = np.divide(above, below, out=nowhere, where=np.abs(below) > 1e-12)
    return found


def _gap(group: AuditedGroup, values_PK: Floats) -> list[tuple[float, float]]:
    turns_PK = group.ways.turns.reshape(values_PK.shape)
    return [gap(values_PK[p], turns_PK[p] == start + 1) for p, start in enumerate(group.starts)]


def _scaled(gaps: Sequence[Sequence[tuple[float, float]]], of: Floats) -> float:
    """The weighed mean of all prefixes' gaps, in root mean squares of these numbers; nan where nobody could choose to stop."""
    weight = sum(w for each in gaps for _, w in each)
    scale = float(np.sqrt((of**2).mean()))
    return sum(value * w for each in gaps for value, w in each) / weight / scale if weight and scale else float("nan")
