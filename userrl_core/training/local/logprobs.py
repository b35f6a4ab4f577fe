"""Log-probabilities of given tokens, in one forward pass over whole conversations.

Conversations are padded on the right. Under a causal mask no token attends to the padding, so no attention mask is
needed and torch can use its flash kernels. For large models on a CPU only attention is padded (`packing`). The output
layer is applied to the agent's tokens only, and everything after it is float32.

With a real vocabulary the output layer takes the most memory of the update, some 20 bytes per token and vocabulary
entry. It is therefore computed in chunks of tokens, which the backward pass recomputes one by one. A micro-batch of
the small models made here is one chunk.

Shapes: B conversations, L tokens of the longest one, S agent tokens, s agent tokens of a chunk, H hidden width, V
vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from userrl_core.training.local.packing import can_pack, packed_states
from userrl_core.training.local.samples import pad
from userrl_core.training.one_gpu import HEAD_ENTRIES

_PLAIN_HEAD = ("qwen2", "qwen3", "llama", "mistral")
"""Architectures whose logits are the plain output of the last layer (no soft cap, no scaling)."""


def token_logprobs(
    model: Any,
    ids: Sequence[Sequence[int]],
    turns: Sequence[Sequence[int]],
    temperature: float = 1.0,
    *,
    entropy_grad: bool = False,
    entries: int = HEAD_ENTRIES,
    share: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities of the agent's tokens, with gradients, and entropies of their distributions, both [S] in nats.

    entropy_grad: let the entropies carry gradients too.
    entries: the maximum of tokens times vocabulary held at once, for architectures with a plain output layer. share: compute
    what conversations begin with alike once, if the model can.
    """
    device = next(model.parameters()).device
    ids_BL, _ = pad(ids, 0, device=device)
    turns_BL, _ = pad(turns, -1, device=device)
    # Logits at one position predict the next token, so the agent's tokens are those of the positions before.
    is_agent = turns_BL[:, 1:] >= 0
    tokens_S = ids_BL[:, 1:][is_agent]
    if can_pack(model, share):
        states_TW, index_BL = packed_states(model, ids)
        head, rows = model.lm_head, states_TW.index_select(0, index_BL[:, :-1][is_agent])
    else:
        head, rows = _head(model, ids_BL, is_agent)
    of_chunk = partial(_of_chunk, head, temperature, entropy_grad)
    size = max(entries // model.config.vocab_size, 1)
    if len(tokens_S) <= size:
        return of_chunk(rows, tokens_S)
    # Each chunk's logits are computed again in the backward pass: tokens times vocabulary are never held at once.
    kept = partial(checkpoint, of_chunk, use_reentrant=False, preserve_rng_state=False)
    chunks = [kept(*chunk) for chunk in zip(torch.split(rows, size), torch.split(tokens_S, size), strict=True)]
    logprobs, entropies = zip(*chunks, strict=True)
    return torch.cat(logprobs), torch.cat(entropies)


@torch.no_grad()
def reference_logprobs(
    model: Any, ids: Sequence[Sequence[int]], turns: Sequence[Sequence[int]], temperature: float, micro_batch: int
) -> list[Tensor]:
    """Return log-probabilities under a frozen model, one tensor per conversation."""
    out: list[Tensor] = []
    for start in range(0, len(ids), micro_batch):
        span = slice(start, start + micro_batch)
        picked, _ = token_logprobs(model, ids[span], turns[span], temperature)
        out += torch.split(picked, [sum(turn >= 0 for turn in row) for row in turns[span]])
    return out


def _head(model: Any, ids_BL: Tensor, is_agent: Tensor) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """Return the output layer and its inputs that predict the agent's tokens, [S, H]; is_agent: [B, L-1].

    For an architecture whose output layer is not plain, the second value holds the logits of all tokens, [S, V].
    """
    if model.config.model_type in _PLAIN_HEAD:
        hidden = model.model(input_ids=ids_BL, use_cache=False).last_hidden_state
        return model.lm_head, hidden[:, :-1][is_agent]
    logits = model(input_ids=ids_BL, use_cache=False).logits
    return torch.nn.Identity(), logits[:, :-1][is_agent]


def _of_chunk(
    head: Callable[[Tensor], Tensor], temperature: float, entropy_grad: bool, rows: Tensor, tokens_s: Tensor
) -> tuple[Tensor, Tensor]:
    logits_sV = head(rows).float()  # bfloat16 has too few digits for a softmax over the vocabulary
    if temperature != 1.0:
        # As in sampling: the importance ratio compares the same distribution.
        logits_sV = logits_sV / temperature
    log_sV = torch.log_softmax(logits_sV, dim=-1)
    picked = log_sV.gather(1, tokens_s[:, None])[:, 0]
    # Without gradients nothing of vocabulary size is kept for the entropies.
    with torch.set_grad_enabled(entropy_grad and torch.is_grad_enabled()):
        entropy = -(log_sV.exp() * log_sV).sum(-1)
    return picked, entropy
