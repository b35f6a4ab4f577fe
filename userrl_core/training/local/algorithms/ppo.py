"""PPO with a critic (Schulman et al. 2017; TARL section 2.2 for the placement of multi-turn rewards).

The critic is a copy of the initial policy's backbone with a scalar head. The setting ``assignment`` places the
rewards of a trajectory:

- ``turn``: each on the last token of the turn that earned it;
- ``trajectory``: their sum on the last token;
- ``group``: the score, normalised within its group as in GRPO, on the last token (TARL section 5.1). With gamma =
  lambda = 1 it is then the return of every token.

Time steps are the agent's tokens; environment tokens are skipped. Advantages are whitened over the batch.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from userrl_core.errors import ConfigError
from userrl_core.rewards import Credits, OptionalTerms, adjusted_rewards
from userrl_core.training.config import AlgorithmConfig
from userrl_core.training.local.batch import Advantages, Batch, Tokens
from userrl_core.training.local.optimizer import clip_and_step
from userrl_core.training.local.samples import Sample, pad


class Critic(nn.Module):
    """A value model: the expected sum of future rewards before each token."""

    def __init__(self, model: Any) -> None:
        """Copy the model's backbone. The new head is initialised with zeros, so all first values are 0."""
        super().__init__()
        self.backbone = copy.deepcopy(model.base_model)
        weight = next(self.backbone.parameters())
        self.head = nn.Linear(model.config.hidden_size, 1, dtype=weight.dtype, device=weight.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, ids: Sequence[Sequence[int]], turns: Sequence[Sequence[int]]) -> Tensor:
        """Return the values before each agent token, trajectories concatenated, [S] in float32."""
        device = self.head.weight.device
        ids_BL, _ = pad(ids, 0, device=device)
        turns_BL, _ = pad(turns, -1, device=device)
        hidden = self.backbone(input_ids=ids_BL, use_cache=False).last_hidden_state
        values: Tensor = self.head(hidden[:, :-1][turns_BL[:, 1:] >= 0])[:, 0].float()
        return values


def ppo(batch: Batch, credits: Credits, critic: Critic, config: AlgorithmConfig, terms: OptionalTerms) -> Advantages:
    """Return advantages from the critic. Only admitted trajectories with at least one turn are trained on.

    credits: credits of the same trajectories; only the assignment ``group`` uses their normalised scores.
    """
    adjusted = [adjusted_rewards(trajectory, terms) for trajectory in batch.trajectories]
    scored = [t.return_sum is not None and None not in r for t, r in zip(batch.trajectories, adjusted, strict=True)]
    trains = np.array(scored, dtype=np.bool_) & np.array([s.agent_tokens > 0 for s in batch.samples], dtype=np.bool_)
    values = _values(critic, batch.samples, config.micro_batch)
    raw, returns = [], []
    for sample, turn_rewards, value, train, z in zip(
        batch.samples, adjusted, values, trains, credits.z.tolist(), strict=True
    ):
        if train:
            rewards = [float(reward or 0.0) for reward in turn_rewards]
            if config.assignment == "group":
                # TARL section 5.1: the normalised score in place of the rewards.
                rewards = [0.0] * (len(rewards) - 1) + [z]
            reward_S = place_rewards(rewards, sample.turn_tokens(len(rewards)), config.assignment)
            advantage, target = gae(reward_S, value, config.gae_gamma, config.gae_lambda)
        else:
            advantage, target = np.zeros_like(value), value
        raw.append(advantage)
        returns.append(target)
    tokens = _whiten(raw, trains)
    turns = [_turn_means(t, s, len(trajectory.turns)) for t, (trajectory, s) in zip(tokens, _pairs(batch), strict=True)]
    return Advantages(tokens, turns, trains, _critic_metrics(values, returns, trains), returns)


def place_rewards(rewards: Sequence[float], turn_tokens: Sequence[int], assignment: str) -> Tokens:
    """Return token rewards [S] from turn rewards [T]. The reward of a turn without tokens is placed on the token before it."""
    reward_S = np.zeros(sum(turn_tokens), dtype=np.float32)
    ends = np.cumsum(turn_tokens) - 1
    if assignment != "turn":
        reward_S[-1] = sum(rewards)
        return reward_S
    for reward, end in zip(rewards, ends.tolist(), strict=True):
        # A first turn without tokens ends at -1.
        reward_S[max(end, 0)] += reward
    return reward_S


