"""A forward pass over conversations without padding, in which what conversations have in common is computed once.

The state of a token depends on the tokens before it alone. So conversations that begin alike share the states of their
beginning: those of one task its opening, and often the first turns. Only attention sees conversations as padded rows.

Shapes: B conversations, L tokens of the longest one, T different tokens with different beginnings, H query heads, K key
heads, D head width, W hidden width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  the customary name
from torch import Tensor

from userrl_core.training.local.attention import format_of
from userrl_core.training.local.blocks import blocks, has_blocks, norm
from userrl_core.training.local.samples import LARGE_VOCABULARY, pad


def can_pack(model: Any, share: bool) -> bool:
    """Return whether `packed_states` is used. share: conversations have common beginnings (`algorithm.share_openings`).

    Without them only large models on a CPU gain, and results of the small models made here keep their last bits.
    """
    large = model.config.vocab_size > LARGE_VOCABULARY and model.device.type == "cpu"
    return (share or large) and has_blocks(model) and not model.is_gradient_checkpointing


def packed_states(model: Any, ids: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Return the states after the last layer and norm, [T, W], and the index of each token's state, [B, L]; 0 for padding."""
    longest = max(map(len, ids))
    indices: dict[tuple[int, int], int] = {}
    first_places: list[int] = []
    rows: list[list[int]] = []
    for number, conversation in enumerate(ids):
        row: list[int] = []
        index = -1
        for position, token in enumerate(conversation):
            # A token after the same beginning has the same index.
            index = indices.setdefault((index, token), len(first_places))
            if index == len(first_places):
                first_places.append(number * longest + position)
            row.append(index)
        rows.append(row)
    index_BL, _ = pad(rows, 0, device=model.device)
    ids_T = torch.tensor([token for _, token in indices], device=model.device)
    first_T = torch.tensor(first_places, device=model.device)

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        number_format = format_of(q, longest)
        # Not x[index_BL]: with several threads its gradient is added up in an order that changes from run to run.
        q, k, v = (
            x.to(number_format).index_select(0, index_BL.flatten()).view(*index_BL.shape, *x.shape[1:]).transpose(1, 2)
            for x in (q, k, v)
        )
        shared = q.shape[1] // k.shape[1]
        # Keys are repeated: on a CPU torch's flash kernel needs as many as queries. Padding comes last, so no token sees it.
        out = F.scaled_dot_product_attention(
            q, k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1), is_causal=True
        )
        return out.transpose(1, 2).flatten(0, 1).flatten(1).index_select(0, first_T).to(model.dtype)

    states_TW = blocks(model, ids_T, first_T % longest, attend)
    return norm(states_TW, model.model.norm, model.config.rms_norm_eps), index_BL
