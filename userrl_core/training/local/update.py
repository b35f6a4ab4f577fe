"""The policy update of all algorithms: PPO's clipped surrogate over agent tokens, with optional terms.

Importance ratios are relative to the log-probabilities at sampling. Optional are a dual clip, a KL term, an entropy bonus and an
entropy mask.

Shapes: S agent tokens of a micro-batch.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from userrl_core.training.config import AlgorithmConfig
from userrl_core.training.entropy_mask import entropy_threshold
from userrl_core.training.local.algorithms.dpo import preference_gradient
from userrl_core.training.local.batch import Advantages, Batch, Tokens
from userrl_core.training.local.logprobs import reference_logprobs, token_logprobs
from userrl_core.training.local.lora import without_adapters
from userrl_core.training.local.micro_batches import add_gradients
from userrl_core.training.local.optimizer import clip_and_step
from userrl_core.training.local.samples import Sample

_RATIO_BOUND = 20.0
"""Bound of the log-ratios, so that exp does not overflow."""


@dataclass(frozen=True, slots=True)
class Item:
    """One trajectory in the update; arrays over its agent tokens. reference: log-probabilities of the reference model.

    group, score: what dpo compares.
    """

    sample: Sample
    old: Tokens
    advantage: Tokens
    entropy: Tokens
    reference: Tensor | None = None
    group: int = 0
    score: float = 0.0


def items_of(batch: Batch, advantages: Advantages) -> list[Item]:
    """Return the trajectories that are trained on."""
    scores = np.zeros(len(batch)) if advantages.scores is None else advantages.scores
    rows = zip(batch.samples, advantages.tokens, advantages.trains, batch.groups, scores.tolist(), strict=True)
    return [
        Item(sample, sample.of_agent(sample.logprobs), tokens, sample.of_agent(sample.entropies), None, group, score)
        for sample, tokens, trains, group, score in rows
        # A conversation whose gym failed at once has no agent token.
        if trains and sample.agent_tokens
    ]


def with_reference(items: Sequence[Item], model: Any, config: AlgorithmConfig) -> list[Item]:
    """Return the items with log-probabilities under the reference model."""
    ids, turns = [item.sample.ids for item in items], [item.sample.turns for item in items]
    with without_adapters(model):
        rows = reference_logprobs(model, ids, turns, config.temperature, config.micro_batch)
    return [replace(item, reference=row) for item, row in zip(items, rows, strict=True)]


def minibatches(items: Sequence[Item], config: AlgorithmConfig, seed: int) -> list[list[int]]:
    """Return the order of the update: every item once per inner epoch, shuffled, in minibatches of nearly equal size."""
    order: list[list[int]] = []
    rng = random.Random(seed)
    units: dict[int, list[int]] = defaultdict(list)
    for number, item in enumerate(items):
        # dpo compares the trajectories of a group, so they stay in one minibatch.
        units[item.group if config.name == "dpo" else number].append(number)
    for _ in range(config.inner_epochs):
        rows = list(units.values())
        rng.shuffle(rows)
        # No minibatch is empty, and their numbers of units differ by one at most.
        count = min(config.minibatches, len(rows))
        for part in (list(chain.from_iterable(rows[k::count])) for k in range(count)):
            # Sorted by length: less padding in each forward pass.
            order.append(sorted(part, key=lambda i: len(items[i].sample.ids)))
    return order


def update_policy(
    model: Any,
    optimizer: torch.optim.Optimizer,
    items: Sequence[Item],
    config: AlgorithmConfig,
    order: Sequence[Sequence[int]],
) -> dict[str, float]:
    """Take one optimiser step per minibatch. Return metrics, averaged over tokens where that applies."""
    sums: defaultdict[str, float] = defaultdict(float)
    norms: list[float] = []
    logprob_gap = 0.0
    threshold = None
    if config.entropy_mask is not None and items:
        # Wang et al. 2025, TARL section 5.2. Over the whole batch, so that all minibatches mask the same tokens.
        threshold = entropy_threshold(np.concatenate([item.entropy for item in items]), config.entropy_mask)
    model.train()
    for number, rows in enumerate(order):
        minibatch = [items[row] for row in rows]
        weights = token_weights([len(item.old) for item in minibatch], config.loss_aggregation)
        if config.name == "dpo":
            minibatch, pair_sums = _by_preference(model, minibatch, weights, config)
            for name, value in pair_sums.items():
                sums[name] += value
        loss_of = partial(_loss, model, minibatch, weights, config, threshold)
        for stats in add_gradients(model, forward_passes([item.sample for item in minibatch], config), loss_of):
            # Before the first step the trained weights are the sampling weights: a gap then is one between decoding and training.
            if number == 0:
                logprob_gap = max(logprob_gap, stats.pop("gap"))
            for name, value in stats.items():
                sums[name] += value
        norms.append(clip_and_step(optimizer, model.parameters(), config.grad_norm))
    model.eval()
    tokens = max(sums.pop("tokens", 0.0), 1.0)
    # `clip_and_step` skips a step whose gradient is not finite.
    finite = [norm for norm in norms if np.isfinite(norm)]
    optional = {"policy/kl_reference/mean": sums["kl_reference"] / tokens} if "kl_reference" in sums else {}
    if pairs := sums["pairs"]:
        optional |= {"dpo/loss/mean": sums["pair_loss"] / pairs, "dpo/margin/mean": sums["margin"] / pairs}
    return {
        "policy/loss/mean": sums["loss"] / max(len(order), 1),
        "policy/entropy/mean": sums["entropy"] / tokens,
        "policy/kl_step/mean": sums["kl_step"] / tokens,
        "policy/clip/share": sums["clipped"] / tokens,
        "policy/grad_norm/mean": float(np.mean(finite)) if finite else 0.0,
        "policy/skipped_updates/count": float(len(norms) - len(finite)),
        "policy/updates/count": float(len(finite)),
        "policy/logprob_gap/max": logprob_gap,
        **optional,
    }


def _by_preference(
    model: Any, items: Sequence[Item], weights: Sequence[float], config: AlgorithmConfig
) -> tuple[list[Item], dict[str, float]]:
    """Return a minibatch with the advantages of dpo under the present weights, and sums over its pairs.

    The loss couples trajectories, its gradient does not: it is the gradient of each gain times a number. So the two of a
    pair need not share a forward pass.
    """
    ids, turns = [item.sample.ids for item in items], [item.sample.turns for item in items]
    logprobs = reference_logprobs(model, ids, turns, config.temperature, config.micro_batch)
    scale_N = 1.0 / np.array([len(item.old) if config.dpo_normalize else 1 for item in items])
    olds = [torch.from_numpy(item.old).to(row.device) for row, item in zip(logprobs, items, strict=True)]
    gain_N = torch.stack([(row - old).sum() for row, old in zip(logprobs, olds, strict=True)]).double().cpu().numpy()
    scores, groups = np.array([item.score for item in items]), [item.group for item in items]
    push_N, sums = preference_gradient(gain_N * scale_N, scores, groups, config.dpo_beta)
    # The loss multiplies each token by its weight, which has no part in dpo's loss.
    values = (push_N * scale_N / np.asarray(weights)).tolist()
    return [replace(item, advantage=np.full_like(item.old, v)) for item, v in zip(items, values, strict=True)], sums


def forward_passes(samples: Sequence[Sample], config: AlgorithmConfig) -> list[list[int]]:
    """Return the rows of each forward pass. Rows of one opening come together if it is computed once."""
    rows, size = list(range(len(samples))), config.micro_batch
    if not config.share_openings:
        return [rows[start : start + size] for start in range(0, len(rows), size)]
    by_opening: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for row in rows:
        by_opening[tuple(samples[row].opening)].append(row)
    return [same[start : start + size] for same in by_opening.values() for start in range(0, len(same), size)]


def surrogate(ratio: Tensor, advantage: Tensor, config: AlgorithmConfig) -> Tensor:
    """Return the objective per token, to be maximised."""
    high = config.clip if config.clip_high is None else config.clip_high
    # The minimum takes away the gain of leaving the clip range, and keeps the loss (PPO, equation 7).
    clipped = torch.minimum(ratio * advantage, ratio.clamp(1 - config.clip, 1 + high) * advantage)
    if config.dual_clip is None:
        return clipped
    # Dual clip (Ye et al. 2020): at a negative advantage the minimum has no lower bound, and a large ratio would outweigh all.
    return torch.where(advantage < 0, torch.maximum(clipped, config.dual_clip * advantage), clipped)


def low_var_kl(other: Tensor, own: Tensor) -> Tensor:
    """Return a per-token estimate of the KL divergence from own to other: never negative, zero where they are equal."""
    # Schulman's estimator k3, exp(d) - d - 1.
    d = (other - own).clamp(-_RATIO_BOUND, _RATIO_BOUND)
    # expm1, not exp(d) - 1: between nearly equal models the rounding of float32 could have either sign.
    return (torch.expm1(d) - d).clamp(min=0)


def _loss(
    model: Any,
    minibatch: Sequence[Item],
    token_weight: Sequence[float],
    config: AlgorithmConfig,
    threshold: float | None,
    rows: Sequence[int],
) -> tuple[Tensor, dict[str, float]]:
    """Return the part of the minibatch's loss that these rows have, and their metrics. token_weight: for each trajectory, the
    weight of one token in the loss.
    """
    items, weights = [minibatch[row] for row in rows], [token_weight[row] for row in rows]
    logprobs, entropy = token_logprobs(
        model,
        [item.sample.ids for item in items],
        [item.sample.turns for item in items],
        config.temperature,
        entropy_grad=config.entropy_coef > 0,
        share=config.share_openings,
    )
    device = logprobs.device
    old = torch.from_numpy(np.concatenate([item.old for item in items])).to(device)
    advantage = torch.from_numpy(np.concatenate([item.advantage for item in items])).to(device)
    weight = torch.from_numpy(np.repeat(np.asarray(weights, np.float32), [len(i.old) for i in items])).to(device)
    # Far beyond the bound a ratio says nothing, and exp overflows.
    ratio = (logprobs - old).clamp(-_RATIO_BOUND, _RATIO_BOUND).exp()
    # dpo's surrogate is the log-probability itself; its advantages are of the present weights (`algorithms/dpo.py`).
    objective = logprobs * advantage if config.name == "dpo" else surrogate(ratio, advantage, config)
    if threshold is not None:
        sampling_entropy = torch.from_numpy(np.concatenate([item.entropy for item in items])).to(device)
        # The weights stay as they are: masked tokens count in the mean, with objective 0.
        objective = objective * (sampling_entropy >= threshold)
    # The optimiser minimises.
    loss = -(objective * weight).sum()
    if config.entropy_coef:
        loss = loss - config.entropy_coef * (entropy * weight).sum()
    kl_reference: dict[str, float] = {}
    if items[0].reference is not None:
        reference = torch.cat([item.reference for item in items if item.reference is not None])
        kl = low_var_kl(reference, logprobs)
        kl_reference = {"kl_reference": float(kl.detach().sum())}
        if config.kl_coef:
            loss = loss + config.kl_coef * (kl * weight).sum()
    with torch.no_grad():  # metrics only
        # Compared with the objective itself, so that dual clip counts too.
        unclipped = surrogate(ratio, advantage, config) == ratio * advantage
        return loss, {
            "loss": float(loss),
            "tokens": float(len(old)),
            "entropy": float(entropy.sum()),
            "kl_step": float(low_var_kl(logprobs, old).sum()),
            **kl_reference,
            "clipped": 0.0 if config.name == "dpo" else float((~unclipped).sum()),
            "gap": float((logprobs - old).abs().max()),
        }


def token_weights(tokens: Sequence[int], aggregation: str) -> list[float]:
    """Return each trajectory's weight of one token in the loss: equal per trajectory, or equal per token. All token
    weights sum to 1.

    tokens: number of agent tokens per trajectory.
    """
    if aggregation == "token_mean":
        return [1.0 / sum(tokens)] * len(tokens)
    # trajectory_mean: a long conversation counts no more than a short one (the papers).
    return [1.0 / (count * len(tokens)) for count in tokens]
