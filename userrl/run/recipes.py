"""``userrl.recipes`` and ``userrl.recipe``: the shipped recipes, and one resolved recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from curricula import Recipe


def recipes() -> list[str]:
    """Return the names of the shipped recipes."""
    from curricula import recipe_names

    return sorted(recipe_names())


def recipe(name: str, *, profile: str | None = "auto", overrides: Mapping[str, Any] | None = None) -> Recipe:
    """Return a recipe with every value resolved, as `userrl.train` would use it here.

    name: a shipped name or a YAML file. Raises ConfigError with one sentence.
    """
    from userrl.run.readiness import resolve

    return resolve(name, profile, dict(overrides) if overrides else None)
