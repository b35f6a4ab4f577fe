"""Turn-level adjudicated rewards (TARL section 3.2): one verified outcome and one mark per turn become turn rewards.

A judge marks every turn 1 (right), 0 (a flaw, or a consequence of a deviation) or -1 (the major deviation, at most
one). The verified success gives ``terminal`` points, the deviation ``deviation``. All T turns share ``good`` points:
a turn marked 1 gives good / T. The paper prints 1 / T. A perfect run would then have 11 points and not the stated 15.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, NonPositiveFloat, field_validator

from userrl_core.errors import ConfigError
from userrl_core.settings import Settings

RULE = "rule"
"""The offline judge's name."""

Category = Literal["perfect", "good", "good_attempt", "failed", "success_with_deviation"]
"""The ranges with 10, 5 and -5 points. perfect: 15. good: [10, 15]. good_attempt (no success, and no deviation
found): [0, 5]. failed: [-5, -5/T]. success_with_deviation: [5, 10 - 5/T], which the paper does not list.
"""

UNJUDGED = "unjudged"
"""The category where the judge gave no usable scores."""


class JudgeConfig(Settings):
    """The judge that marks turns, and the points of its marks (TARL section 3.2)."""

    model: str = "gpt-4.1"
    """The judge: rule, or the name of a served model."""

    version: Literal[1, 2] = 1
    """Version of the rule judge. The second one finds more deviations and marks none where the agent's part is not certain."""

    terminal: float = 10.0
    """Points for a verified success."""

    deviation: NonPositiveFloat = -5.0
    """Points for the one turn marked -1."""

    good: NonNegativeFloat = 5.0
    """Points shared by all turns: a turn marked 1 gives this divided by the number of turns."""

    options: dict[str, Any] = Field(default_factory=dict)
    """Additional `ChatServer` fields of a served judge, such as base_url and retries."""

    prompts: Literal["ours", "released"] = "ours"
    """The prompt of a served judge: ours, or TARL's (appendix C) from ``tarl/judge.md`` in the folder of published data."""

    texts: str | None = None
    """That folder; null: the recipe's ``data_folder``."""

    unjudged: Literal["drop", "use"] = "drop"
    """Treatment of a trajectory without usable scores after all retries: drop leaves it out of training, use keeps it
    with its terminal points only.
    """

    @field_validator("options")
    @classmethod
    def _known(cls, options: dict[str, Any]) -> dict[str, Any]:
        if "model" in options:
            raise ConfigError("recipe.conflict", "give the judge's model in judge.model, not in judge.options")
        return options


def judged_rewards(scores: Sequence[int], success: bool, config: JudgeConfig) -> list[float]:
    """Return a reward per turn, [T]: the points of its mark, plus the outcome's points on the last turn. Their
    sum is the judged score.

    Raises ConfigError for invalid marks.
    """
    if any(score not in (-1, 0, 1) for score in scores) or list(scores).count(-1) > 1:
        raise ConfigError(
            "judge.no_reply",
            f"A judge marks each turn -1, 0 or 1, and at most one turn -1. It gave {list(scores)}.",
        )
    points = {-1: config.deviation, 0: 0.0, 1: config.good / max(len(scores), 1)}
    return with_terminal([points[score] for score in scores], success, config)


def with_terminal(rewards: Sequence[float], success: bool, config: JudgeConfig) -> list[float]:
    """Add the outcome's points to the last turn."""
    return [*rewards[:-1], rewards[-1] + config.terminal * success] if rewards else []


def category(scores: Sequence[int], success: bool) -> Category:
    """Return the trajectory's category for these marks and this outcome."""
    if -1 in scores:
        return "success_with_deviation" if success else "failed"
    if not success:
        return "good_attempt"
    return "perfect" if all(score == 1 for score in scores) else "good"
