"""The common opening of a forward pass's conversations, computed once (`algorithm.share_openings`).

Conversations of one task begin alike. The opening is computed for one row, and the other rows attend to its keys and
values.

Shapes: B conversations, L tokens of the longest one, P tokens of the common opening, S agent tokens, H hidden width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from transformers import DynamicCache

_SHARE_AT_LEAST = 8
"""Tokens of a common opening from which computing it once pays for the second call."""


def common_opening(model: Any, ids_BL: Tensor, is_agent: Tensor) -> int:
    """Return the number of tokens at the start that all rows have, before the one that predicts an agent token; 0 if few.

    Returns 0, too, for a model that cannot continue from keys and values with gradients through them.
    """
    if len(ids_BL) < 2 or not _can_share(model):
        return 0
    same = (ids_BL[1:] == ids_BL[0]).all(0)[:-1] & ~is_agent.any(0)
    opening = int(same.long().cumprod(0).sum())
    return opening if opening >= _SHARE_AT_LEAST else 0


def head_after(model: Any, ids_BL: Tensor, is_agent: Tensor, opening: int) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """Return the output layer and its inputs that predict the agent's tokens, [S, H], with the first P tokens computed once."""
    cache = DynamicCache(config=model.config)
    model.model(input_ids=ids_BL[:1, :opening], past_key_values=cache, use_cache=True)
    for layer in cache.layers:
        layer.keys = layer.keys.expand(len(ids_BL), -1, -1, -1)
        layer.values = layer.values.expand(len(ids_BL), -1, -1, -1)
    hidden = model.model(input_ids=ids_BL[:, opening:], past_key_values=cache, use_cache=True).last_hidden_state
    return model.lm_head, hidden[:, :-1][is_agent[:, opening:]]


def _can_share(model: Any) -> bool:
    """Return whether a forward pass can continue from keys and values, with gradients through them."""
    plain = model.config.model_type in ("llama", "qwen3") and not getattr(model.config, "use_sliding_window", False)
    return plain and not model.is_gradient_checkpointing
