"""Attention of 16-bit models on a CPU: torch's kernel, in float32 where that is faster.

The backward pass of the bfloat16 kernel is slow. On one thread with AMX, attention of 16 conversations of 100 tokens and its
backward pass take 44 ms in bfloat16 and 21 ms in float32 with both casts (`python -m lab.benchmarks.language_model`). Longer
conversations gain less. Without gradients bfloat16 is always faster.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

FLOAT32_WHERE_SHORT = "sdpa_float32_where_short"
"""The name of this attention among transformers' implementations."""
LONGEST = 200
"""Maximum keys for which attention with gradients is computed in float32. At 250 a trial gained nothing."""


def format_of(query: Tensor, keys: int) -> torch.dtype:
    """Return the number format in which attention to this many keys is computed."""
    widened = torch.is_grad_enabled() and query.device.type == "cpu" and keys <= LONGEST
    return torch.float32 if widened else query.dtype


def attend(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Return the output of attention, [B, L, H, D], in the query's number format. The form is transformers'."""
    if format_of(query, key.shape[2]) == query.dtype:
        output: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
        return output
    if attention_mask is not None and attention_mask.is_floating_point():
        attention_mask = attention_mask.float()
    wide, _ = sdpa_attention_forward(module, query.float(), key.float(), value.float(), attention_mask, **kwargs)
    return wide.to(query.dtype), None


AttentionInterface.register(FLOAT32_WHERE_SHORT, attend)
AttentionMaskInterface.register(FLOAT32_WHERE_SHORT, sdpa_mask)
