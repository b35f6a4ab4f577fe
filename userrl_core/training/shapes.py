"""The shape of a model, for estimates of memory and time. Published shapes are listed here in case the network is not
available.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from userrl_core.errors import ConfigError
from userrl_core.training.config import LoraSettings, Projection


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes that determine memory. tied: input and output embeddings are one matrix."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocab: int
    tied: bool

    @property
    def layer_parameters(self) -> int:
        """Return the parameters of one transformer block: attention, gated feed-forward, norms."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return attention + 3 * self.hidden * self.mlp + 2 * self.hidden

    @property
    def parameters(self) -> int:
        """Return the parameters of the whole model."""
        return self.layers * self.layer_parameters + self.vocab * self.hidden * (1 if self.tied else 2) + self.hidden

    def adapters(self, lora: LoraSettings | None) -> int:
        """Return the parameters of LoRA adapters: the rank times in + out of each adapted layer."""
        if lora is None:
            return 0
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        ends: dict[Projection, int] = {
            "q_proj": self.hidden + query,
            "k_proj": self.hidden + key,
            "v_proj": self.hidden + key,
            "o_proj": query + self.hidden,
            "gate_proj": self.hidden + self.mlp,
            "up_proj": self.hidden + self.mlp,
            "down_proj": self.mlp + self.hidden,
        }
        adapted = ends if isinstance(lora.targets, str) else set(lora.targets)
        return lora.rank * self.layers * sum(ends[name] for name in adapted)

    @property
    def kv_bytes(self) -> int:
        """Return the bytes of one token in the key-value cache, bfloat16."""
        return 4 * self.layers * self.kv_heads * self.head_dim


SHAPES = {
    "Qwen3-0.6B": ModelShape(1024, 28, 16, 8, 128, 3072, 151936, True),
    "Qwen3-1.7B": ModelShape(2048, 28, 16, 8, 128, 6144, 151936, True),
    "Qwen3-4B": ModelShape(2560, 36, 32, 8, 128, 9728, 151936, True),
    "Qwen3-8B": ModelShape(4096, 36, 32, 8, 128, 12288, 151936, False),
    "Qwen3-14B": ModelShape(5120, 40, 40, 8, 128, 17408, 151936, False),
    "Qwen3-32B": ModelShape(5120, 64, 64, 8, 128, 25600, 151936, False),
    "smollm2-135m": ModelShape(576, 30, 9, 3, 64, 1536, 49152, True),
    "qwen2.5-coder-0.5b": ModelShape(896, 24, 14, 2, 64, 4864, 151936, True),
    "Qwen2.5-3B": ModelShape(2048, 36, 16, 2, 128, 11008, 151936, True),
    "Qwen2.5-7B": ModelShape(3584, 28, 28, 4, 128, 18944, 152064, False),
}
"""Shapes from the models' published config.json."""


def shape_of(model: str | Path) -> ModelShape:
    """Return the shape of a model by folder (its config.json) or published name. Raises ConfigError when it is not known."""
    config = Path(model) / "config.json"
    if config.is_file():
        try:
            return _read_shape(json.loads(config.read_text()))
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(
                "checkpoint.damaged", f"{config} cannot be read ({str(error)[:100]}). Use another checkpoint."
            ) from error
    name = str(model).rsplit("/", 1)[-1]
    for known, shape in SHAPES.items():
        if name == known or name.startswith(f"{known}-"):
            return shape
    raise ConfigError(
        "model.unsupported", f"The shape of model '{model}' is not known. Give a folder with its config.json."
    )


def _read_shape(config: dict[str, Any]) -> ModelShape:
    try:
        heads = int(config["num_attention_heads"])
        return ModelShape(
            hidden=int(config["hidden_size"]),
            layers=int(config["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads", heads)),
            head_dim=int(config.get("head_dim") or config["hidden_size"] // heads),
            mlp=int(config["intermediate_size"]),
            vocab=int(config["vocab_size"]),
            tied=bool(config.get("tie_word_embeddings", False)),
        )
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise ConfigError(
            "model.unsupported", f"This config.json is not of a decoder that can be trained here: {error!r}."
        ) from error
