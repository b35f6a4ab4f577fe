"""The published recipes and goals (AgentGym's TextCraft): Minecraft's recipe files, read in the order of their names.

Goals are the recipes' products sorted by depth only, and a recipe that would close a circle is left out. The order of
reading therefore determines a goal's number, and with it the item id ``textcraft_N``. The released server reads a
folder in file-system order. Here the order is by name, and nothing depends on a hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from userrl_core.errors import MissingFileError, TaskError
from userrl_core.gyms.released import read_json
from userrl_core.gyms.textcraft.crafting import Book, CraftingRecipe

FILE = "textcraft_recipes.json"
FOLDER = "agentenv-textcraft/agentenv_textcraft/recipes"
SHAPED, SHAPELESS = "minecraft:crafting_shaped", "minecraft:crafting_shapeless"


def read_recipes(root: Path) -> dict[str, Any]:
    """Return the recipe files by name, from one file with all of them or from a clone's folder.

    Raises MissingFileError if neither exists, and TaskError for a file that is not JSON.
    """
    paths = [root / FILE] if (root / FILE).is_file() else sorted((root / FOLDER).glob("*.json"))
    if not paths:
        raise MissingFileError(
            "task.file_missing", f"Neither {root / FILE} nor {root / FOLDER} exists. Give a copy of AgentGym."
        )
    files = {path.name: read_json(path, dict) for path in paths}
    return dict(files[FILE]) if FILE in files else files


@dataclass(frozen=True, slots=True)
class _Made:
    """A recipe as published. `kind` is the group of its product, and parts may name groups."""

    made: str
    count: int
    parts: tuple[tuple[str, int], ...]
    kind: str | None


class Minecraft:
    """All recipes that TextCraft uses, and the resulting goals."""

    def __init__(self, files: Mapping[str, Any]) -> None:
        """Read the recipes. files: recipes by file name. Raises TaskError with the file for an unreadable one."""
        self._kind_of: dict[str, str] = {}
        self._made: dict[str, list[_Made]] = {}
        self._kinds_made: dict[str, list[_Made]] = {}
        self._below: dict[str, set[str]] = {}
        for name in sorted(files):
            try:
                recipe = _recipe(files[name])
            except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
                raise TaskError(
                    "task.invalid_field", f"Recipe {name} is not a Minecraft recipe: {type(error).__name__}: {error}."
                ) from None
            if recipe is not None:
                self._add(recipe)

    @cached_property
    def book(self) -> Book:
        """The recipes. A group without a craftable member counts as an ordinary thing."""
        kinds: dict[str, list[str]] = {}
        for item, kind in self._kind_of.items():
            kinds.setdefault(kind, []).append(item)
        part_names = {part for recipes in self._made.values() for recipe in recipes for part, _ in recipe.parts}
        # A thing's own recipes come before its namesake group.
        used_kinds = sorted(kind for kind in part_names if kind in kinds and kind not in self._made)
        used_kinds = [kind for kind in used_kinds if any(item in self._made for item in kinds[kind])]
        recipes = [CraftingRecipe(r.made, r.count, r.parts) for recipes in self._made.values() for r in recipes]
        return Book(recipes, {kind: tuple(sorted(kinds[kind])) for kind in used_kinds})

    @cached_property
    def goals(self) -> list[tuple[str, int]]:
        """Every craftable thing with its depth. The index in the list is the goal's number."""
        depths: dict[str, int] = {}

        def depth(name: str) -> int:
            if name not in depths:
                recipes = self._made.get(name) or self._kinds_made.get(name) or ()
                depths[name] = min((max(depth(part) for part, _ in recipe.parts) + 1 for recipe in recipes), default=0)
            return depths[name]

        return sorted(((item, depth(item)) for item in self._made), key=lambda goal: goal[1])

    def _add(self, recipe: _Made) -> None:
        if len(recipe.parts) == 1 and recipe.parts[0][0].endswith(" block"):
            return  # a block taken apart again
        if recipe.kind is not None and recipe.kind != recipe.made:
            self._kind_of[recipe.made] = recipe.kind
        below = self._below.setdefault(recipe.made, set())
        if any(recipe.made in self._below.get(part, ()) for part, _ in recipe.parts):
            return  # it would close a circle
        self._made.setdefault(recipe.made, []).append(recipe)
        for part, _ in recipe.parts:
            below |= {part} | self._below.get(part, set())
        if recipe.kind is not None:
            self._kinds_made.setdefault(recipe.kind, []).append(recipe)


def _recipe(file: Mapping[str, Any]) -> _Made | None:
    """Read one file; None for a recipe that is not crafted on a bench (smelting, stonecutting and the like)."""
    parts: dict[str, int] = {}
    if file["type"] == SHAPED:
        for key, ingredient in file["key"].items():
            name = _name(ingredient)
            parts[name] = parts.get(name, 0) + sum(line.count(key) for line in file["pattern"])
    elif file["type"] == SHAPELESS:
        for name in map(_name, file["ingredients"]):
            parts[name] = parts.get(name, 0) + 1
    else:
        return None
    if not parts or not all(parts.values()):
        raise ValueError("it needs nothing")
    result = file["result"]
    product = result if isinstance(result, str) else result["item"]
    count = 1 if isinstance(result, str) else int(result.get("count") or 1)
    return _Made(_plain(product), count, tuple(parts.items()), _plain(file["group"]) if "group" in file else None)


def _name(ingredient: Any) -> str:
    """Return the ingredient's name; of several alternatives the first, as published."""
    first = ingredient[0] if isinstance(ingredient, list) else ingredient
    return _plain(first["item"] if "item" in first else first["tag"])


def _plain(name: str) -> str:
    return name.removeprefix("minecraft:").replace("_", " ")
