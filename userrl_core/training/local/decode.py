"""Decoding with a key-value cache that persists over a whole conversation, many conversations in lock-step.

All rows share one column index: new tokens take the next columns of every row. Columns that are empty for a row (left
padding, a reply that has already ended) are masked out. Positions count a row's real tokens only. Rows are removed
from the batch when their conversation ends. No token is fed twice.

Over many turns the columns add up to the longest piece of each turn, far more than the tokens of any row. A small
cache is left that way and doubles. A cache beyond `DOUBLES_BELOW` is packed: each row's tokens move together, to the
right, and the cache grows by `COLUMNS_AHEAD` columns beyond the longest row.

`BlockDecoder` runs the blocks itself and is the fast path. `GenericDecoder` uses any model's own forward and cache.
Both return the logits after the last fed column, in float32.

Shapes: B rows, n new columns, C columns so far, H query heads, K key heads, D head width.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch
import torch.nn.functional as F  # noqa: N812  the customary name
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from userrl_core.training.local.blocks import blocks, has_blocks, head_width, norm
from userrl_core.training.local.samples import LARGE_VOCABULARY
from userrl_core.training.one_gpu import COLUMNS_AHEAD

DOUBLES_BELOW = 2**30
"""Maximum size, in bytes of keys and values, at which a cache still doubles without packing. Laptop runs stay below it."""


class Decoder(Protocol):
    """A batch of conversations being fed to a model."""

    def feed(self, ids_Bn: Tensor, real_Bn: Tensor) -> Tensor:
        """Append columns. Return logits [B, vocabulary] after the last one. real_Bn: False where a row lacks a token.

        The logits of a row whose last column is not real are undefined.
        """
        ...

    def keep(self, rows: Tensor) -> None:
        """Keep only these rows, in this order."""
        ...


def make_decoder(model: Any, rows: int, columns: int) -> Decoder:
    """Return the fastest decoder for this model. columns: the initial capacity; it grows as needed."""
    return BlockDecoder(model, rows, columns) if has_blocks(model) else GenericDecoder(model, rows)


def column_bytes(model: Any) -> int:
    """Return the bytes of one token's keys and values in all layers."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * head_width(config) * model.dtype.itemsize)


