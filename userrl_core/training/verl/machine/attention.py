"""Choice of the attention implementation of verl's models.

verl 0.9.1 loads every model with flash attention unless ``override_config.attn_implementation`` says otherwise, but
flash-attn is not part of its environment. `sdpa` is torch's own, and gives the same result for packed conversations
as for separate ones. Sequence parallelism is patched into the flash path only: with sdpa each GPU would silently
attend to its own part.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from userrl_core.errors import ConfigError
from userrl_core.training.config import Cluster

FLASH, SDPA = "flash_attention_2", "sdpa"
PATIENCE = 300.0
"""Seconds for an import on a cold network disk."""


def chosen_attention(cluster: Cluster) -> str:
    """Return the attention of the stage's models: the recipe's choice, or for ``auto`` what the trainer's interpreter
    can import.

    Raises ConfigError where sequence parallelism needs another one.
    """
    chosen: str = cluster.attention
    if chosen == "auto":
        # Accelerators other than CUDA's bring a flash attention of their own, which verl takes under the same name.
        missing = cluster.device == "cpu" or (cluster.device == "cuda" and not imports_flash(cluster.python))
        chosen = SDPA if missing else FLASH
    refuse_split_sdpa(chosen, cluster)
    return chosen


def imports_flash(python: str | None) -> bool:
    """Return True if the interpreter (None: this one) can import flash_attn. A version built for another torch is
    installed but does not import.
    """
    command = [python or sys.executable, "-c", "import flash_attn"]
    try:
        return subprocess.run(command, capture_output=True, timeout=PATIENCE).returncode == 0
    except subprocess.TimeoutExpired:
        return False
    except OSError as error:
        raise ConfigError(
            "install.missing",
            f"The trainer's interpreter {command[0]} cannot be started ({error.strerror}). Correct hardware.python.",
        ) from error


def refuse_split_sdpa(attention: str, cluster: Cluster) -> None:
    """Raise ConfigError for sdpa with sequence parallelism, which verl would silently compute wrongly."""
    if attention == SDPA and cluster.sequence_parallel > 1:
        raise ConfigError(
            "install.missing",
            f"Attention sdpa cannot divide a conversation among {cluster.sequence_parallel} GPUs. Install "
            "flash-attn in the trainer's environment (docs/gpu.md) and set hardware.attention to auto, or set "
            "hardware.sequence_parallel to 1.",
        )


def load_critics_as_configured() -> None:
    """Let verl load ppo's critic with the configured attention: 0.9.1 hard-codes flash attention.

    This replaces ``verl.utils.model.load_valuehead_model``, which verl looks up when it builds a critic.
    """
    from verl.utils import model

    def load_valuehead_model(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
        if model_config._attn_implementation == FLASH:
            return stock(local_path, torch_dtype, model_config, trust_remote_code)
        from transformers import AutoModelForTokenClassification

        return AutoModelForTokenClassification.from_pretrained(
            local_path,
            dtype=torch_dtype,
            config=model_config,
            attn_implementation=model_config._attn_implementation,
            trust_remote_code=trust_remote_code,
        )

    stock = model.load_valuehead_model
    model.load_valuehead_model = load_valuehead_model
