"""Log-probabilities of given tokens, in one forward pass over whole conversations.

Conversations are padded on the right: under a causal mask no token attends to the padding, so that no attention mask is
needed. The output layer is applied to the agent's tokens only; everything after it is float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  the customary name
from torch import Tensor

from userrl_core.training.local.samples import pad

_PLAIN_HEAD = ("qwen2", "qwen3", "llama", "mistral")
"""Architectures whose logits are the plain output of the last layer (no soft cap, no scaling)."""


def token_distributions(
    model: Any, ids: Sequence[Sequence[int]], turns: Sequence[Sequence[int]], temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Log-distributions of the agent's tokens, [S, vocabulary], and the tokens, [S]."""
    device = next(model.parameters()).device
    ids_BL, _ = pad(ids, 0, device=device)
    turns_BL, _ = pad(turns, -1, device=device)
    is_agent = turns_BL[:, 1:] >= 0
    logits = _logits(model, ids_BL, is_agent).float()
    if temperature != 1.0:
        logits = logits / temperature
    return F.log_softmax(logits, dim=-1), ids_BL[:, 1:][is_agent]


def token_logprobs(
    model: Any,
    ids: Sequence[Sequence[int]],
    turns: Sequence[Sequence[int]],
    temperature: float = 1.0,
    *,
    entropy_grad: bool = False,
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the agent's tokens, with gradients, and entropies of their distributions, both [S] in nats.

    entropy_grad: the entropies carry gradients too; without, nothing of the size of the vocabulary is kept for them.
    """
    log_SV, tokens_S = token_distributions(model, ids, turns, temperature)
    picked = log_SV.gather(1, tokens_S[:, None])[:, 0]
    with torch.set_grad_enabled(entropy_grad and torch.is_grad_enabled()):
        entropy = -(log_SV.exp() * log_SV).sum(-1)
    return picked, entropy


@torch.no_grad()
def reference_logprobs(
    model: Any, ids: Sequence[Sequence[int]], turns: Sequence[Sequence[int]], temperature: float, micro_batch: int
) -> list[Tensor]:
    """Log-probabilities under a frozen model, one tensor per conversation."""
    out: list[Tensor] = []
    for start in range(0, len(ids), micro_batch):
        span = slice(start, start + micro_batch)
        picked, _ = token_logprobs(model, ids[span], turns[span], temperature)
        out += torch.split(picked, [sum(turn >= 0 for turn in row) for row in turns[span]])
    return out


def _logits(model: Any, ids_BL: Tensor, is_agent: Tensor) -> Tensor:
    """Logits that predict the agent's tokens, [S, vocabulary]; is_agent: [B, L-1]."""
    if model.config.model_type in _PLAIN_HEAD:
        hidden = model.model(input_ids=ids_BL, use_cache=False).last_hidden_state
        head: Tensor = model.lm_head(hidden[:, :-1][is_agent])
        return head
    logits: Tensor = model(input_ids=ids_BL, use_cache=False).logits
    return logits[:, :-1][is_agent]
