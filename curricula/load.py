"""From YAML to a checked recipe: layers merged in the order of docs/recipes.md, every value's origin kept."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from curricula.data import use_published, verify_by_writes
from curricula.feasibility import (
    LACKING,
    check_credit,
    check_evaluations,
    check_gym_names,
    check_horizons,
    check_rule_users,
)
from curricula.layers import Sources, sources
from curricula.lengths import follow
from curricula.merge import Merged
from curricula.pool import Counted, count_epochs
from curricula.recipe import Origin, Recipe
from curricula.validation import validated
from curricula.yaml_files import check_size, stem


def load(
    name: str | Path,
    profile: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    check: bool = True,
    counted: Counted | None = None,
    data_folder: Path | None = None,
    keys: Collection[str] | None = None,
) -> Recipe:
    """A recipe by name or file, with a profile's sizes and dotted-key overrides.

    check: also ask the gyms (`Draft.checked`). counted: see `curricula.pool`. For the others, and what is raised, see `draft`.
    """
    drafted = draft(name, profile, overrides, data_folder=data_folder, keys=keys)
    return drafted.checked(counted) if check else _warned(drafted.recipe)


def draft(
    name: str | Path,
    profile: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    data_folder: Path | None = None,
    keys: Collection[str] | None = None,
) -> Draft:
    """A recipe by name or file, with a profile's sizes and dotted-key overrides, before the gyms are asked about it.

    overrides: ``{"algorithm.lr": 1e-4, "stages.0.horizon": 4, "stages.*.mix": {...}}``, nested mappings work too.
    data_folder: where published tasks are looked for when the recipe names no folder.
    keys: environment variables that are set, None where nobody looked.
    Raises ConfigError, in one sentence, for an unknown name or key, or a refusal.
    """
    check_size(overrides or {})
    found = sources(name, profile, overrides)
    merged = Merged()
    for layer in found.layers:
        merged.add(layer)
    label = str(merged.values.get("name", name))
    merged.override(overrides or {})
    said = _fit(found, merged, profile)
    resolved = found.held is not None and (profile is None or stem(profile) == found.held)
    absent = {} if resolved else use_published(merged, data_folder, keys)
    if not resolved:
        verify_by_writes(merged)
    merged.values["profile"] = stem(profile) if profile is not None else found.held
    return Draft(merged, label, profile is not None, absent, tuple(said))


@dataclass
class Draft:
    """A recipe whose layers are merged, before the gyms are asked about it.

    sized: whether a profile was named, so that epochs can be counted. absent: see `Recipe.absent`. said: what merging found
    worth a warning.
    """

    merged: Merged
    label: str
    sized: bool
    absent: dict[str, str]
    said: tuple[str, ...]

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe as its layers say. Raises ConfigError, in one sentence, for a value out of range or a misspelt gym."""
        recipe = validated(Recipe, self.merged.values, f"recipe '{self.label}'")
        check_gym_names(recipe, LACKING)
        recipe._origins = self.merged.origins | {"profile": Origin("call", "as asked for")}
        recipe._replaced = self.merged.replaced()
        recipe._absent = self.absent
        recipe._warnings = self.said
        return recipe

    def checked(self, counted: Counted | None = None) -> Recipe:
        """The recipe after the gyms were asked whether stages are long enough and rewards fit the credit form, and how many tasks
        an epoch has. Raises ConfigError, in one sentence, for a value out of range or a refusal."""
        if self.sized and count_epochs(self.merged, counted):
            vars(self).pop("recipe", None)
        check_gym_names(self.recipe)
        check_evaluations(self.recipe)
        check_rule_users(self.recipe)
        check_credit(self.recipe)
        self.recipe._warnings = (*self.said, *check_horizons(self.recipe))
        return _warned(self.recipe)


def from_resolved(values: Mapping[str, Any]) -> Recipe:
    """The recipe that `Recipe.resolved` described; ConfigError in one sentence where it does not fit."""
    return validated(Recipe, values, "resolved recipe")


def _fit(found: Sources, merged: Merged, profile: str | Path | None) -> list[str]:
    """A recipe that holds every value keeps them; any other's lengths follow its stages."""
    if found.held is not None and (profile is None or stem(profile) == found.held):
        return []
    return follow(merged, found.small, f"profile {stem(profile)}" if profile is not None else "profile")


def _warned(recipe: Recipe) -> Recipe:
    """The recipe, after its warnings were given."""
    for sentence in recipe.warnings:
        warnings.warn(sentence, UserWarning, stacklevel=3)
    return recipe
