"""The fewest turns that make a goal: one turn per fetched thing and per use of a recipe.

A thing is fetched once, in any number. The A* search goes from the goal down. It reaches a thing only after all its products,
when the number needed is known. It tries each choice of recipes, and of members for kinds, the cheapest first.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from userrl_core.errors import TaskError
from userrl_core.gyms.textcraft.crafting import Book, CraftingRecipe

Plan = list[tuple[str, int] | CraftingRecipe]
"""Turns in order: a thing to fetch with its number, or a recipe to use with kinds filled in."""


def plan(book: Book, goal: str) -> Plan:
    """Return a shortest plan for the goal. Raises TaskError if the goal cannot be made."""
    order = _top_down(book, goal)
    recipes_of = {item: list(_filled(book, item)) for item in order}
    ticket = itertools.count()
    start = ({goal: 1}, frozenset[str](), ())
    queue: list[tuple[int, int, int, tuple[dict[str, int], frozenset[str], tuple[CraftingRecipe, ...]]]] = [
        (0, 0, 0, start)
    ]
    best: dict[tuple[frozenset[tuple[str, int]], frozenset[str]], int] = {}
    while queue:
        _, _, _, (needs, fetched, used) = heapq.heappop(queue)
        item = next((item for item in order if item in needs), None)
        if item is None:
            return _in_order(used, order)
        for recipes in _covers(recipes_of[item], needs[item]):
            after, got = {other: count for other, count in needs.items() if other != item}, fetched
            for part, count in (part for recipe in recipes for part in recipe.parts):
                if part in recipes_of:
                    after[part] = after.get(part, 0) + count
                else:
                    got = got | {part}
            cost = len(used) + len(recipes) + len(got)
            state = (frozenset(after.items()), got)
            if cost < best.get(state, cost + 1):
                best[state] = cost
                bound = cost + sum(
                    -(-count // max(recipe_choice.count for recipe_choice in recipes_of[other]))
                    for other, count in after.items()
                )
                heapq.heappush(queue, (bound, -cost, next(ticket), (after, got, used + recipes)))
    raise TaskError("task.not_playable", f"'{goal}' cannot be crafted from the items that its recipes name.")


def _top_down(book: Book, goal: str) -> list[str]:
    """Return the things to make on the way to the goal, each after all its products."""
    sorter: TopologicalSorter[str] = TopologicalSorter({goal: ()})
    for recipe in book.needed(goal):
        for item in (item for part, _ in recipe.parts for item in book.members(part)):
            if item in book.by_made:
                sorter.add(item, recipe.made)
    try:
        return list(sorter.static_order())
    except CycleError as error:
        raise TaskError(
            "task.not_playable", f"The recipes of '{goal}' form a circle: {' -> '.join(error.args[1])}."
        ) from None


def _filled(book: Book, item: str) -> Iterator[CraftingRecipe]:
    """Yield the thing's recipes with every choice of members for their kinds."""
    for recipe in book.by_made.get(item, ()):
        for members in itertools.product(*(book.members(part) for part, _ in recipe.parts)):
            parts: dict[str, int] = {}
            for member, (_, count) in zip(members, recipe.parts, strict=True):
                parts[member] = parts.get(member, 0) + count
            if len(parts) == len(recipe.parts):
                yield CraftingRecipe(item, recipe.count, tuple(parts.items()))


def _covers(recipes: list[CraftingRecipe], needed: int, first: int = 0) -> Iterator[tuple[CraftingRecipe, ...]]:
    """Yield every multiset of recipes that makes enough, with no superfluous last recipe."""
    for number, recipe in enumerate(recipes[first:], first):
        if recipe.count >= needed:
            yield (recipe,)
        else:
            for other_recipes in _covers(recipes, needed - recipe.count, number):
                yield (recipe, *other_recipes)


def _in_order(used: tuple[CraftingRecipe, ...], order: list[str]) -> Plan:
    """Order a plan: fetched things, then the recipes from the bottom up."""
    position: Mapping[str, int] = {item: number for number, item in enumerate(order)}
    fetch_counts: dict[str, int] = {}
    for part, count in (part for recipe in used for part in recipe.parts):
        if part not in position:
            fetch_counts[part] = fetch_counts.get(part, 0) + count
    return [*fetch_counts.items(), *sorted(used, key=lambda recipe: -position[recipe.made])]
