"""The complete state of a trainer, and its exact serialisation.

Files of a checkpoint's ``trainer`` folder:

- ``optimizer.safetensors``: tensors named ``<parameter>/<moment>``;
- ``generators.safetensors``: generator states as bytes;
- ``critic.safetensors`` and ``critic_optimizer.safetensors``, where there is a critic;
- ``adapter``, where only adapters are trained (see `lora`);
- ``trainer.json``: step, curriculum, history.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from userrl_core.errors import CheckpointError
from userrl_core.training.config import LoraSettings, ModelConfig
from userrl_core.training.finite import check_losses, strayed
from userrl_core.training.local.checkpoint import read_checkpoint, read_json, read_state
from userrl_core.training.local.lora import ADAPTER, Base, folded, load_adapter
from userrl_core.training.local.model import load_model
from userrl_core.training.local.optimizer import load_optimizer_tensors, optimizer_tensors, trained
from userrl_core.training.local.text.calls import set_form
from userrl_core.training.local.text.tokenizer import load_tokenizer
from userrl_core.training.model_files import STATE, TRAINER


@dataclass(slots=True)
class TrainState:
    """A model in training.

    kind: the kind of training (``sft``, ``rl``); the optimiser of another kind is not continued. curriculum: its
    `state_dict`. history: one entry per step, oldest first. base: the base of the model's adapters; None without
    adapters.
    """

    model: Any
    tokenizer: Any
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    kind: str
    step: int = 0
    critic: nn.Module | None = None
    critic_optimizer: torch.optim.Optimizer | None = None
    curriculum: dict[str, Any] | None = None
    history: list[dict[str, float | None]] = field(default_factory=list)
    base: Base | None = None

    def save(self, folder: Path) -> None:
        """Write model, tokenizer and trainer files into a folder (see `checkpoint.write_checkpoint`)."""
        save_model(self.model, self.tokenizer, folder, self.base)
        trainer = folder / TRAINER
        trainer.mkdir()
        if self.base is not None:
            self.base.save(self.model, trainer / ADAPTER)
        save_file(optimizer_tensors(self.model, self.optimizer), trainer / "optimizer.safetensors")
        states = {"sampling": self.generator.get_state(), "torch": torch.get_rng_state()}
        save_file(states, trainer / "generators.safetensors")
        if self.critic is not None and self.critic_optimizer is not None:
            critic = {name: tensor.detach().cpu().contiguous() for name, tensor in self.critic.named_parameters()}
            save_file(critic, trainer / "critic.safetensors")
            moments = optimizer_tensors(self.critic, self.critic_optimizer)
            save_file(moments, trainer / "critic_optimizer.safetensors")
        record = {"kind": self.kind, "step": self.step, "curriculum": self.curriculum, "history": self.history}
        if self.base is not None:
            record["base"] = self.base.record(folder)
        (trainer / "trainer.json").write_text(json.dumps(record, sort_keys=True), encoding="utf-8")

    def end_step(self, step: int, metrics: Mapping[str, float], curriculum: dict[str, Any], tasks: int | None) -> None:
        """Enter a completed step into the history. tasks: number of tasks played, where a token budget counts them."""
        outcome = {name: metrics.get(f"rollout/{name}/mean") for name in ("success", "return_sum")}
        token_use = {} if tasks is None else {"tokens": int(metrics["tokens/all/sum"]), "tasks": tasks}
        self.history.append({"step": step, **outcome, **token_use})
        self.step, self.curriculum = step, curriculum

    def check_finite(self, metrics: Mapping[str, float], stage: str, step: int) -> None:
        """Raise TrainingError where a loss of this step, or a weight after it, is not finite."""
        check_losses({name: value for name, value in metrics.items() if name.endswith("/loss/mean")}, stage, step)
        for module in filter(None, (self.model, self.critic)):
            for name, parameter in trained(module).items():
                # The extremes are read in one pass, and are no numbers where any entry is none.
                if not all(math.isfinite(extreme) for extreme in parameter.detach().aminmax()):
                    raise strayed(f"its update left {name} with numbers that are not finite", stage, step)

    def restore(self, folder: Path) -> bool:
        """Load the trainer files of a checkpoint. Its model, or the base of its adapters, must already be loaded.

        Returns False without files of this kind. Raises CheckpointError when the files belong to another model or algorithm.
        """
        trainer = folder / TRAINER
        if not trainer.is_dir():
            return False
        record = read_json(trainer / "trainer.json")
        # After a cold start RL begins with a new optimiser.
        if record["kind"] != self.kind:
            return False
        self.step, self.curriculum, self.history = record["step"], record["curriculum"], record["history"]
        if self.base is not None:
            load_adapter(self.model, trainer / ADAPTER)
        _load_optimizer(self.model, self.optimizer, trainer / "optimizer.safetensors")
        states = _load(trainer / "generators.safetensors")
        self.generator.set_state(states["sampling"])
        torch.set_rng_state(states["torch"])
        if self.critic is not None and self.critic_optimizer is not None:
            if not (trainer / "critic.safetensors").is_file():
                raise CheckpointError(
                    "checkpoint.other_settings",
                    f"{folder} has no critic. ppo continues only from a checkpoint that ppo wrote.",
                )
            loaded = _load(trainer / "critic.safetensors")
            with torch.no_grad():
                for name, parameter in self.critic.named_parameters():
                    parameter.copy_(loaded[name])
            _load_optimizer(self.critic, self.critic_optimizer, trainer / "critic_optimizer.safetensors")
        return True


def save_model(model: Any, tokenizer: Any, folder: Path, base: Base | None = None) -> None:
    """Write a Hugging Face folder: config, safetensors with adapters folded in, tokenizer with its chat template."""
    if base is None:
        model.save_pretrained(folder)
    else:
        model.save_pretrained(folder, state_dict=folded(model.state_dict(), base.settings.alpha / base.settings.rank))
    tokenizer.save_pretrained(folder)


def load_checkpoint(path: Path, config: ModelConfig, device: str) -> tuple[Any, Any]:
    """Return model and tokenizer of a checkpoint of ours, a Hugging Face folder, or a name such as ``Qwen/Qwen3-0.6B``.

    Hashes that are stored with the model are checked.
    """
    hub_name = len(path.parts) == 2 and not path.is_absolute() and not path.exists()
    if not hub_name and not (path / "config.json").exists():
        read_state(path)  # says what the folder lacks
    return load_model(path, config, device), load_tokenizer(path, config.thinking)


def load_to_train(path: Path, config: ModelConfig, device: str) -> tuple[Any, Any]:
    """Return model and tokenizer as `load_checkpoint` does, which write calls in the configured form."""
    model, tokenizer = load_checkpoint(path, config, device)
    set_form(model, tokenizer, config.calls)
    return model, tokenizer


def load_start(
    start: Path, config: ModelConfig, device: str, lora: LoraSettings | None, *, continued: bool
) -> tuple[Any, Any, Base | None]:
    """Return the model that training starts with, its tokenizer, and under LoRA the base, which gets adapters next.

    continued: the training that wrote ``start`` continues, on the base of its adapters. Otherwise the weights of
    ``start`` are the base of new adapters.
    """
    if continued and (start / STATE).exists():
        read_checkpoint(start)
    if lora is None:
        return *load_to_train(start, config, device), None
    base = (Base.below(start, lora) if continued else None) or Base.at(start, lora)
    return *load_to_train(Path(base.path), config, device), base


def _load_optimizer(module: nn.Module, optimizer: torch.optim.Optimizer, path: Path) -> None:
    try:
        load_optimizer_tensors(module, optimizer, _load(path))
    except KeyError as error:
        raise CheckpointError(
            "checkpoint.other_settings",
            f"{path} belongs to another model: it contains optimizer moments of {error}, which this model does "
            "not have.",
        ) from error


def _load(path: Path) -> Mapping[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            "checkpoint.damaged", f"{path} cannot be read, so the checkpoint is incomplete. Use an older one."
        ) from error
