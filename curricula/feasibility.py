"""Checks of a recipe that need the gyms: tasks solvable within the horizon, and rewards that fit the credit settings."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

from curricula.options import check_drafted_options
from curricula.recipe import Recipe
from userrl_core.errors import ConfigError
from userrl_core.gyms.base import Gym, GymConfig, parse_config
from userrl_core.gyms.registry import (
    PACKAGED,
    USER_KINDS,
    check_task_options,
    clashes,
    gym_class,
    make,
    min_turns,
    names,
    not_installed,
    of_package,
    tasks,
)
from userrl_core.suggest import nearest

SAMPLE = 128
"""Approximate number of a gym's tasks that decide whether a horizon is long enough."""

LACKING = ("webarena", *PACKAGED)
"""Environments of shipped recipes that may be missing here. Such a recipe can be shown, but is refused when it runs."""


def check_gym_names(recipe: Recipe, lacking: Collection[str] = ()) -> None:
    """Raise ConfigError for a gym that is not installed, that several packages define, or that does not exist.

    The last error has the nearest known name. lacking: names that pass anyway.
    """
    gym_names = names()
    named, with_tasks = _named(recipe), (gym for planned in recipe.planned_stages for gym in planned.stage.tasks)
    others = sorted({*recipe.split.held_out, *with_tasks} - {*named, *LACKING})
    for gym in (*named, *others):
        if gym in clashes():
            raise ConfigError("gym.bad_package", clashes()[gym])
        if gym in gym_names or gym in lacking:
            continue
        if gym in PACKAGED:
            raise ConfigError("gym.not_installed", not_installed(gym))
        raise ConfigError(
            "gym.no_such_gym",
            f"Recipe '{recipe.name}' names a gym '{gym}', which does not exist{nearest(gym, gym_names)}. Known: "
            f"{', '.join(sorted(gym_names))}.",
        )


def check_gym_options(recipe: Recipe) -> None:
    """Raise ConfigError for options that a gym or its list of tasks does not have, also of a gym that is not played."""
    for gym, setup in recipe.gyms.items():
        if (kind := _installed(gym)) is not None:
            parse_config(kind, setup.config)
            parse_config(kind, {**setup.config, **setup.evaluation})
            check_task_options(gym, setup.tasks)
    for planned in recipe.planned_stages:
        for gym, options in planned.stage.tasks.items():
            if _installed(gym) is not None:
                check_task_options(gym, options)


def to_install(recipe: Recipe) -> list[str]:
    """Return the sentence with the install command for each gym of the recipe whose package is not installed."""
    return [not_installed(gym) for gym in _named(recipe) if gym in PACKAGED and gym not in names()]


def _named(recipe: Recipe) -> tuple[str, ...]:
    evaluated = () if recipe.evaluate.gyms == "all" else recipe.evaluate.gyms
    return tuple(dict.fromkeys((*recipe.training_gyms, *recipe.gyms, *evaluated)))


def check_users(recipe: Recipe) -> None:
    """Raise ConfigError for a kind of user that a gym does not have, and for options that a user or judge does not accept."""
    for gym in dict.fromkeys((*recipe.gyms, *recipe.training_gyms)):
        evaluated = recipe.evaluate.user if gym in recipe.evaluation_gyms else None
        demonstrated = recipe.demonstrations.user if gym in recipe.played_gyms else None
        for user in (recipe.gym(gym).user, demonstrated, evaluated):
            if user is not None and (user.options if user.kind == "rule" else user.kind not in USER_KINDS):
                make(gym, user=(user.kind, user.options))
    users = {f"gyms.{gym}.user": setup.user for gym, setup in recipe.gyms.items()}
    blocks = {"demonstrations.user": recipe.demonstrations.user, "evaluate.user": recipe.evaluate.user, **users}
    for label, user in blocks.items():
        if user is not None:
            check_drafted_options(user.kind, user.options, user.population, label)
    for label, judge in {"judge": recipe.judge, "intervention": recipe.intervention}.items():
        if judge is not None:
            check_drafted_options("openai", judge.options, None, label)
    check_drafted_options("openai", recipe.demonstrations.server, None, "demonstrations.server")


