"""REINFORCE++ (Hu et al. 2025): scores are normalised over the whole batch of a step, without groups or a critic.

In contrast to GRPO, tasks of different difficulty share one baseline.
"""

from __future__ import annotations

import numpy as np

from userrl_core.rewards import CreditConfig, Credits
from userrl_core.training.local.batch import Advantages, Batch, from_scores

EPSILON = 1e-6


def reinforce_pp(batch: Batch, credits: Credits, config: CreditConfig) -> Advantages:
    """Return batch-normalised advantages, one per trajectory. A batch with equal scores is not trained on."""
    score_N = credits.scores[credits.admitted]
    mean, std = (float(score_N.mean()), float(score_N.std(ddof=0))) if score_N.size else (0.0, 0.0)
    trains = credits.admitted & (std >= EPSILON)
    # 0 without a score: such a trajectory is not trained on.
    values = (np.where(credits.admitted, credits.scores, mean) - mean) / (std + EPSILON)
    return from_scores(batch, values, trains, {"credit/baseline/mean": mean, "credit/baseline/std": std})
