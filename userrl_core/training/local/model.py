"""Model loading: a small Qwen3 from scratch, or any causal Hugging Face checkpoint in safetensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

from userrl_core.errors import CheckpointError
from userrl_core.training.chat_template import refuse_endless
from userrl_core.training.config import ModelConfig
from userrl_core.training.local.attention import FLOAT32_WHERE_SHORT
from userrl_core.training.local.text.tokenizer import OURS
from userrl_core.training.model_files import check_attention, check_files, local_folder, template_of

disable_progress_bar()  # a trainer's output shows its steps only
set_verbosity_error()  # what is wrong with a checkpoint is said in one sentence, not in a table beside it

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def build_model(config: ModelConfig, tokenizer: Any, seed: int, device: str = "cpu") -> Any:
    """Return a Qwen3 of the configured shape with random weights. The same seed gives the same weights; torch's
    global generator is unchanged.

    Embeddings are tied: otherwise the vocabulary would be half of a model this small.
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
    """Return a checkpoint's model. Only safetensors are read, and no code of the checkpoint is executed.

    Raises CheckpointError where the model is missing, its weights are incomplete, more than it reads, or do not match their
    stored hashes, or its weights or logits are not finite.
    """
    try:
        folder = local_folder(path)
        if folder is not None:
            check_files(folder)
        shape = AutoConfig.from_pretrained(str(path), trust_remote_code=False)
        shape._attn_implementation = "sdpa"  # one that config.json names would win over the argument
        model, report = AutoModelForCausalLM.from_pretrained(
            str(path),
            config=shape,
            dtype=DTYPES[config.dtype],
            use_safetensors=True,
            trust_remote_code=False,
            attn_implementation="sdpa",
            output_loading_info=True,
        )
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError("checkpoint.missing", f"No model can be loaded from {path}: {_reason(error)}") from error
    check_names(report, str(path))
    check_finite(model.state_dict(), str(path))
    _prepare(model, config, device)
    _check_logits(model, str(path))
    return model


def check_elsewhere(path: str | Path) -> None:
    """Raise CheckpointError for a model that another process (verl, a rollout engine) must not load.

    Its files must be complete, its weights finite and in safetensors, and its chat template must end. Its config must
    not name an attention implementation of the checkpoint. A hub name that was not fetched yet is not checked.
    Tensors are read one by one, so no model is too large for this process.
    """
    folder = local_folder(path)
    if folder is None:
        return
    check_files(folder)
    check_attention(folder)
    template = template_of(folder)
    if template is not None and template not in OURS:
        refuse_endless(template, str(folder))
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118  it is no mapping
                check_finite({name: tensors.get_tensor(name)}, str(file))


def check_names(report: Mapping[str, Any], where: str) -> None:
    """Raise CheckpointError for weights of another model than that of the config. report: loading information of transformers."""
    if report["missing_keys"]:
        raise CheckpointError(
            "checkpoint.damaged",
            f"The weights in {where} lack {min(report['missing_keys'])}, which its config.json needs. Use another checkpoint.",
        )
    if report["unexpected_keys"]:
        raise CheckpointError(
            "checkpoint.damaged",
            f"The weights in {where} have {min(report['unexpected_keys'])}, which the model of its config.json does not read. "
            "Merge adapters into the weights, or use the config.json that belongs to them.",
        )


def check_finite(tensors: Mapping[str, Tensor], where: str) -> None:
    """Raise CheckpointError, naming the first tensor with a value that is not finite."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise CheckpointError(
                "checkpoint.not_finite",
                f"The weights in {where} are not all finite numbers ({name}), so training diverged there. Use "
                "an older checkpoint.",
            )


def logits_not_finite(where: str) -> CheckpointError:
    """Return the error of a model that gives logits that are no numbers. where: its place or name."""
    return CheckpointError(
        "checkpoint.not_finite",
        f"The logits of {where} are not finite numbers, although its weights are. Correct its config.json (such as "
        "rms_norm_eps and rope_theta), or use another checkpoint.",
    )


@torch.no_grad()
def _check_logits(model: Any, where: str) -> None:
    """Raise CheckpointError for a model whose logits after a few tokens are no numbers, as a bad number in its config makes
    them.
    """
    ids = torch.arange(min(4, model.config.get_text_config().vocab_size), device=next(model.parameters()).device)
    logits = model(input_ids=ids[None]).logits
    if bool((logits.isnan() | logits.isposinf()).any()):
        raise logits_not_finite(where)


def _reason(error: Exception) -> str:
    """Return an error of transformers as the end of a sentence."""
    if "ignore_mismatched_sizes" in str(error):
        return "its weights do not have the shapes that its config.json says; use another checkpoint."
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{' '.join(lines[:2])[:200] or type(error).__name__} ({type(error).__name__}); use another checkpoint."


def card_gb(device: str) -> float | None:
    """Return the memory in GB of the GPU that torch computes on; None on a CPU."""
    return torch.cuda.get_device_properties(device).total_memory / 1e9 if device.startswith("cuda") else None


def context_limit(model: Any) -> int:
    """Return the maximum number of tokens of a conversation."""
    return int(getattr(model.config, "max_position_embeddings", 0) or 2**31)


def parameters(model: Any) -> int:
    """Return the number of parameters; tied ones are counted once."""
    return sum(p.numel() for p in model.parameters())


def _prepare(model: Any, config: ModelConfig, device: str) -> Any:
    """Move the model to the device, into memory allocated by torch.

    Weights mapped from a file are aligned differently, which may change the last bits of a product.
    """
    model.to(device)
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    if device == "cpu" and model.dtype == torch.bfloat16 and model.config._attn_implementation == "sdpa":
        model.set_attn_implementation(FLOAT32_WHERE_SHORT)
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    model.eval()
    return model
