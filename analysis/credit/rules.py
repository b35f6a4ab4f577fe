"""The credit rules that an audit compares: the credit they paid, and the credit they would pay other continuations.

A rule's *expected* advantage of an action is its mean credit over the continuations of that action, minus its mean
credit in that state over all actions. The statistics of the group (mean, deviation, offset) stay frozen. For a
trajectory of the group itself the frozen rule gives the credit that was paid.

Shape suffixes: N trajectories, T turns of the longest one; rows are left-aligned, padding is zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from userrl_core.errors import ConfigError
from userrl_core.rewards.advantage import EPSILON, assign_credit, formed
from userrl_core.rewards.config import Form
from userrl_core.rewards.installed import rule_names
from userrl_core.rewards.ragged import column_sum
from userrl_core.rewards.scoring import Scoring, score
from userrl_core.rewards.shaping import Bools, Floats, Ints, Shaping, reward_to_go, shape

Aggregation = Literal["token_mean", "trajectory_mean"]
IndexRule = Literal["index_rewards", "index_returns"]
"""Rules that are audited and not offered for training. They centre per turn index: the rewards before reward-to-go
(verl 7244), or the rewards to go.
"""


@dataclass(frozen=True, slots=True)
class AuditedRule:
    """A credit rule and the loss aggregation.

    shaping: a recipe's shaping, including installed packages', or an `IndexRule`, which ignores score and form.
    """

    shaping: str
    score: Scoring = "sum"
    form: Form = "released"
    aggregation: Aggregation = "trajectory_mean"

    @property
    def name(self) -> str:
        """Return shaping, score and form, followed by the loss aggregation: ``r2g/r2g/paper token_mean``."""
        if self.shaping in get_args(IndexRule):
            return f"{self.shaping} {self.aggregation}"
        return f"{self.shaping}/{self.score}/{self.form} {self.aggregation}"


def rules() -> Iterator[AuditedRule]:
    """Yield every shaping (including installed packages') x score x form x loss aggregation. ``equalized`` has one form only."""
    for aggregation in get_args(Aggregation):
        for shaping in rule_names(get_args(Shaping)):
            for scoring in get_args(Scoring):
                for form in get_args(Form) if shaping != "equalized" else ("released",):
                    yield AuditedRule(shaping, scoring, form, aggregation)
        for index_rule in get_args(IndexRule):
            yield AuditedRule(index_rule, aggregation=aggregation)


@dataclass(frozen=True, slots=True)
class Padded:
    """Trajectories as matrices. rewards, tokens: [N, T]. turns: [N]."""

    rewards: Floats
    tokens: Floats
    turns: Ints

    @classmethod
    def of(cls, rewards: Sequence[Sequence[float]], tokens: Sequence[Sequence[int]], width: int = 0) -> Padded:
        """Pad the rows with zeros. width: minimum number of columns."""
        turns_N = np.array([len(row) for row in rewards], dtype=np.int64)
        shape_NT = len(rewards), max(int(turns_N.max(initial=0)), width)
        rewards_NT, tokens_NT = np.zeros(shape_NT), np.zeros(shape_NT)
        for n, (row, counts) in enumerate(zip(rewards, tokens, strict=True)):
            rewards_NT[n, : len(row)] = row
            tokens_NT[n, : len(counts)] = counts
        return cls(rewards_NT, tokens_NT, turns_N)

    @property
    def real(self) -> Bools:
        """Return the mask of existing turns, [N, T]."""
        real_NT: Bools = np.arange(self.rewards.shape[1]) < self.turns[:, None]
        return real_NT

    def ragged(self, values_NT: Floats) -> list[list[float]]:
        """Return the rows without their padding."""
        return [row[:n].tolist() for row, n in zip(values_NT, self.turns.tolist(), strict=True)]


def paid(rule: AuditedRule, group: Padded, gamma: float, k: float = 2.0) -> Floats:
    """Return the rule's credit for every turn of a group, [N, T], as the loss weights one of its tokens; zero at padding."""
    return frozen(rule, group, group, gamma, k)


def frozen(rule: AuditedRule, group: Padded, continuations: Padded, gamma: float, k: float = 2.0) -> Floats:
    """Return the rule's credit for other trajectories of the group's task, with the group's own statistics, [N, T].

    Raises ConfigError if the group's rewards do not allow the rule.
    """
    if rule.shaping in get_args(IndexRule):
        advantage_NT = _per_index(rule.shaping, group, continuations, gamma)
    else:
        advantage_NT = _grouped(rule, group, continuations, gamma, k)
    if rule.aggregation == "trajectory_mean":
        total_N1 = column_sum(continuations.tokens)[:, None]
        advantage_NT = np.divide(advantage_NT, total_N1, out=np.zeros_like(advantage_NT), where=total_N1 > 0)
    return np.where(continuations.real, advantage_NT, 0.0)


def _grouped(rule: AuditedRule, group: Padded, continuations: Padded, gamma: float, k: float) -> Floats:
    shaping = rule.shaping
    group_credit = assign_credit(
        group.ragged(group.rewards),
        [0] * len(group.turns),
        turn_tokens=[[int(n) for n in row] for row in group.ragged(group.tokens)],
        shaping=shaping,
        score=rule.score,
        gamma=gamma,
        k=k,
        form=rule.form,
    )
    if not group_credit.signal.any():
        return np.zeros_like(continuations.rewards)
    mean, std = float(group_credit.mean[0]), float(group_credit.std[0])
    shaped_NT = shape(shaping, continuations.rewards, continuations.real, gamma=gamma, k=k)
    if rule.form == "released" and shaped_NT.min(initial=0.0) < 0.0:
        raise ConfigError(
            "credit.negative",
            f"Form released inverts the sign of negative credit, and shaping {shaping} gives negative credit here.",
        )
    ones_N = np.ones(len(continuations.turns))
    z_N = (score(rule.score, continuations.rewards, continuations.turns, gamma=gamma) - mean) / (std + EPSILON)
    advantage_NT = formed(rule.form, shaping, shaped_NT, continuations.tokens, mean * ones_N, std * ones_N, z_N)
    if rule.form == "centred" and shaping != "equalized":
        paper = (float(group_credit.shaped[0][0]) - mean) / (std + EPSILON)
        advantage_NT = advantage_NT - (
            paper - float(group_credit.advantages[0][0])
        )  # the group's offset, read off one of its turns
    return advantage_NT


def _per_index(rule: str, group: Padded, continuations: Padded, gamma: float) -> Floats:
    """Subtract the mean over the group's trajectories that have this turn, or 0 if no trajectory has it."""
    if rule == "index_rewards":
        return reward_to_go(
            np.where(
                continuations.real, continuations.rewards - _index_means(group.rewards, group, continuations), 0.0
            ),
            gamma,
        )
    togo_NT = reward_to_go(continuations.rewards, gamma)
    return togo_NT - _index_means(reward_to_go(group.rewards, gamma), group, continuations)


def _index_means(values_NT: Floats, group: Padded, continuations: Padded) -> Floats:
    count_T = group.real.sum(axis=0)
    mean_T = (values_NT * group.real).sum(axis=0) / np.maximum(count_T, 1)
    means_T = np.zeros(continuations.rewards.shape[1])
    width = min(len(mean_T), len(means_T))
    means_T[:width] = mean_T[:width]
    return means_T
