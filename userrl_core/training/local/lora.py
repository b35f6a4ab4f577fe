"""LoRA adapters by peft (Hu et al. 2021): added to a model, saved separately from its base, and folded into its weights.

The model stays a Qwen3 or another causal model; some of its linear layers also add ``B A x * alpha / rank``. B starts
with zeros, so an adapted model starts equal to its base. A checkpoint's weights have the adapters folded in, so it
loads as an ordinary model. The adapters themselves are saved in ``trainer/adapter`` in peft's format.
``trainer.json`` records their base, because folded weights cannot be unfolded to the last bit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from userrl_core.errors import CheckpointError, ConfigError
from userrl_core.training.config import LoraSettings
from userrl_core.training.local.checkpoint import read_json, read_state
from userrl_core.training.local.optimizer import trained
from userrl_core.training.model_files import STATE

ADAPTER = "adapter"
_NAME, _FILE, _PREFIX = "default", "adapter_model.safetensors", "base_model.model."


@dataclass(frozen=True, slots=True)
class Base:
    """The model below the adapters. sha256: hash of its weights, if it is one of our checkpoints."""

    path: str
    sha256: str | None
    settings: LoraSettings

    @classmethod
    def at(cls, path: str | Path, settings: LoraSettings) -> Base:
        """Return the base for new adapters on this model."""
        ours = (Path(path) / STATE).exists()
        return cls(
            str(Path(path).resolve()) if ours else str(path), read_state(Path(path)).sha256 if ours else None, settings
        )

    @classmethod
    def below(cls, checkpoint: Path, settings: LoraSettings) -> Base | None:
        """Return the base of a checkpoint's adapters, or None without adapters. Raises CheckpointError when the base
        has changed.
        """
        file = checkpoint / "trainer" / "trainer.json"
        record = read_json(file).get("base") if file.is_file() else None
        if record is None:
            return None
        # Beside the checkpoint: a folder of runs that moves keeps its adapters.
        path = str((checkpoint / record["path"]).resolve()) if record["sha256"] else record["path"]
        if record["sha256"] and (not Path(path).is_dir() or read_state(Path(path)).sha256 != record["sha256"]):
            raise CheckpointError(
                "checkpoint.other_settings",
                f"The adapters of {checkpoint} belong to the weights {record['sha256'][:12]}, which are no "
                f"longer at {path}. Put them back, or start a new run from {checkpoint}, whose weights include "
                "the adapters.",
            )
        return cls(path, record["sha256"], settings)

    def record(self, checkpoint: Path) -> dict[str, str | None]:
        """Return the entry that ``trainer.json`` of that checkpoint stores."""
        return {
            "path": os.path.relpath(self.path, checkpoint.resolve()) if self.sha256 else self.path,
            "sha256": self.sha256,
        }

    def save(self, model: nn.Module, folder: Path) -> None:
        """Write the adapters in peft's format."""
        tensors = {_PREFIX + name.replace(f".{_NAME}.", "."): p.detach().cpu() for name, p in trained(model).items()}
        folder.mkdir()
        save_file(tensors, folder / _FILE)
        config = _peft_config(self.settings)
        config.base_model_name_or_path = self.path
        if config.target_modules != self.settings.targets:
            config.target_modules = sorted(
                config.target_modules
            )  # peft keeps a set, whose order no two processes share
        config.save_pretrained(str(folder))


def adapt(model: Any, settings: LoraSettings, seed: int) -> None:
    """Add new adapters to the model and freeze everything else. The same seed gives the same adapters.

    Raises ConfigError for a model whose layers have other names or kinds.
    """
    from peft import inject_adapter_in_model

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            inject_adapter_in_model(_peft_config(settings), model, adapter_name=_NAME)
        except ValueError as error:
            raise ConfigError(
                "model.unsupported", f"This model has no layers {settings.targets}. Set lora.targets to all-linear."
            ) from error
    if not all(isinstance(layer.get_base_layer(), nn.Linear) for layer in _layers(model)):
        raise ConfigError(
            "model.unsupported", "LoRA needs linear layers of torch, which this model does not have. Set lora to null."
        )


def load_adapter(model: Any, folder: Path) -> None:
    """Load a checkpoint's adapters into a model with the same adapters. Raises CheckpointError where it has others."""
    try:
        tensors = load_file(folder / _FILE)
        parameters = {_PREFIX + name.replace(f".{_NAME}.", "."): p for name, p in trained(model).items()}
        if unread := tensors.keys() - parameters.keys():
            raise KeyError(min(unread))
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(tensors[name])
    except (OSError, SafetensorError, KeyError, RuntimeError) as error:
        raise CheckpointError(
            "checkpoint.other_settings",
            f"{folder} contains no adapters of this rank and these targets ({error}). Use the settings that it "
            "was trained with.",
        ) from error


def folded(tensors: Mapping[str, Tensor], scale: float) -> dict[str, Tensor]:
    """Return an adapted model's tensors as tensors of an ordinary model of its kind. scale: alpha / rank.

    The product is computed in float32 and rounded once, to the number format of the weights.
    """
    folded_tensors: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        layer, is_base, kind = name.partition(".base_layer.")
        if ".lora_" in name:
            continue
        if is_base and kind == "weight":
            a, b = (tensors[f"{layer}.lora_{side}.{_NAME}.weight"].float() for side in "AB")
            tensor = (tensor.float() + scale * (b @ a)).to(tensor.dtype)
        folded_tensors[name.replace(".base_layer.", ".").removeprefix(_PREFIX)] = tensor
    return folded_tensors


@contextmanager
def without_adapters(model: nn.Module) -> Iterator[None]:
    """Use the model as its base, bit for bit. Has no effect on a model without adapters."""
    for layer in _layers(model):
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in _layers(model):
            layer.enable_adapters(True)


def _layers(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if hasattr(module, "enable_adapters") and hasattr(module, "lora_A")]


def _peft_config(settings: LoraSettings) -> Any:
    from peft import LoraConfig

    targets = settings.targets if isinstance(settings.targets, str) else list(settings.targets)
    # No dropout: rollout and update must see the same model.
    return LoraConfig(r=settings.rank, lora_alpha=settings.alpha, target_modules=targets, task_type="CAUSAL_LM")
