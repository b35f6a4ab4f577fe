"""Recipes: stages, horizon schedules, task mixes, profiles. See docs/recipes.md."""

from curricula.load import Draft, draft, from_resolved, load
from curricula.recipe import Origin, PlannedStage, Recipe
from curricula.yaml_files import profile_names, recipe_names

__all__ = [
    "Draft",
    "Origin",
    "PlannedStage",
    "Recipe",
    "draft",
    "from_resolved",
    "load",
    "profile_names",
    "recipe_names",
]
