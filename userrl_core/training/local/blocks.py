"""The blocks of Llama and Qwen over single tokens: all but attention is computed for real tokens alone, not for padding.

Decoding and the update of large models both use them.

Shapes: T tokens, W hidden width, H query heads, K key heads, D head width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  the customary name
from torch import Tensor

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Attention of a layer, by its index: queries [T, H, D], keys and values [T, K, D] to outputs [T, H * D]."""


def has_blocks(model: Any) -> bool:
    """Return whether the model is a Llama or Qwen whose tokens attend to all earlier ones."""
    return model.config.model_type in ("llama", "qwen2", "qwen3") and not getattr(
        model.config, "use_sliding_window", False
    )


def head_width(config: Any) -> int:
    """Return D."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def blocks(model: Any, ids_T: Tensor, positions_T: Tensor, attend: Attend) -> Tensor:
    """Return the states after the last layer, before the last norm, [T, W]."""
    backbone, eps, width = model.model, model.config.rms_norm_eps, head_width(model.config)
    x = F.embedding(ids_T, backbone.embed_tokens.weight)
    # The model's own rotary module, which includes any scaling of its config.
    cos, sin = (part[0, :, None] for part in backbone.rotary_emb(x, positions_T[None]))
    for index, layer in enumerate(backbone.layers):
        attention, h = layer.self_attn, norm(x, layer.input_layernorm, eps)
        q = attention.q_proj(h).view(len(h), -1, width)
        k = attention.k_proj(h).view(len(h), -1, width)
        v = attention.v_proj(h).view(len(h), -1, width)
        if hasattr(attention, "q_norm"):
            q, k = norm(q, attention.q_norm, eps), norm(k, attention.k_norm, eps)
        x = x + attention.o_proj(attend(index, _rotate(q, cos, sin), _rotate(k, cos, sin), v))
        x = x + layer.mlp(norm(x, layer.post_attention_layernorm, eps))
    return x


def norm(x: Tensor, layer: Any, eps: float) -> Tensor:
    """Return x after a norm of the model."""
    if x.dtype == torch.float32:
        return F.rms_norm(x, (x.shape[-1],), layer.weight, eps)
    # In 16 bits the model rounds before it applies the weight; rollout and update must round alike.
    normed = F.rms_norm(x.float(), (x.shape[-1],), None, eps).to(x.dtype)
    scaled: Tensor = layer.weight * normed
    return scaled


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], dim=-1) * sin