class BlockDecoder:
    """The blocks of Qwen and Llama over a preallocated cache."""

    def __init__(self, model: Any, rows: int, columns: int) -> None:
        config = model.config
        weight = model.model.embed_tokens.weight
        self._model = model
        self._heads = config.num_attention_heads
        self._key_heads = config.num_key_value_heads
        self._width = head_width(config)
        self._used = 0
        self._lengths_B = torch.zeros(rows, dtype=torch.long, device=weight.device)
        self._real_BC = torch.zeros(rows, columns, dtype=torch.bool, device=weight.device)
        self._column_bytes = column_bytes(model)
        # A CPU keeps the kernel, and so the last bits, of earlier results.
        self._folds = weight.device.type != "cpu"
        # Nothing is computed for rows that have ended, and for padding. Results of small Qwen3 models keep their last bits.
        self._skips = weight.device.type == "cpu" and config.vocab_size > LARGE_VOCABULARY
        # A tensor per layer: what replaces one of them frees it at once.
        shape = (rows, self._key_heads, columns, self._width)
        layers = range(config.num_hidden_layers)
        self._keys = [torch.zeros(shape, dtype=weight.dtype, device=weight.device) for _ in layers]
        self._values = [torch.zeros(shape, dtype=weight.dtype, device=weight.device) for _ in layers]

    @property
    def capacity(self) -> int:
        """Return the number of columns the cache has memory for."""
        return self._real_BC.shape[1]

    @torch.inference_mode()
    def feed(self, ids_Bn: Tensor, real_Bn: Tensor) -> Tensor:
        """See `Decoder.feed`."""
        B, n = ids_Bn.shape
        self._grow(n)
        start, end = self._used, self._used + n
        self._real_BC[:, start:end] = real_Bn
        positions_Bn = (self._lengths_B[:, None] + real_Bn.long().cumsum(1) - 1).clamp_min(0)
        self._lengths_B = self._lengths_B + real_Bn.sum(1)
        self._used = end
        skips = self._skips and not bool(real_Bn.all())
        at_T = real_Bn.flatten().nonzero()[:, 0] if skips else torch.arange(B * n, device=real_Bn.device)
        attend = partial(self._attend, self._mask(start, end), start, end, at_T if skips else None)
        x_TW = blocks(self._model, ids_Bn.flatten()[at_T], positions_Bn.flatten()[at_T], attend)
        last_T = at_T % n == n - 1
        states_bW = norm(x_TW[last_T], self._model.model.norm, self._model.config.rms_norm_eps)
        logits_bV: Tensor = self._model.lm_head(states_bW).float()
        if len(logits_bV) == B:
            return logits_bV
        return logits_bV.new_zeros(B, logits_bV.shape[1]).index_copy(0, at_T[last_T] // n, logits_bV)

    def keep(self, rows: Tensor) -> None:
        """See `Decoder.keep`."""
        self._replace(lambda cached: cached[rows])
        self._real_BC = self._real_BC[rows]
        self._lengths_B = self._lengths_B[rows]

    def _attend(
        self, mask: Tensor, start: int, end: int, at_T: Tensor | None, layer: int, q: Tensor, k: Tensor, v: Tensor
    ) -> Tensor:
        """Enter the keys and values of the new columns, and attend to all. at_T: places of the tokens among B * n; None: all."""
        B, n, D = len(mask), end - start, self._width
        rows: slice | Tensor = slice(None)
        if at_T is not None and n == 1 and 2 * len(at_T) <= B:
            # Few rows go on: copies of their keys cost less than attention of all rows.
            rows, mask, B, at_T = at_T, mask[at_T], len(at_T), None
        if at_T is not None:
            q, k, v = (x.new_zeros(B * n, *x.shape[1:]).index_copy_(0, at_T, x) for x in (q, k, v))
        q = q.view(B, n, self._heads, D).transpose(1, 2)
        self._keys[layer][rows, :, start:end] = k.view(B, n, self._key_heads, D).transpose(1, 2)
        self._values[layer][rows, :, start:end] = v.view(B, n, self._key_heads, D).transpose(1, 2)
        keys, values = self._keys[layer][rows, :, :end], self._values[layer][rows, :, :end]
        shared = self._heads // self._key_heads
        if n == 1:
            # Query heads that share a key head become its queries: no key is copied, with one product per key head.
            out = F.scaled_dot_product_attention(
                q.view(B, self._key_heads, shared, D), keys, values, attn_mask=mask.expand(B, 1, shared, end)
            ).reshape(B, self._heads * D)
        elif self._folds:
            # As above, which copies the mask instead of the keys. Not enable_gqa: beside a mask only the kernel that holds all
            # scores has it.
            out = F.scaled_dot_product_attention(
                q.reshape(B, self._key_heads, shared * n, D), keys, values, attn_mask=mask.repeat(1, 1, shared, 1)
            )
            out = out.reshape(B, self._heads, n, D).transpose(1, 2).reshape(B * n, self._heads * D)
        else:
            out = F.scaled_dot_product_attention(
                q, keys.repeat_interleave(shared, 1), values.repeat_interleave(shared, 1), attn_mask=mask
            )
            out = out.transpose(1, 2).reshape(B * n, self._heads * D)
        return out if at_T is None else out[at_T]

    def _mask(self, start: int, end: int) -> Tensor:
        """Return what is added to the scores of the columns that a new column attends to, [B, 1, n, C]: 0 or -inf.

        These are the real columns up to itself, and itself, so that no row is empty.
        """
        columns = torch.arange(end, device=self._real_BC.device)
        new_columns = columns[start:, None]
        real_before = self._real_BC[:, None, None, :end] & (columns <= new_columns)
        # Once a step: from a mask of booleans torch makes this in every layer.
        zeros = torch.zeros(real_before.shape, dtype=self._model.dtype, device=self._real_BC.device)
        return zeros.masked_fill(~(real_before | (columns == new_columns)), -torch.inf)

    def _grow(self, n: int) -> None:
        """Make room for n columns if needed. A small cache doubles; a large one is packed and then grows to the needed size."""
        if self._used + n <= self.capacity:
            return
        added = max(n, self.capacity)
        if self._column_bytes * len(self._lengths_B) * (self.capacity + added) > DOUBLES_BELOW:
            self._pack()
            added = max(self._used + n + COLUMNS_AHEAD - self.capacity, 0)
        self._real_BC = F.pad(self._real_BC, (0, added))
        self._replace(lambda cached: F.pad(cached, (0, 0, 0, added)))

    def _pack(self) -> None:
        """Move each row's tokens together, so that the used columns equal the length of the longest row."""
        columns_BC = _real_columns(self._real_BC[:, : self._used])
        self._used = columns_BC.shape[1]
        real_BC = self._real_BC.gather(1, columns_BC)
        self._real_BC.zero_()
        self._real_BC[:, : self._used] = real_BC
        for cached in (*self._keys, *self._values):
            cached[:, :, : self._used] = _take(cached, columns_BC)

    def _replace(self, change: Callable[[Tensor], Tensor]) -> None:
        """Replace the keys and values one layer at a time, so that only one layer exists twice."""
        for cache in (self._keys, self._values):
            for index, cached in enumerate(cache):
                cache[index] = change(cached)


class GenericDecoder:
    """Any causal model through its own forward and Hugging Face's cache."""

    def __init__(self, model: Any, rows: int) -> None:
        self._model = model
        self._cache = DynamicCache(config=model.config)
        self._column_bytes = column_bytes(model)
        device = next(model.parameters()).device
        self._real_BC = torch.zeros(rows, 0, dtype=torch.long, device=device)

    @torch.inference_mode()
    def feed(self, ids_Bn: Tensor, real_Bn: Tensor) -> Tensor:
        """See `Decoder.feed`."""
        self._pack(ids_Bn.shape[1])
        before_B = self._real_BC.sum(1, keepdim=True)
        self._real_BC = torch.cat([self._real_BC, real_Bn.long()], dim=1)
        out = self._model(
            input_ids=ids_Bn,
            attention_mask=self._real_BC,
            position_ids=(before_B + real_Bn.long().cumsum(1) - 1).clamp_min(0),
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: Tensor = out.logits[:, -1].float()
        return logits

    def keep(self, rows: Tensor) -> None:
        """See `Decoder.keep`."""
        self._cache.batch_select_indices(rows)
        self._real_BC = self._real_BC[rows]

    def _pack(self, n: int) -> None:
        """Pack as in `BlockDecoder._pack` when the cache is large and packing frees at least `COLUMNS_AHEAD` columns.

        Skipped where some layer has another kind of cache (a sliding window, a state).
        """
        rows, columns = self._real_BC.shape
        layers = self._cache.layers
        large = self._column_bytes * rows * (columns + n) > DOUBLES_BELOW
        if not large or not all(type(layer) is DynamicLayer for layer in layers):
            return
        if int(self._real_BC.sum(1).max()) + COLUMNS_AHEAD > columns:
            return
        columns_BC = _real_columns(self._real_BC)
        self._real_BC = self._real_BC.gather(1, columns_BC)
        for layer in layers:
            layer.keys, layer.values = _take(layer.keys, columns_BC), _take(layer.values, columns_BC)


def _real_columns(real_BC: Tensor) -> Tensor:
    """Return each row's real columns, in order and right-aligned, as many as the longest row has. Shorter rows are
    filled up on the left with other columns.
    """
    longest = int(real_BC.sum(1).max())
    return real_BC.to(torch.uint8).argsort(dim=1, stable=True)[:, real_BC.shape[1] - longest :]


def _take(cached: Tensor, columns_BC: Tensor) -> Tensor:
    """Return the keys or values of those columns; cached: [B, K, C, D]."""
    return cached.gather(2, columns_BC[:, None, :, None].expand(-1, cached.shape[1], -1, cached.shape[3]))
