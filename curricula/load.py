"""From YAML to a checked recipe: layers merged in the order of docs/recipes.md, with the origin of every value."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from curricula.data import use_published, verify_by_writes
from curricula.feasibility import (
    LACKING,
    check_credit,
    check_gym_names,
    check_gym_options,
    check_horizons,
    check_users,
)
from curricula.host import AUTO, cpu_dtype
from curricula.layers import Sources, sources
from curricula.lengths import follow
from curricula.merge import Merged, Rank
from curricula.pool import Counted, count_epochs
from curricula.recipe import Origin, Recipe
from curricula.unread import name_unread
from curricula.validation import validated
from curricula.yaml_files import check_size, stem
from userrl_core.errors import UserRLError

MACHINE = "this machine's CPU"
"""The origin of a value that depends on the machine."""


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
    """Load a recipe by name or file, with a profile's sizes and dotted-key overrides.

    check: also ask the gyms (`Draft.checked`). counted: see `curricula.pool`. For the others, and the errors, see `draft`.
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
    """Load a recipe by name or file, with a profile's sizes and dotted-key overrides, before the gyms check it.

    overrides: ``{"algorithm.lr": 1e-4, "stages.0.horizon": 4, "stages.*.mix": {...}}``; nested mappings work too.
    data_folder: folder of published tasks if the recipe names none.
    keys: environment variables that are set, None if unknown.
    Raises ConfigError for an unknown name or key, or a refusal.
    """
    check_size(overrides or {})
    files = sources(name, profile, overrides)
    merged = Merged()
    for layer in files.layers:
        merged.add(layer)
    label = str(merged.values.get("name", name))
    merged.override(overrides or {})
    resolved = files.resolved_profile is not None and (profile is None or stem(profile) == files.resolved_profile)
    with _naming_wrong_values(merged, label):
        sentences = _fit(files, merged, profile)
        if merged.get("model.dtype") == AUTO:
            merged.set("model.dtype", cpu_dtype(), MACHINE, Rank.PROFILE)
        absent = {} if resolved else use_published(merged, data_folder, keys)
        if not resolved:
            verify_by_writes(merged)
    merged.values["profile"] = stem(profile) if profile is not None else files.resolved_profile
    return Draft(merged, label, profile is not None, absent, tuple(sentences), files.resolved_profile is not None)


@dataclass
class Draft:
    """A recipe with merged layers, before the gyms check it.

    sized: whether a profile was named, so that epochs can be counted. absent: see `Recipe.absent`. warnings: those
    from merging. resolved: whether the file holds every value of a recipe, also those that no person wrote.
    """

    merged: Merged
    label: str
    sized: bool
    absent: dict[str, str]
    warnings: tuple[str, ...]
    resolved: bool

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe of the layers. Raises ConfigError for a value out of range or a misspelt gym."""
        recipe = validated(Recipe, self.merged.values, f"recipe '{self.label}'")
        check_gym_names(recipe, LACKING)
        recipe._origins = self.merged.origins | {"profile": Origin("call", "as asked for")}
        recipe._replaced = self.merged.replaced()
        recipe._absent = self.absent
        recipe._warnings = self._sentences(recipe)
        return recipe

    def _sentences(self, recipe: Recipe) -> tuple[str, ...]:
        return (*self.warnings, *name_unread(recipe, self.merged, resolved=self.resolved))

    def checked(self, counted: Counted | None = None, *, trains: bool = True) -> Recipe:
        """Return the recipe after the gyms' checks: stage lengths, credit form, and the number of tasks per epoch.

        trains: False leaves out whether the tasks of training can be solved within their horizons, which takes a second.
        Raises ConfigError for a value out of range or a refusal.
        """
        with _naming_wrong_values(self.merged, self.label):
            if self.sized and count_epochs(self.merged, counted):
                vars(self).pop("recipe", None)
        check_gym_names(self.recipe)
        check_gym_options(self.recipe)
        check_users(self.recipe)
        check_credit(self.recipe)
        if trains:
            self.recipe._warnings = (*self._sentences(self.recipe), *check_horizons(self.recipe))
        return _warned(self.recipe)


def from_resolved(values: Mapping[str, Any]) -> Recipe:
    """Return the recipe described by `Recipe.resolved`. Raises ConfigError if it does not fit."""
    return validated(Recipe, values, "resolved recipe")


@contextmanager
def _naming_wrong_values(merged: Merged, label: str) -> Iterator[None]:
    """Raise ConfigError, with the key, for a value that these steps cannot compute with. They come before the recipe is checked."""
    try:
        yield
    except UserRLError:
        raise
    except (AttributeError, OverflowError, TypeError, ValueError):
        validated(Recipe, merged.values, f"recipe '{label}'")
        raise


def _fit(files: Sources, merged: Merged, profile: str | Path | None) -> list[str]:
    """Fit the lengths of a recipe to its stages, unless it is fully resolved."""
    if files.resolved_profile is not None and (profile is None or stem(profile) == files.resolved_profile):
        return []
    return follow(merged, files.small, f"profile {stem(profile)}" if profile is not None else "profile")


def _warned(recipe: Recipe) -> Recipe:
    for sentence in recipe.warnings:
        warnings.warn(sentence, UserWarning, stacklevel=3)
    return recipe
