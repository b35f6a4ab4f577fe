"""ReMax (Li et al. 2023): each trajectory is compared with a greedy conversation of the policy on the same task.

The advantage S_i - S_greedy needs no group and no critic, but one more conversation per task and step. It keeps the
scale of the rewards.
"""

from __future__ import annotations

import numpy as np

from userrl_core.errors import ConfigError
from userrl_core.rewards import CreditConfig, Credits
from userrl_core.training.local.batch import Advantages, Batch, from_scores

EPSILON = 1e-6
"""Smaller differences count as zero, like a group's standard deviation below this."""


def remax(batch: Batch, credits: Credits, config: CreditConfig) -> Advantages:
    """Return score minus greedy score, one per trajectory. Trajectories that lack one of the two are not trained on.

    With filter drop, a task leaves the batch when all its trajectories score the same as the greedy one.
    """
    if batch.baselines is None:
        raise ConfigError("training.bad_call", "remax needs the scores of greedy conversations. Play one per task.")
    baseline_N = np.asarray(batch.baselines, dtype=np.float64)
    compared_N = credits.admitted & np.isfinite(baseline_N)
    difference_N = np.where(compared_N, credits.scores - baseline_N, 0.0)
    difference_N[np.abs(difference_N) < EPSILON] = 0.0
    group_N = np.asarray(batch.groups, dtype=np.int64)
    differs_N = np.bincount(group_N, weights=difference_N != 0.0)[group_N] > 0
    trains = compared_N if config.filter == "keep" else compared_N & differs_N
    # Every trajectory of a group carries the same baseline, which counts once.
    return from_scores(batch, difference_N, trains.copy(), baseline_metrics(baseline_N[~_repeated(group_N)]))


def baseline_metrics(baselines: np.ndarray) -> dict[str, float]:
    """Return the metrics of a step's greedy conversations. baselines: their scores, NaN without a score."""
    finite = baselines[np.isfinite(baselines)]
    metrics = {"credit/baseline_missing/count": float(len(baselines) - len(finite))}
    return metrics | ({"credit/baseline/mean": float(finite.mean())} if finite.size else {})


def _repeated(group_N: np.ndarray) -> np.ndarray:
    repeated = np.ones(len(group_N), dtype=np.bool_)
    repeated[np.unique(group_N, return_index=True)[1]] = False
    return repeated
