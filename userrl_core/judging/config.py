"""What a recipe says about interventions. No client here: recipes load quickly. The judge's own settings are `rewards.judge`."""

from __future__ import annotations

from typing import Any

from pydantic import Field, PositiveInt, field_validator

from userrl_core.settings import Settings


class InterventionConfig(Settings):
    """Who objects to a step, how often, and with which words (TARL section 5.2)."""

    model: str = "gpt-4.1"
    """Who compares a step with the gold calls: rule, or the name of a served model."""

    most: PositiveInt = 2
    """Interventions per reasoning step (TARL: two); the next attempt is carried out, whatever it is."""

    text: str = "Wait, my previous reasoning might be wrong, let me try again."
    """What the agent finds in place of an answer."""

    options: dict[str, Any] = Field(default_factory=dict)
    """Of a served verifier: further fields of `ChatServer`, such as base_url and retries."""

    @field_validator("options")
    @classmethod
    def _known(cls, options: dict[str, Any]) -> dict[str, Any]:
        if "model" in options:
            raise ValueError("name the verifier's model in intervention.model, not in intervention.options")
        return options
