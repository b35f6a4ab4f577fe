"""RLOO (Ahmadian et al. 2024): each trajectory is compared with the mean of the other trajectories of its group.

The advantage, S_i minus the mean of the others' S, is unbiased. It is not divided by a deviation, so it keeps the
scale of the rewards.
"""

from __future__ import annotations

import numpy as np

from userrl_core.rewards import CreditConfig, Credits
from userrl_core.training.local.batch import Advantages, Batch, from_scores


def rloo(batch: Batch, credits: Credits, config: CreditConfig) -> Advantages:
    """Return leave-one-out advantages, one per trajectory."""
    group_N = np.asarray(batch.groups, dtype=np.int64)
    # NaN, no score, would spoil the sum of its group.
    score_N = np.where(credits.admitted, credits.scores, 0.0)
    count_N = np.bincount(group_N, weights=credits.admitted)[group_N]
    total_N = np.bincount(group_N, weights=score_N)[group_N]
    # Alone in its group, a trajectory has nothing to be compared with.
    others_N = np.divide(total_N - score_N, count_N - 1, out=np.zeros_like(total_N), where=count_N > 1)
    compared_N = credits.admitted & (count_N > 1)
    trains = compared_N if config.filter == "keep" else credits.signal
    return from_scores(batch, score_N - others_N, trains.copy(), {})
