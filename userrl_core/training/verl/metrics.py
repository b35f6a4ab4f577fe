"""verl's numbers under our names."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from userrl_core.records import Task

RENAMED = {
    "actor/entropy": "policy/entropy/mean",
    "actor/entropy_mask": "policy/entropy_mask/share",
    "actor/pg_loss": "policy/loss/mean",
    "actor/pg_clipfrac": "policy/clip/share",
    "actor/ppo_kl": "policy/kl/mean",
    "actor/kl_loss": "policy/kl_reference/mean",
    "actor/grad_norm": "policy/grad_norm/mean",
    "actor/lr": "policy/lr/value",
    "perf/throughput": "rollout/tokens/per_second",
    "perf/max_memory_allocated_gb": "device/memory/gigabytes",
    "timing_s/gen": "seconds/rollout/sum",
    "timing_s/update_actor": "seconds/update/sum",
    "timing_s/testing": "seconds/validate/sum",
    "timing_s/step": "seconds/step/sum",
    "response_length/mean": "rollout/response_tokens/mean",
}
"""Our names for metrics that the local trainer measures too; the others keep verl's name, under ``verl/``.

verl's own mean of scores is not the mean return: trajectories that were not admitted count in it as 0, and
credit.terms changed the others.
"""

LOSSES = ("actor/pg_loss", "actor/loss", "actor/kl_loss", "critic/vf_loss")


def step_metrics(
    data: Mapping[str, Any], stats: Mapping[str, Any] | None, score: float | None = None
) -> dict[str, float]:
    """Return all numbers of a step. data: verl's. stats: the credit actor's line for the step. score: the validation score."""
    metrics: dict[str, float] = {}
    for key, value in data.items():
        if isinstance(value, (int, float)) and math.isfinite(value):
            metrics[RENAMED.get(key, f"verl/{key}")] = float(value)
    if stats is not None:
        metrics |= {str(name): float(value) for name, value in stats["numbers"].items()}
        metrics["rollout/admitted/share"] = stats["admitted"] / max(stats["attempts"], 1)
        for name in ("success", "turns", "score", "return_sum", "waits", "reply_tokens", "interventions"):
            if stats.get(name) is not None:
                metrics[f"rollout/{name}/mean"] = float(stats[name])
    if score is not None:
        metrics["validate/score/mean"] = score
    return metrics


def validation_score(data: Mapping[str, Any], tasks: Sequence[Task]) -> float | None:
    """Return the mean score over validation tasks; gyms are weighted by their number of tasks. None where verl did
    not validate.

    verl averages per gym, over the trajectories that have a score: those that were not admitted report none.
    """
    total, weight = 0.0, 0
    for gym, count in Counter(task.gym for task in tasks).items():
        value = next(
            (data[f"{part}/{gym}/score/mean@1"] for part in _PARTS if f"{part}/{gym}/score/mean@1" in data), None
        )
        if value is not None:
            total, weight = total + float(value) * count, weight + count
    return total / weight if weight else None


_PARTS = ("val-core", "val-aux")
