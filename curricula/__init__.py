"""Recipes: stages, horizon schedules, task mixes, profiles. See docs/recipes.md."""

from curricula.documents import profile_names, recipe_names
from curricula.load import load
from curricula.recipe import Origin, PlannedStage, Recipe, from_resolved

__all__ = ["Origin", "PlannedStage", "Recipe", "from_resolved", "load", "profile_names", "recipe_names"]
