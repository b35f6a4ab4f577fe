"""Families of tasks that a run evaluates beside its own: forgetting is total and invisible where nobody looks.

Every run evaluates every gym that it or its checkpoint was ever trained on, set up as it was in that training: tasks, user,
horizon and room for tokens. A checkpoint's past is read from the runs whose folders it and its ancestors lie in.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from curricula import Recipe
from userrl.machine.home import in_home_of
from userrl.run.run import RunDescription, read_record
from userrl_core.errors import ConfigError


def other_families(recipe: Recipe, start: str | None) -> tuple[Recipe, ...]:
    """One recipe per gym to be evaluated beside the recipe's own, which names that gym alone.

    start: the checkpoint that training or the evaluation begins with. Gyms of the recipe's own training come first; of
    several runs that trained on a gym, the latest says how it was set up.
    """
    known = set(recipe.evaluation_gyms)
    families: list[Recipe] = []
    for origin in (recipe, *_past(start)):
        for gym in origin.training_gyms:
            if gym not in known:
                known.add(gym)
                families.append(_alone(recipe, origin, gym))
    return tuple(families)


def _alone(recipe: Recipe, origin: Recipe, gym: str) -> Recipe:
    """The recipe with one gym of another's, and that one's lengths. The model and how it is sampled stay its own."""
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
    """The recipes of the runs that made a checkpoint, the latest first. None for a model that no run of ours made."""
    seen: set[Path] = set()
    while start is not None:
        file = next((folder / "run.json" for folder in Path(start).parents if (folder / "run.json").is_file()), None)
        if file is None or file in seen:
            return
        seen.add(file)
        record = read_record(file)
        try:
            description = RunDescription.model_validate(record)
            yield Recipe.model_validate(description.resolved)
        except (ValidationError, ConfigError):
            return  # a folder of another kind, or a recipe of a version that this one cannot read
        start = description.init_from and in_home_of(file.parents[1], description.init_from)
