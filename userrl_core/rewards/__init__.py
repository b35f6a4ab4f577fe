"""From turn rewards to advantages: shaping, scoring and grouping (UserRL section 3). See docs/rewards.md."""

from userrl_core.rewards.advantage import (
    Credits,
    Diagnostics,
    assign_credit,
    credit,
    greedy_scores,
    spread_to_tokens,
    turn_advantages,
)
from userrl_core.rewards.config import CreditConfig
from userrl_core.rewards.optional import OptionalTerms, adjusted_rewards
from userrl_core.rewards.push import Push, measure_push

__all__ = [
    "CreditConfig",
    "Credits",
    "Diagnostics",
    "OptionalTerms",
    "Push",
    "adjusted_rewards",
    "assign_credit",
    "credit",
    "greedy_scores",
    "measure_push",
    "spread_to_tokens",
    "turn_advantages",
]
