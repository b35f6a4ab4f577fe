"""The credit audit: real groups of a frozen policy, continuations of their prefixes, and all credit rules compared on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from analysis.credit.agreement import AuditedGroup, Measures, by_kind, measure, reliability, worth
from analysis.credit.continuations import Prefix, continuations
from analysis.credit.replay import Setting, why_not
from analysis.credit.rules import AuditedRule, Padded, rules
from analysis.measure.interval import Interval
from userrl_core.errors import ConfigError, GymError
from userrl_core.policies.base import BatchPolicy
from userrl_core.records import Task, Trajectory
from userrl_core.rollout import run_episodes

GOALS = ("sum", "r2g", "score")
"""Goals of the utility: the sum of rewards, the discounted sum, the gym's final score."""

NO_CALL = "no call"
"""The kind of a turn whose text could not be parsed as a call."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The audit of one policy at one horizon.

    reliability: by goal, split-half, of the utilities. measures: by goal, of every rule. refused: the rules that the
    rewards do not allow, with the reason. identity: the largest error of the sum identity over all trajectories.
    trajectories, turns: of the real groups. continuations: number played. kinds: by goal, mean utility of the turns
    of each kind, divided by the root mean square over all turns.
    """

    tasks: int
    trajectories: int
    turns: int
    continuations: int
    identity: float
    reliability: dict[str, float]
    measures: dict[str, list[Measures]]
    kinds: dict[str, dict[str, Interval]]
    refused: dict[str, str] = field(default_factory=dict)


