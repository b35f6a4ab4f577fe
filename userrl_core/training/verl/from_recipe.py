"""From a resolved recipe (plain JSON; recipes live above this room) to the settings of a verl job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from userrl_core.rewards import CreditConfig
from userrl_core.training.config import AlgorithmConfig, ModelConfig, SftConfig
from userrl_core.training.verl.config import refuse_what_verl_cannot
from userrl_core.training.verl.job import Cluster, VerlJob, VerlSftJob
from userrl_core.training.verl.memory import check_memory, check_sft_memory


def rl_settings(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `VerlJob` that a recipe and its profile decide; what is left is the stage's own.

    resolved: `Recipe.resolved()`. Raises ConfigError for hardware that describes no cluster.
    """
    algorithm, evaluate = resolved["algorithm"], resolved["evaluate"]
    return {
        "model": model_settings(resolved),
        "algorithm": AlgorithmConfig(**_known(AlgorithmConfig, algorithm)),
        "credit": CreditConfig(**resolved["credit"]),
        "cluster": Cluster.of(resolved["hardware"]),
        "max_prompt_tokens": algorithm.get("max_prompt_tokens", 1152),
        "kl_reward_coef": algorithm.get("kl_reward_coef", 0.0),
        "on_format_error": resolved.get("on_format_error", "end"),
        "validation_horizon": evaluate["horizon"],
        "validate_every": evaluate["every"],
    }


def sft_settings(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `VerlSftJob` that a recipe and its profile decide."""
    return {
        "model": model_settings(resolved),
        "sft": SftConfig(**_known(SftConfig, resolved["cold_start"])),
        "cluster": Cluster.of(resolved["hardware"]),
    }


def model_settings(resolved: Mapping[str, Any]) -> ModelConfig:
    """The ``model`` block."""
    return ModelConfig(**_known(ModelConfig, resolved["model"]))


def _known(kind: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key in kind.model_fields}


def check_machine(resolved: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the recipe's cold start and RL need of each GPU, as label and value; what ``--dry-run`` prints for backend verl.

    Raises ConfigError, with what to change, where it goes beyond the card or where verl cannot do what the recipe asks.
    """
    # What is estimated depends on no path, and on the stage only through settings that all stages share.
    nowhere = Path("unused")
    job = VerlJob(**rl_settings(resolved), out_dir=nowhere, init=nowhere, reference=nowhere, last_step=1)
    refuse_what_verl_cannot(job)
    if not job.model.path:
        return [("memory", "not reckoned, since the recipe names no model.path")]
    found = check_memory(job, job.model.path).table()
    if not resolved["cold_start"]["enabled"]:
        return found
    sft = VerlSftJob(**sft_settings(resolved), out_dir=nowhere, chats=nowhere)
    return [check_sft_memory(sft, job.model.path), *found]
