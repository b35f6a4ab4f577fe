"""Recipes: stages, horizon schedules, task mixes, profiles."""
