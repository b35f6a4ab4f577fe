"""Additional task families to evaluate, because forgetting is total, and invisible without evaluation.

Every run evaluates every gym that it or its checkpoint was trained on. Tasks, user, horizon and token limits are the
same as in that training. A checkpoint's past is read from the runs whose folders contain it and its ancestors.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from curricula import Recipe
from userrl.machine.home import in_home_of
from userrl.run.run import RunDescription, from_stored, read_record
from userrl_core.errors import ConfigError


def other_families(recipe: Recipe, start: str | None) -> tuple[Recipe, ...]:
    """Return one recipe for each additional gym to evaluate. Each names only that gym.

    start: the checkpoint that training or the evaluation begins with. Gyms of the recipe's own training come first. If
    several runs trained on a gym, the latest run's settings are used.
    """
    evaluated_gyms = set(recipe.evaluation_gyms)
    families: list[Recipe] = []
    for origin in (recipe, *_past(start)):
        for gym in origin.training_gyms:
            if gym not in evaluated_gyms:
                evaluated_gyms.add(gym)
                families.append(_alone(recipe, origin, gym))
    return tuple(families)


def _alone(recipe: Recipe, origin: Recipe, gym: str) -> Recipe:
    """Return the recipe with one gym and its lengths from another recipe. The model and its sampling stay unchanged."""
    setup = origin.gym(gym)
    setup = setup.model_copy(update={"user": origin.evaluate.user or setup.user})
    lengths = ("max_tokens", "max_response_tokens", "max_prompt_tokens")
    room = {name: max(getattr(recipe.algorithm, name), getattr(origin.algorithm, name)) for name in lengths}
    evaluate = {"gyms": (gym,), "horizon": origin.evaluate.horizon, "user": None}
    return recipe.model_copy(
        update={
            "gyms": {gym: setup},
            "algorithm": recipe.algorithm.model_copy(update=room),
            "evaluate": recipe.evaluate.model_copy(update=evaluate),
            "data_folder": origin.data_folder or recipe.data_folder,
            "published": origin.published,
        }
    )


def _past(start: str | None) -> Iterator[Recipe]:
    """Yield the recipes of the runs that made a checkpoint, latest first. Yields nothing for a model that no run of
    ours made.
    """
    visited: set[Path] = set()
    while start is not None:
        file = next((folder / "run.json" for folder in Path(start).parents if (folder / "run.json").is_file()), None)
        if file is None or file in visited:
            return
        visited.add(file)
        record = read_record(file)
        try:
            description = from_stored(RunDescription, record or {})
            yield Recipe.model_validate(description.resolved)
        except (TypeError, ValidationError, ConfigError):
            return  # another kind of folder, or a recipe of a version that cannot be read
        start = description.init_from and in_home_of(file.parents[1], description.init_from)
