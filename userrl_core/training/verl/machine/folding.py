"""Conversion of verl's Hugging Face folder of a LoRA checkpoint to an ordinary model.

verl 0.9.1 writes base and adapters there side by side under peft's names. Neither vLLM nor transformers nor our
evaluation loads this as the trained model. The conversion needs as much memory as verl needed to write it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from userrl_core.errors import CheckpointError
from userrl_core.json_files import read_json

ADAPTED = "lora_train_meta.json"
"""verl's note of rank (r) and lora_alpha, next to the folder."""


def fold_adapters(model: Path) -> None:
    """Fold the adapters of this Hugging Face folder into its weights. Does nothing without adapters.

    The folder is replaced by a complete one, so that a kill leaves no mixture.
    """
    note, files = read_json(model.parent / ADAPTED), sorted(model.glob("*.safetensors"))
    if note is None or not files:
        return
    from safetensors.torch import load_file

    from userrl_core.training.local.lora import folded

    tensors = {name: tensor for file in files for name, tensor in load_file(file).items()}
    if not any(".lora_" in name for name in tensors):
        return
    partial, adapted = model.with_name(".folded.partial"), model.with_name(".adapted")
    for leftover in (partial, adapted):
        shutil.rmtree(leftover, ignore_errors=True)
    shutil.copytree(model, partial, ignore=shutil.ignore_patterns("*.safetensors", "*.safetensors.index.json"))
    folded_tensors = folded(tensors, note["lora_alpha"] / note["r"])
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(model, trust_remote_code=False)
    with init_empty_weights():
        empty = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    if config.tie_word_embeddings:
        # A second name of the embeddings, which would be loaded as another matrix.
        folded_tensors.pop("lm_head.weight", None)
    unknown = empty.load_state_dict(folded_tensors, strict=False, assign=True).unexpected_keys
    if unknown:
        raise CheckpointError(
            "checkpoint.other_settings",
            f"{model} contains {unknown[0]}, which its config.json does not describe. Use an older checkpoint.",
        )
    empty.tie_weights()
    empty.save_pretrained(partial)
    model.rename(adapted)
    partial.rename(model)
    shutil.rmtree(adapted)
