"""From YAML to a checked recipe: layers merged in the order of docs/recipes.md, every value's origin kept."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from curricula.data import use_published, verify_by_writes
from curricula.feasibility import check_credit, check_gyms, check_horizons, check_rule_users
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

    overrides: ``{"algorithm.lr": 1e-4, "stages.0.horizon": 4, "stages.*.mix": {...}}``, nested mappings work too.
    check: also ask the gyms whether stages are long enough and rewards fit the credit form, and count the tasks of epochs.
    counted: see `curricula.pool`. data_folder: where published tasks are looked for when the recipe names no folder.
    keys: environment variables that are set, None where nobody looked.
    Raises ConfigError, in one sentence, for an unknown name or key, a value out of range, or a refusal.
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
    if check and profile is not None:
        count_epochs(merged, counted)
    merged.values["profile"] = stem(profile) if profile is not None else found.held
    recipe = validated(Recipe, merged.values, f"recipe '{label}'")
    recipe._origins = merged.origins | {"profile": Origin("call", "as asked for")}
    recipe._replaced = merged.replaced()
    recipe._absent = absent
    recipe._warnings = tuple(said)
    if check:
        check_gyms(recipe)
        check_rule_users(recipe)
        check_credit(recipe)
        recipe._warnings += tuple(check_horizons(recipe))
    for sentence in recipe._warnings:
        warnings.warn(sentence, UserWarning, stacklevel=2)
    return recipe


def from_resolved(values: Mapping[str, Any]) -> Recipe:
    """The recipe that `Recipe.resolved` described; ConfigError in one sentence where it does not fit."""
    return validated(Recipe, values, "resolved recipe")


def _fit(found: Sources, merged: Merged, profile: str | Path | None) -> list[str]:
    """A recipe that holds every value keeps them; any other's lengths follow its stages."""
    if found.held is not None and (profile is None or stem(profile) == found.held):
        return []
    return follow(merged, found.small, f"profile {stem(profile)}" if profile is not None else "profile")
