"""DPO (Rafailov et al. 2023; AgentGym-RL section 3.2.2): of two conversations on one task, the better one becomes more likely.

All trajectories of a group whose scores differ are pairs. The loss of a pair is -log sigmoid(beta (g_better - g_worse)). The
gain g of a trajectory is the log-probability of its agent tokens less that under the policy which played it, the
reference. With `dpo_normalize` it is divided by the number of agent tokens, so that a long conversation weighs no more
than a short one.

The paper trains on pairs that were collected beforehand: that is one step with several `inner_epochs`. With more steps each
has the policy of the step before as its reference.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from userrl_core.rewards import CreditConfig, Credits
from userrl_core.training.local.batch import Advantages, Batch, from_scores

EPSILON = 1e-6
"""Scores that differ by less are equal, as under the other algorithms."""

Floats = NDArray[np.float64]


def dpo(batch: Batch, credits: Credits, config: CreditConfig) -> Advantages:
    """Return the share of its group that a trajectory is better than, less the share that it is worse than.

    The update starts from it: while no gain differs, the gradient is in proportion to it. Groups with equal scores are
    never trained on.
    """
    better_NN = better_of_two(credits.scores, batch.groups)
    compared_N = better_NN.sum(axis=1) + better_NN.sum(axis=0)
    group_N = np.asarray(batch.groups, dtype=np.int64)
    # The scored trajectories of its group besides itself.
    others_N = np.maximum(np.bincount(group_N, weights=credits.admitted)[group_N] - 1, 1)
    values_N = (better_NN.sum(axis=1) - better_NN.sum(axis=0)) / others_N
    advantages = from_scores(batch, values_N, compared_N > 0, {"dpo/pairs/count": float(better_NN.sum())})
    advantages.scores = credits.scores
    return advantages


def better_of_two(score_N: Floats, groups: Sequence[int]) -> NDArray[np.bool_]:
    """Return [i, j]: True where trajectory i is better than j, of the same group. NaN, no score, is neither better nor worse."""
    group_N = np.asarray(groups)
    better_NN: NDArray[np.bool_] = (score_N[:, None] - score_N > EPSILON) & (group_N[:, None] == group_N)
    return better_NN


def preference_gradient(
    gain_N: Floats, score_N: Floats, groups: Sequence[int], beta: float
) -> tuple[Floats, dict[str, float]]:
    """Return minus the gradient of the mean loss of all pairs with respect to the gains, [N], and sums over pairs.

    gain_N: in nats. Without a pair the gradient is 0.
    """
    better_NN = better_of_two(score_N, groups)
    margin_NN = beta * (gain_N[:, None] - gain_N)
    pairs = max(int(better_NN.sum()), 1)
    # The probability that the model puts the worse first. logaddexp does not overflow.
    wrong_NN = np.where(better_NN, np.exp(-np.logaddexp(0.0, margin_NN)), 0.0) * beta / pairs
    sums = {
        "pairs": float(better_NN.sum()),
        "pair_loss": float(np.logaddexp(0.0, -margin_NN)[better_NN].sum()),
        "margin": float(margin_NN[better_NN].sum()),
    }
    return wrong_NN.sum(axis=1) - wrong_NN.sum(axis=0), sums
