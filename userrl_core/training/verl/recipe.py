"""From a resolved recipe (plain JSON; recipes live above this room) to the settings of a verl job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from userrl_core.rewards import CreditConfig
from userrl_core.training.config import AlgorithmConfig, ModelConfig, SftConfig
from userrl_core.training.verl.job import Cluster


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
