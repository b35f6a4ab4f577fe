"""Advantages of a batch under the recipe's algorithm."""

from __future__ import annotations

from torch import nn

from userrl_core.errors import ConfigError
from userrl_core.rewards import CreditConfig, Credits
from userrl_core.training.config import AlgorithmConfig
from userrl_core.training.local.algorithms.dpo import dpo
from userrl_core.training.local.algorithms.grpo import grpo
from userrl_core.training.local.algorithms.ppo import Critic, ppo
from userrl_core.training.local.algorithms.reinforce_pp import reinforce_pp
from userrl_core.training.local.algorithms.remax import remax
from userrl_core.training.local.algorithms.rloo import rloo
from userrl_core.training.local.batch import Advantages, Batch

BY_SCORE = {"rloo": rloo, "reinforce_pp": reinforce_pp, "remax": remax, "dpo": dpo}
"""Algorithms that give all tokens of a trajectory the same advantage."""


def advantages_for(
    config: AlgorithmConfig, batch: Batch, credits: Credits, credit: CreditConfig, critic: nn.Module | None
) -> Advantages:
    """Return the batch's advantages. Raises ConfigError where the algorithm does not support the credit block."""
    if config.name == "grpo":
        return grpo(batch, credits, credit)
    if config.name == "ppo":
        if not isinstance(critic, Critic):
            raise ConfigError("training.bad_call", "ppo needs a critic. Pass one.")
        return ppo(batch, credits, critic, config, credit.terms)
    if credit.shaping != "equalized":
        raise ConfigError(
            "credit.no_effect",
            f"{config.name} gives every token of a trajectory the same advantage, so credit.shaping "
            f"'{credit.shaping}' would have no effect. Set it to equalized, or algorithm.name to grpo.",
        )
    if config.name == "remax" and credit.filter == "resample":
        raise ConfigError(
            "credit.no_effect", "remax can learn from trajectories that score alike. Set credit.filter to drop or keep."
        )
    return BY_SCORE[config.name](batch, credits, credit)
