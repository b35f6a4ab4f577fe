"""Metrics of a step's judgements; empty where no trajectory was judged."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import get_args

from userrl_core.records import Trajectory
from userrl_core.rewards.judge import UNJUDGED, Category


def judge_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Return the judge's metrics.

    ``judge/score/mean``: the mean judged sum over conversations with usable marks. Shares: of each category, of
    conversations without usable marks, and of turns where judge and rule judge agree.
    """
    judged = [t.judgement for t in trajectories if t.judgement is not None and t.judgement.rule_scores is not None]
    if not judged:
        return {}
    metrics = {
        f"judge/{kind}/share": sum(j.category == kind for j in judged) / len(judged)
        for kind in (*get_args(Category), UNJUDGED)
    }
    marked = [(j.scores, j.rule_scores) for j in judged if j.scores is not None and j.rule_scores is not None]
    if marked:
        metrics["judge/score/mean"] = fmean(sum(r or 0.0 for r in j.rewards) for j in judged if j.scores is not None)
        same = [a == b for scores, rule in marked for a, b in zip(scores, rule, strict=True)]
        metrics["judge/agreement/share"] = fmean(same)
    return metrics


def intervention_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Return ``rollout/interventions/mean``: interrupted attempts per turn."""
    interrupted = [len(turn.info.get("interrupted", ())) for trajectory in trajectories for turn in trajectory.turns]
    return {"rollout/interventions/mean": fmean(interrupted)} if interrupted else {}
