"""Crafting recipes in TextCraft's form, and conclusions from a list of them.

A recipe is its line, ``craft 4 stick using 2 planks``. A thing without a recipe can be fetched. A *kind* (``planks``) means
any one of its members. Neither kinds nor things with a recipe can be fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from userrl_core.errors import TaskError

_COUNTED = re.compile(r"(\d{1,6})\s+(\S.*)")
_CRAFT = re.compile(r"craft\s+(.+?)\s+using\s+(.+)")


@dataclass(frozen=True, slots=True)
class CraftingRecipe:
    """A recipe for `count` of a thing. Each part is a thing or a kind with the number needed."""

    made: str
    count: int
    parts: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return f"craft {self.count} {self.made} using {', '.join(f'{count} {part}' for part, count in self.parts)}"


def counted(text: str) -> tuple[str, int] | None:
    """Parse ``9 emerald`` into thing and number; None for other texts and for the number 0."""
    match = _COUNTED.fullmatch(text.strip())
    return (match[2], int(match[1])) if match and int(match[1]) > 0 else None


def parse_craft(line: str) -> CraftingRecipe | None:
    """Parse a crafting command into a recipe, with repeated parts added up; None for an unreadable command.

    The number of the product may be omitted: the matching recipe gives it.
    """
    match = _CRAFT.fullmatch(line.strip())
    if match is None:
        return None
    product, count = counted(match[1]) or (match[1], 1)
    parts: dict[str, int] = {}
    for text in match[2].split(","):
        part = counted(text)
        if part is None:
            return None
        parts[part[0]] = parts.get(part[0], 0) + part[1]
    return CraftingRecipe(product, count, tuple(parts.items()))


@dataclass(frozen=True)
class Book:
    """Recipes and the kinds that their parts may name."""

    recipes: Sequence[CraftingRecipe]
    kinds: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, lines: Iterable[str], kinds: Mapping[str, Sequence[str]]) -> Book:
        """Read a book from recipes' lines. Raises TaskError for an unreadable line."""
        recipes = []
        for line in lines:
            recipe = parse_craft(line)
            if recipe is None:
                raise TaskError(
                    "task.invalid_field",
                    f"'{line}' is not a crafting recipe. Write it like: craft 4 stick using 2 planks.",
                )
            recipes.append(recipe)
        return cls(recipes, kinds)

    @cached_property
    def by_made(self) -> Mapping[str, Sequence[CraftingRecipe]]:
        """The recipes of each thing that can be made."""
        recipes_of: dict[str, list[CraftingRecipe]] = {}
        for recipe in self.recipes:
            recipes_of.setdefault(recipe.made, []).append(recipe)
        return recipes_of

    @cached_property
    def fetchable(self) -> frozenset[str]:
        """Return the things that occur in a recipe or a kind and that no recipe makes."""
        part_names = {item for recipe in self.recipes for part, _ in recipe.parts for item in self.members(part)}
        return frozenset(part_names - self.by_made.keys())

    def members(self, part: str) -> Sequence[str]:
        """Return the possible things for a part: the thing itself, or each member of the kind."""
        return self.kinds.get(part, (part,))

    def match(self, command: CraftingRecipe) -> CraftingRecipe | None:
        """Return the recipe that a command matches: the same parts in the same numbers, each kind filled by one member."""
        return next(
            (recipe for recipe in self.by_made.get(command.made, ()) if self._stands_for(command, recipe)), None
        )

    def needed(self, goal: str) -> list[CraftingRecipe]:
        """Return every recipe that can take part in making the goal, the goal's own first."""
        recipes: dict[CraftingRecipe, None] = {}
        seen_items, queue = {goal}, [goal]
        while queue:
            for recipe in self.by_made.get(queue.pop(0), ()):
                recipes[recipe] = None
                for item in (item for part, _ in recipe.parts for item in self.members(part)):
                    if item not in seen_items:
                        seen_items.add(item)
                        queue.append(item)
        return list(recipes)

    def _stands_for(self, command: CraftingRecipe, recipe: CraftingRecipe) -> bool:
        counts = dict(command.parts)
        # Things before kinds: a kind may not take what is asked for by name.
        for part, count in sorted(recipe.parts, key=lambda part: part[0] in self.kinds):
            fit = next((item for item in self.members(part) if counts.get(item) == count), None)
            if fit is None:
                return False
            del counts[fit]
        return not counts


def depths(book: Book) -> dict[str, int]:
    """Return the depth of each thing, by its shallowest recipe; 0 for fetched things."""
    depth_of = dict.fromkeys(book.fetchable, 0)
    # Level by level: a thing has depth d when a recipe of it has only parts of less, and none of its recipes had before.
    for depth in range(1, len(book.by_made) + 1):
        level = [
            item
            for item, recipes in book.by_made.items()
            if item not in depth_of
            and any(all(any(m in depth_of for m in book.members(part)) for part, _ in r.parts) for r in recipes)
        ]
        depth_of |= dict.fromkeys(level, depth)
    return depth_of