def gae(reward_S: Tokens, value_S: Tokens, gamma: float, lam: float) -> tuple[Tokens, Tokens]:
    """Return generalised advantage estimates and the critic's targets, [S] each (Schulman et al. 2016).

    With gamma = lambda = 1 the target is the sum of the rewards from this token on, and the advantage is the target
    minus the critic's value.
    """
    advantage = np.zeros_like(value_S, dtype=np.float64)
    next_advantage, next_value = 0.0, 0.0
    # Backwards, since every estimate builds on the next. After the last token there is no value to bootstrap from.
    for t in range(len(value_S) - 1, -1, -1):
        delta = float(reward_S[t]) + gamma * next_value - float(value_S[t])
        next_advantage = delta + gamma * lam * next_advantage
        advantage[t] = next_advantage
        next_value = float(value_S[t])
    return advantage.astype(np.float32), (advantage + value_S).astype(np.float32)


def update_critic(
    critic: nn.Module | None,
    optimizer: torch.optim.Optimizer | None,
    batch: Batch,
    advantages: Advantages,
    config: AlgorithmConfig,
    order: Sequence[Sequence[int]],
) -> dict[str, float]:
    """Fit the values to the returns. order: the minibatches, as indices into the trajectories that are trained on."""
    if critic is None or optimizer is None or advantages.returns is None:
        raise ConfigError("training.bad_call", "ppo needs a critic and its optimiser. Pass both.")
    rows = np.flatnonzero(advantages.trains).tolist()
    samples, returns = [batch.samples[row] for row in rows], [advantages.returns[row] for row in rows]
    losses, norms = [], []
    for minibatch in order:
        tokens = sum(samples[i].agent_tokens for i in minibatch)
        total = 0.0
        for start in range(0, len(minibatch), config.micro_batch):
            part = minibatch[start : start + config.micro_batch]
            value_S = critic([samples[i].ids for i in part], [samples[i].turns for i in part])
            target_S = torch.from_numpy(np.concatenate([returns[i] for i in part])).to(value_S.device)
            # Over the tokens of the whole minibatch, so that its parts add up to one mean.
            loss = 0.5 * ((value_S - target_S) ** 2).sum() / tokens
            loss.backward()
            total += float(loss.detach())
        norms.append(clip_and_step(optimizer, critic.parameters(), config.grad_norm))
        losses.append(total)
    return {"critic/loss/mean": float(np.mean(losses)), "critic/grad_norm/mean": float(np.mean(norms))}


@torch.no_grad()
def _values(critic: Critic, samples: Sequence[Sample], micro_batch: int) -> list[Tokens]:
    out: list[Tokens] = []
    for start in range(0, len(samples), micro_batch):
        rows = samples[start : start + micro_batch]
        value_S = critic([s.ids for s in rows], [s.turns for s in rows]).cpu().numpy()
        out += np.split(value_S, np.cumsum([s.agent_tokens for s in rows])[:-1])
    return out


def _whiten(rows: Sequence[Tokens], trains: np.ndarray) -> list[Tokens]:
    training_rows = [row for row, train in zip(rows, trains, strict=True) if train]
    if not training_rows:
        return [np.zeros_like(row) for row in rows]
    # Trajectories that are not trained on have no part in mean and deviation.
    flat = np.concatenate(training_rows).astype(np.float64)
    mean, std = flat.mean(), flat.std()
    return [
        ((row - mean) / (std + 1e-8)).astype(np.float32) if train else np.zeros_like(row)
        for row, train in zip(rows, trains, strict=True)
    ]


def _turn_means(tokens: Tokens, sample: Sample, turns: int) -> np.ndarray:
    ends = np.cumsum(sample.turn_tokens(turns))[:-1]
    return np.array(
        [float(part.mean()) if part.size else 0.0 for part in np.split(tokens, ends)][:turns], dtype=np.float64
    )


def _critic_metrics(values: Sequence[Tokens], returns: Sequence[Tokens], trains: np.ndarray) -> dict[str, float]:
    """Return the mean value and the explained variance of the returns: 1 for a perfect critic, 0 for a constant."""
    training_pairs = [(v, r) for v, r, train in zip(values, returns, trains, strict=True) if train]
    if not training_pairs:
        return {}
    value_S, return_S = np.concatenate([v for v, _ in training_pairs]), np.concatenate([r for _, r in training_pairs])
    variance = float(return_S.var())
    explained = 1.0 - float((return_S - value_S).var()) / variance if variance > 0 else 0.0
    return {"critic/value/mean": float(value_S.mean()), "critic/explained_variance/mean": explained}


def _pairs(batch: Batch) -> list[tuple[Any, Sample]]:
    return list(zip(batch.trajectories, batch.samples, strict=True))