def check_horizons(recipe: Recipe) -> list[str]:
    """Return warnings about stages that leave fewer than half of a gym's tasks solvable in time.

    If no task can be solved, raises ConfigError, or warns if the recipe allows short horizons. Such a stage teaches blind
    guessing (measured: travel ends at 0.3 with horizons 2, 4, 6 and at 0.8 with 4, 5, 6).
    """
    warnings: list[str] = []
    for planned in recipe.planned_stages:
        horizon = planned.horizon if planned.horizon is not None else recipe.schedule.levels()[0].horizon
        for gym in planned.stage.gyms:
            options = {**recipe.gym(gym).tasks, **planned.stage.tasks.get(gym, {})}
            turns = solving_turns(recipe, gym, options, horizon)
            if turns is None:
                warnings.append(
                    f"Gym '{gym}' is not installed here, so nothing says whether horizon {horizon} is enough."
                )
            if not turns:
                continue
            share = sum(t <= horizon for t in turns) / len(turns)
            where = f"stages[{planned.number - 1}]" if recipe.horizons is None else f"stage {planned.name}"
            if share == 0.0:
                sentence = (
                    f"Horizon {horizon} of {where} cannot solve any task of gym '{gym}' (the shortest takes "
                    f"{min(turns)} turns). Raise it to {min(turns)} or more, or set allow_short_horizon: true."
                )
                if not recipe.allow_short_horizon:
                    raise ConfigError("recipe.short_horizon", sentence)
                warnings.append(sentence)
            elif share < 0.5:
                warnings.append(
                    f"Horizon {horizon} of {where} lets only {share:.0%} of gym '{gym}' be solved "
                    f"(half of its tasks take {sorted(turns)[len(turns) // 2]} turns or more)."
                )
    return warnings


def solving_turns(recipe: Recipe, gym: str, options: dict[str, Any], horizon: int) -> Sequence[int] | None:
    """Return the fewest solving turns of a gym's training tasks; empty for unavailable tasks, None without the gym.

    A sample decides first, and all tasks before a horizon is refused: some gyms plan a whole conversation per task.
    """
    if gym not in names() or recipe.gym(gym).published is not None:
        return ()
    kind = _installed(gym)
    if kind is None:
        return None
    config = parse_config(kind, recipe.gym(gym).config)
    task_options = _Options(options)
    sampled_turns = _turns(gym, task_options, config, SAMPLE)
    return sampled_turns if any(t <= horizon for t in sampled_turns) else _turns(gym, task_options, config, None)


class _Options(dict[str, Any]):
    """Options of tasks as a key of a cache: they may hold lists."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(repr(sorted(self.items())))


@lru_cache(maxsize=64)
def _turns(gym: str, options: _Options, config: GymConfig, sample_size: int | None) -> tuple[int, ...]:
    every_task = tasks(gym, "train", **options)
    if not len(every_task):
        raise ConfigError(
            "task.none_left",
            f"Gym '{gym}' has no training tasks with the options {options}. Correct gyms.{gym}.tasks.",
        )
    step = 1 if sample_size is None else max(len(every_task) // sample_size, 1)
    return tuple(min_turns(task, config) for task in every_task[::step])


def check_credit(recipe: Recipe) -> None:
    """Raise ConfigError if a training gym's rewards do not fit the credit settings.

    Form ``released`` inverts signs if shaped credit may be negative. Shaping ``em`` needs rewards in [0, 1].
    """
    credit = recipe.credit
    less = " (less credit.terms.unsupported_penalty)" if credit.terms.unsupported_penalty else ""
    for gym in recipe.training_gyms:
        reward_bounds = reward_range(recipe, gym)
        if reward_bounds is None:
            continue
        low, high = reward_bounds
        if recipe.judge is not None:
            # A turn judge's rewards replace the gym's (TARL section 3.2).
            low, high = min(low, recipe.judge.deviation), recipe.judge.terminal + recipe.judge.good
        if credit.form == "released" and credit.shaping in ("naive", "r2g") and low < 0:
            raise ConfigError(
                "credit.negative",
                f"Gym '{gym}' gives rewards down to {low:g}{less}, and form released inverts the sign of "
                "negative credit. Set credit.form to paper, or credit.shaping to equalized.",
            )
        if credit.shaping == "em" and (low < 0 or high > 1):
            raise ConfigError(
                "credit.out_of_range",
                f"Gym '{gym}' gives rewards from {low:g} to {high:g}{less}, and shaping em needs them in [0, "
                f"1]. Set gyms.{gym}.config.reward_scale, or use another shaping.",
            )


def reward_range(recipe: Recipe, gym: str) -> tuple[float, float] | None:
    """Return the smallest and largest reward of one turn of a gym, under the recipe's config and optional terms.

    None if the gym is not available.
    """
    kind = _installed(gym) if gym in names() else None
    if kind is None:
        return None
    config = parse_config(kind, recipe.gym(gym).config)
    with of_package(gym, "its bounds of rewards cannot be computed"):
        bounds = kind.reward_bounds(config)
    ends = [end * config.reward_scale - config.step_penalty for end in (bounds.low, bounds.high)]
    low, high = min(ends), max(ends)
    penalty = recipe.credit.terms.unsupported_penalty
    if penalty:
        # Only rewarded answers lose it, so the smallest of them falls lowest.
        smallest = bounds.answer * config.reward_scale - config.step_penalty if config.step_penalty >= 0 else 0.0
        low = min(low, max(smallest, 0.0) - penalty)
    return low, high


def _installed(gym: str) -> type[Gym[Any]] | None:
    try:
        return gym_class(gym)
    except ImportError:
        return None
