"""The model: a small Qwen3 from scratch, or any causal Hugging Face checkpoint in safetensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.utils.logging import disable_progress_bar

from userrl_core.errors import CheckpointError
from userrl_core.training.config import ModelConfig

disable_progress_bar()  # a trainer's output shows its steps only

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def build_model(config: ModelConfig, tokenizer: Any, seed: int, device: str = "cpu") -> Any:
    """A Qwen3 of the configured shape with random weights, the same for the same seed; torch's global generator is unchanged.

    Embeddings are tied: otherwise half of a model this small would be its vocabulary.
    """
    shape = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden_size,
        intermediate_size=config.mlp,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.head_dim,
        max_position_embeddings=config.max_context,
        tie_word_embeddings=True,
        initializer_range=config.initializer_range,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        attn_implementation="sdpa",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(shape)
    return _prepare(model.to(dtype=DTYPES[config.dtype]), config, device)


def load_model(path: str | Path, config: ModelConfig, device: str = "cpu") -> Any:
    """A checkpoint's model. Only safetensors are read, and no code of the checkpoint is executed.

    Raises CheckpointError where there is no such model.
    """
    try:
        model = AutoModelForCausalLM.from_pretrained(
            str(path),
            dtype=DTYPES[config.dtype],
            use_safetensors=True,
            trust_remote_code=False,
            attn_implementation="sdpa",
        )
    except (OSError, ValueError) as error:
        raise CheckpointError(f"No model can be loaded from {path}: {str(error).splitlines()[0][:200]}") from error
    return _prepare(model, config, device)


def card_gb(device: str) -> float | None:
    """Memory of the GPU that torch computes on; None on a CPU."""
    return torch.cuda.get_device_properties(device).total_memory / 1e9 if device.startswith("cuda") else None


def context_limit(model: Any) -> int:
    """Maximum tokens of a conversation."""
    return int(getattr(model.config, "max_position_embeddings", 0) or 2**31)


def parameters(model: Any) -> int:
    """Number of parameters; tied ones are counted once."""
    return sum(p.numel() for p in model.parameters())


def _prepare(model: Any, config: ModelConfig, device: str) -> Any:
    """Move the model to the device, into memory allocated by torch: weights mapped from a file are aligned differently,
    which may change the last bits of a product."""
    model.to(device)
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    model.eval()
    return model
