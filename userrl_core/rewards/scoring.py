"""Trajectory-level scoring (UserRL section 3): the number that compares the trajectories of a task.

Shape suffixes as in ``shaping.py``. Columns are summed from the first turn to the last. A score then does not depend,
even in its last bit, on the length of other trajectories in the batch.
"""

from __future__ import annotations

import numpy as np

from userrl_core.rewards.config import CreditConfig
from userrl_core.rewards.shaping import Floats, Ints, four_digits


def score(rewards_NT: Floats, turns_N: Ints, config: CreditConfig) -> Floats:
    """Return the score of every trajectory, shape [N].

    rewards_NT: raw rewards, zero at padding. turns_N: turns of each trajectory.

    - ``sum``: r_1 + ... + r_T, a true sum.
    - ``mean``: that over T, which the released code calls Sum. Rounding ``released`` rounds it to four digits, as there.
    - ``r2g``: the sum of gamma^(t-1) r_t, which is larger for earlier rewards. gamma = 1 gives the sum to the last bit.
    """
    factor = config.gamma if config.score == "r2g" else 1.0
    score_N = np.zeros(rewards_NT.shape[0])
    weight = 1.0
    for t in range(rewards_NT.shape[1]):
        score_N += weight * rewards_NT[:, t]
        weight *= factor
    if config.score == "mean":
        # A trajectory without a turn is not admitted, and must not divide by zero here.
        score_N /= np.maximum(turns_N, 1)
        return four_digits(score_N) if config.rounding == "released" else score_N
    return score_N