async def audit(
    tasks: Sequence[Task],
    policy: BatchPolicy,
    setting: Setting,
    *,
    horizon: int,
    n: int = 8,
    k: int = 8,
    gamma: float = 0.8,
    curvature: float = 2.0,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Audit:
    """Play n trajectories of every task and 2 k continuations of every prefix, k for each half, and compare the rules.

    curvature: of shaping ``em``. Raises ConfigError for fewer than two tasks, GymError for a gym that cannot be replayed.
    """
    if len(tasks) < 2:
        raise ConfigError("audit.too_few_scores", "An audit computes intervals over tasks. Give it two tasks or more.")
    played = await run_episodes(
        tasks,
        policy,
        horizon=horizon,
        n=n,
        user=setting.user,
        gym_config=setting.gym_config,
        on_format_error=setting.on_format_error,
        prompt_style=setting.prompt_style,
        turns_left=setting.turns_left,
        seed=seed,
    )
    for trajectory in played:
        if reason := why_not(trajectory.task.gym, trajectory.user):
            raise GymError("gym.not_replayable", reason)
    members = [
        [episode for episode in played[i : i + n] if episode.admitted and episode.turns]
        for i in range(0, len(played), n)
    ]
    members = [group for group in members if len(group) > 1]
    if len(members) < 2:
        raise ConfigError(
            "audit.too_few_scores",
            "Fewer than two tasks have trajectories with a score. Check that the gym and the user work.",
        )
    prefixes, at = _prefixes(members)
    continued = await continuations(
        [prefix for group in prefixes for prefix in group], policy, 2 * k, setting, seed=seed, progress=progress
    )
    groups, begin = [], 0
    for trajectories, group_prefixes, index in zip(members, prefixes, at, strict=True):
        groups.append(as_group(trajectories, group_prefixes, index, continued[begin : begin + len(group_prefixes)]))
        begin += len(group_prefixes)
    return compare(groups, gamma, curvature)


def compare(groups: Sequence[AuditedGroup], gamma: float, curvature: float = 2.0) -> Audit:
    """Compare every rule with the utilities of every goal."""
    reliabilities, measures, kinds, refused = {}, {}, {}, {}
    identity = 0.0
    for goal in GOALS:
        reach = max(
            float(np.ptp(group.way_ends if goal == "score" else group.continuations.rewards.sum(axis=1)))
            for group in groups
        )
        worths = [worth(group, goal, gamma, reach) for group in groups]
        discount = gamma if goal == "r2g" else 1.0
        identity = max(
            identity,
            *(
                _identity(group, true.both, true.togo, goal, discount)
                for group, true in zip(groups, worths, strict=True)
            ),
        )
        reliabilities[goal] = reliability(worths)
        kinds[goal] = by_kind(groups, [true.both for true in worths])
        rows: list[Measures] = []
        for rule in rules():
            try:
                rows.append(measure(groups, worths, rule, gamma, curvature))
            except ConfigError as error:
                refused[rule.name] = str(error)
        measures[goal] = rows
    return Audit(
        tasks=len(groups),
        trajectories=sum(len(group.at) for group in groups),
        turns=sum(int(group.trajectories.turns.sum()) for group in groups),
        continuations=sum(group.way_ends.size for group in groups),
        identity=identity,
        reliability=reliabilities,
        measures=measures,
        kinds=kinds,
        refused=refused,
    )


def as_group(
    trajectories: Sequence[Trajectory],
    prefixes: Sequence[Prefix],
    at: Sequence[Sequence[int]],
    continuations: Sequence[Sequence[Trajectory]],
) -> AuditedGroup:
    """Convert trajectories to arrays. continuations: the continuations of each prefix."""
    width = max(
        len(trajectory.turns)
        for trajectory in (*trajectories, *(continuation for of_prefix in continuations for continuation in of_prefix))
    )
    return AuditedGroup(
        trajectories=_padded(trajectories, width),
        ends=np.array([trajectory.score or 0.0 for trajectory in trajectories]),
        at=at,
        starts=[prefix.turns for prefix in prefixes],
        continuations=_padded([continuation for of_prefix in continuations for continuation in of_prefix], width),
        way_ends=np.array([[continuation.score or 0.0 for continuation in of_prefix] for of_prefix in continuations]),
        kinds=[turn.choice or NO_CALL for trajectory in trajectories for turn in trajectory.turns],
    )


def _prefixes(members: Sequence[Sequence[Trajectory]]) -> tuple[list[list[Prefix]], list[list[list[int]]]]:
    """Return the prefixes of each group, and the indices of each trajectory's prefixes. A group has one empty prefix for all."""
    prefixes: list[list[Prefix]] = []
    at: list[list[list[int]]] = []
    for group in members:
        group_prefixes = [Prefix(group[0], 0)]
        indices = []
        for trajectory in group:
            later = range(1, len(trajectory.turns))
            indices.append([0, *(len(group_prefixes) + i for i in range(len(later)))])
            group_prefixes += [Prefix(trajectory, turns) for turns in later]
        prefixes.append(group_prefixes)
        at.append(indices)
    return prefixes, at


def _padded(trajectories: Sequence[Trajectory], width: int) -> Padded:
    rewards = [[float(turn.reward or 0.0) for turn in trajectory.turns] for trajectory in trajectories]
    tokens = [[max(turn.completion_tokens, 1) for turn in trajectory.turns] for trajectory in trajectories]
    return Padded.of(rewards, tokens, width)


def _identity(group: AuditedGroup, utility: np.ndarray, togo_PK: np.ndarray, goal: str, discount: float) -> float:
    """Return the largest abs(sum of gamma^(t-1) U_t - (G - V(h_1))) over the group's trajectories."""
    worst = 0.0
    rows = np.split(utility, np.cumsum(group.trajectories.turns)[:-1])
    for row, rewards, end, at in zip(rows, group.trajectories.rewards, group.ends, group.at, strict=True):
        weight = discount ** np.arange(len(row))
        total = end if goal == "score" else float(rewards[: len(row)] @ weight)
        worst = max(worst, abs(float(row @ weight) - (total - float(togo_PK[at[0]].mean()))))
    return worst


def ranked(audit: Audit, goal: str, aggregation: str) -> list[Measures]:
    """Return the rules of one loss aggregation by descending cosine. Rules without a cosine come last."""

    def place(row: Measures) -> float:
        return -row.cosine.estimate if row.cosine.estimate == row.cosine.estimate else float("inf")

    return sorted((row for row in audit.measures[goal] if row.rule.aggregation == aggregation), key=place)


__all__ = ["Audit", "AuditedRule", "as_group", "audit", "compare", "ranked"]
