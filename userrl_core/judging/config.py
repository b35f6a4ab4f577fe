"""Recipe settings of interventions. No client here, so recipes load quickly. The judge's own settings are in `rewards.judge`."""

from __future__ import annotations

from typing import Any

from pydantic import Field, PositiveInt, field_validator

from userrl_core.errors import ConfigError
from userrl_core.settings import Settings


class InterventionConfig(Settings):
    """The verifier of steps, its number of interventions, and its sentence (TARL section 5.2)."""

    model: str = "gpt-4.1"
    """The verifier that compares a step with the gold calls: rule, or the name of a served model."""

    most: PositiveInt = 2
    """Maximum interventions per reasoning step (TARL: two); the next attempt is always executed."""

    text: str = "Wait, my previous reasoning might be wrong, let me try again."
    """Sentence shown to the agent instead of an observation."""

    options: dict[str, Any] = Field(default_factory=dict)
    """Additional `ChatServer` fields of a served verifier, such as base_url and retries."""

    @field_validator("options")
    @classmethod
    def _known(cls, options: dict[str, Any]) -> dict[str, Any]:
        if "model" in options:
            raise ConfigError(
                "recipe.conflict", "give the verifier's model in intervention.model, not in intervention.options"
            )
        return options
