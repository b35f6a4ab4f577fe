"""Metrics of one step and of its trajectories, named ``scope/subset/stat``. Nulls are left out, never counted as zero.

``<scope>/return_sum/mean`` is the mean sum of raw rewards, the only reward metric that is comparable between recipes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import get_args

from userrl_core.judging.metrics import judge_metrics
from userrl_core.records import Flag, StopReason, Trajectory
from userrl_core.rewards import Credits, measure_bias
from userrl_core.training.local.batch import Advantages, Batch
from userrl_core.training.waits import waits


def step_metrics(batch: Batch, credits: Credits, advantages: Advantages) -> dict[str, float]:
    """Return the metrics of a step's conversations, credit, advantages and tokens."""
    tokens, agent_tokens = batch.tokens
    metrics = conversation_metrics(batch.trajectories, "rollout") | judge_metrics(batch.trajectories)
    metrics |= credits.diagnostics.metrics() | advantages.metrics
    metrics |= measure_bias(advantages.turns, batch.groups, credits, batch.turn_tokens).metrics()
    metrics["groups/trained/share"] = float(advantages.trains.mean()) if len(batch) else 0.0
    metrics |= {"tokens/all/sum": float(tokens), "tokens/agent/sum": float(agent_tokens)}
    if agent_tokens:
        # Of all that was sampled: the update measures only what it trains on, which is nothing where no group differs.
        metrics["rollout/entropy/mean"] = sum(sum(s.entropies) for s in batch.samples) / agent_tokens
    return metrics


def conversation_metrics(trajectories: Sequence[Trajectory], scope: str) -> dict[str, float]:
    """Return rewards, scores, lengths, format validity and stop reasons.

    Rewards and scores are also given per gym where there are several gyms. Scores are also given per tier where a gym
    has several.
    """
    metrics = _outcome(trajectories, scope)
    by_gym = _grouped(trajectories, lambda trajectory: trajectory.task.gym)
    for gym, gym_trajectories in by_gym.items():
        if len(by_gym) > 1:
            metrics |= _outcome(gym_trajectories, f"{scope}/{gym}")
        tiers = _grouped(gym_trajectories, lambda trajectory: trajectory.task.tier or "")
        for tier, tier_trajectories in tiers.items() if len(tiers) > 1 else ():
            metrics |= _mean(f"{scope}/{gym}.{tier}/score/mean", (t.score for t in tier_trajectories if t.admitted))
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    count = max(len(trajectories), 1)
    metrics |= _mean(f"{scope}/reply_tokens/mean", (turn.completion_tokens for turn in turns))
    metrics |= _mean(f"{scope}/waits/mean", (waits(turn.message) for turn in turns))
    metrics |= _mean(f"{scope}/format_valid/share", (not turn.flags & Flag.FORMAT_ERROR for turn in turns))
    metrics |= _mean(f"{scope}/truncated/share", (bool(turn.flags & Flag.LENGTH) for turn in turns))
    for reason in get_args(StopReason):
        metrics[f"{scope}/stop_{reason}/share"] = sum(t.stop_reason == reason for t in trajectories) / count
    metrics[f"{scope}/admitted/share"] = sum(t.admitted for t in trajectories) / count
    metrics[f"{scope}/attempts/count"] = float(len(trajectories))
    metrics[f"{scope}/turns/sum"] = float(len(turns))
    return metrics


def _grouped(trajectories: Sequence[Trajectory], key: Callable[[Trajectory], str]) -> dict[str, list[Trajectory]]:
    return {name: [t for t in trajectories if key(t) == name] for name in sorted({key(t) for t in trajectories})}


def _outcome(trajectories: Sequence[Trajectory], scope: str) -> dict[str, float]:
    admitted = [trajectory for trajectory in trajectories if trajectory.admitted]
    return {
        **_mean(f"{scope}/return_sum/mean", (t.return_sum for t in admitted)),
        **_mean(f"{scope}/score/mean", (t.score for t in admitted)),
        **_mean(f"{scope}/success/mean", (t.stop_reason == "success" for t in admitted)),
        **_mean(f"{scope}/turns/mean", (len(t.turns) for t in admitted)),
    }


def _mean(name: str, values: Iterable[float | None]) -> dict[str, float]:
    numbers = [float(value) for value in values if value is not None]
    return {name: fmean(numbers)} if numbers else {}
