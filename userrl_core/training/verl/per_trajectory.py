"""RLOO, REINFORCE++ and ReMax on verl: its own formulas, over the trajectories that have a score.

verl counts a trajectory that was not admitted as one that scored 0, which moves the others' baseline. Here such rows
never reach the formula. The result is logged like the grouped credits of `estimator.estimate`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from userrl_core.training.local.algorithms.remax import baseline_metrics
from userrl_core.training.verl.credit_actor import take_baselines
from userrl_core.training.verl.estimator import TurnBatch, read_batch

RLOO = "userrl_rloo"
REINFORCE_PP = "userrl_reinforce_pp"
REMAX = "userrl_remax"
EPSILON = 1e-6
"""Smaller differences from the greedy conversation count as zero, as on the local backend."""


def estimate_rloo(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    config: Any = None,
    index: Sequence[Any] | None = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the score minus the mean of the other scores in the group, on every token of a trajectory; advantages
    and returns alike, [N, L].

    Arguments as in `estimator.estimate`. A trajectory without other scores in its group gets zero, as in a group
    without a signal.
    """
    batch = read_batch(token_level_rewards, response_mask, config, index)
    credits = batch.credits
    scored = np.flatnonzero(credits.admitted).tolist()
    members = Counter(batch.groups[i] for i in scored)
    compared = [i for i in scored if members[batch.groups[i]] > 1]
    values = np.zeros(len(batch.rows))
    if compared:
        score_M1 = torch.tensor(credits.scores[compared], dtype=torch.float64)[:, None]
        groups = np.array([batch.groups[i] for i in compared], dtype=object)
        rloo_M1 = _verls("rloo")(score_M1, torch.ones_like(score_M1), groups)[0]
        values[compared] = rloo_M1[:, 0].numpy()
    values[~credits.signal] = 0.0  # equal scores: what is left is rounding
    return batch.answer(_on_every_turn(values, batch))


def estimate_reinforce_pp(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    config: Any = None,
    index: Sequence[Any] | None = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return discounted rewards to go, whitened over the batch's tokens, and the same before whitening, [N, L] each.

    Arguments as in `estimator.estimate`; ``config.gamma`` discounts per token. With fewer than two agent tokens in
    the batch there is a zero deviation: all zero.
    """
    batch = read_batch(token_level_rewards, response_mask, config, index)
    # Rows without a turn have no score, and must not enter the mean of the batch.
    scored = [row for row, spans in zip(batch.rows, batch.spans, strict=True) if spans]
    advantages, returns = torch.zeros_like(token_level_rewards), torch.zeros_like(token_level_rewards)
    if int(response_mask[scored].sum()) > 1:
        advantages[scored], returns[scored] = _verls("reinforce_plus_plus")(
            token_level_rewards[scored], response_mask[scored], config=config
        )
    batch.record(batch.turn_means(advantages))
    return advantages, returns


def estimate_remax(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    config: Any = None,
    index: Sequence[Any] | None = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the score minus the task's greedy score, on every token of a trajectory; advantages and returns alike, [N, L].

    Arguments as in `estimator.estimate`. verl's synchronous trainer plays no greedy conversations: the agent
    loops do, and send the scores to the credit actor. Without a greedy score, the group gets zero advantage.
    """
    batch = read_batch(token_level_rewards, response_mask, config, index)
    baselines = take_baselines(batch.groups)
    baseline_N = np.array(
        [np.nan if (score := baselines.get(uid)) is None else score for uid in batch.groups], np.float64
    )
    compared = np.flatnonzero(batch.credits.admitted & np.isfinite(baseline_N))
    values = np.zeros(len(batch.rows))
    if len(compared):
        score_M1 = torch.tensor(batch.credits.scores[compared], dtype=torch.float64)[:, None]
        baseline_M = torch.tensor(baseline_N[compared], dtype=torch.float64)
        values[compared] = _verls("remax")(score_M1, baseline_M, torch.ones_like(score_M1))[0][:, 0].numpy()
    values[np.abs(values) < EPSILON] = 0.0
    greedy_scores = np.array([np.nan if score is None else score for score in baselines.values()])
    return batch.answer(_on_every_turn(values, batch), baseline_metrics(greedy_scores))


def _on_every_turn(values: NDArray[np.float64], batch: TurnBatch) -> list[list[float]]:
    return [[float(value)] * len(spans) for value, spans in zip(values, batch.spans, strict=True)]


def _verls(name: str) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """Return verl's own estimator. Looked up late, because verl loads this module while it is being imported itself."""
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn

    estimator: Callable[..., tuple[torch.Tensor, torch.Tensor]] = get_adv_estimator_fn(name)
    return estimator
