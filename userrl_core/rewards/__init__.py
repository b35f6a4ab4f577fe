"""From turn rewards to advantages: shaping, scoring and grouping (UserRL section 3). See docs/rewards.md."""

from userrl_core.rewards.advantage import (
    Credits,
    assign_credit,
    greedy_scores,
    spread_to_tokens,
    turn_advantages,
)
from userrl_core.rewards.bias import MeanAdvantageBias, measure_bias
from userrl_core.rewards.config import CreditConfig
from userrl_core.rewards.diagnostics import Diagnostics
from userrl_core.rewards.optional import OptionalTerms, adjusted_rewards

__all__ = [
    "CreditConfig",
    "Credits",
    "Diagnostics",
    "MeanAdvantageBias",
    "OptionalTerms",
    "adjusted_rewards",
    "assign_credit",
    "greedy_scores",
    "measure_bias",
    "spread_to_tokens",
    "turn_advantages",
]
