"""The torch device of this process's slot, and a checkpoint on it as a policy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from userrl.machine.slots import threads
from userrl_core.training.config import ModelConfig

if TYPE_CHECKING:
    from userrl_core.training.local.policy import LocalPolicy


def device() -> str:
    """Return ``cuda`` if torch can use a GPU in this slot, else ``cpu``."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def local_policy(
    checkpoint: str | Path, model: ModelConfig, requested_threads: int | None, **limits: Any
) -> LocalPolicy:
    """Load a checkpoint as a policy of this process. limits: sampling, limits and name of `LocalPolicy`."""
    from userrl_core.training.local.model import load_model
    from userrl_core.training.local.policy import LocalPolicy
    from userrl_core.training.local.text.tokenizer import load_tokenizer
    from userrl_core.training.local.threads import fix_threads

    fix_threads(threads(requested_threads))
    return LocalPolicy(load_model(checkpoint, model, device()), load_tokenizer(checkpoint, model.thinking), **limits)
