"""The tasks of a run for training, for choosing checkpoints and for testing."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from curricula.recipe import Recipe
from curricula.spec import FOLDER, UserSetup
from userrl.machine.hashes import path_hash
from userrl.machine.home import imported_tasks, published_data
from userrl_core import gyms
from userrl_core.errors import ConfigError, TaskError, UserRLError, in_one_line
from userrl_core.gyms.published import PAPER_GYMS, published_tasks, with_prompt
from userrl_core.gyms.registry import gym_class, released_module
from userrl_core.gyms.taskfile import read_tasks
from userrl_core.gyms.tau.database import policy_file
from userrl_core.judging.released import FILE as PROMPT_FILE
from userrl_core.judging.released import read_prompt
from userrl_core.records import Task
from userrl_core.rewards.judge import JudgeConfig
from userrl_core.seeding import content_hash, derive_seed, validation_of
from userrl_core.suggest import nearest
from userrl_core.training.jobs import User
from userrl_core.user_path import user_path


def tasks_of(recipe: Recipe, gym: str, split: str, options: dict[str, Any] | None = None) -> list[Task]:
    """Return the tasks of a gym's split as the recipe sets it up.

    Published tasks keep their split. A share of their training tasks becomes validation, by a hash of the content. options:
    task options instead of the recipe's, such as a stage's simpler tier. Raises ConfigError for an empty split.
    """
    setup = recipe.gym(gym)
    tasks = _playable(_tasks_of(recipe, gym, split, options), gym, split)
    if setup.published == FOLDER and recipe.model.prompt_style == "released":
        folder = _data_folder(recipe)
        tasks = [with_prompt(task, folder, {**setup.config, **setup.evaluation}) for task in tasks]
    if not tasks:
        raise ConfigError(
            "task.none_left", f"Gym '{gym}' has no {split} task with these options. Check gyms.{gym} in the recipe."
        )
    return tasks


def _tasks_of(recipe: Recipe, gym: str, split: str, options: dict[str, Any] | None = None) -> list[Task]:
    """Return the tasks of a gym's split, with those that were published without their data."""
    setup = recipe.gym(gym)
    if setup.published is None:
        return list(gyms.tasks(gym, split, **(setup.tasks if options is None else options)))
    if setup.published == FOLDER:
        every: Iterable[Task] = published_tasks(gym, _data_folder(recipe), recipe.published, recipe.split.validation)
    else:
        every = [_resplit(task, recipe.split.validation) for task in given_tasks(gym, setup.published)]
    return [task for task in every if task.split == split]


def check_only(recipe: Recipe) -> None:
    """Raise ConfigError for a name in ``gyms.NAME.only`` that no test task of the gym has, where its tasks can be read."""
    for gym in evaluation_gyms(recipe):
        if not (only := recipe.gym(gym).only):
            continue
        try:
            kinds = {kind for task in _tasks_of(recipe, gym, "test") for kind in _kinds(task)}
            if not kinds.issuperset(only):  # a name may be of tasks that the recipe's options leave out
                kinds |= {kind for task in _tasks_of(recipe, gym, "test", {}) for kind in _kinds(task)}
        except (UserRLError, ImportError):
            continue  # the verdict or the stage says what is missing
        if (unknown := next((name for name in only if name not in kinds), None)) is not None:
            raise ConfigError(
                "task.none_left",
                f"gyms.{gym}.only names '{unknown}'{nearest(unknown, kinds)}, and no test task belongs to it. "
                f"Use some of {', '.join(sorted(kinds)) or 'none: omit it'}.",
            )


def _kinds(task: Task) -> set[str]:
    """Return the tier and the composition of a task."""
    return {task.tier, str(task.payload.get("composition", ""))} - {""}


def data_used(recipe: Recipe) -> dict[str, str]:
    """Describe the tasks of each gym of the recipe. For released databases, also say whose policy text the agent reads."""
    used = {gym: recipe.data_of(gym) for gym in recipe.played_gyms}
    if "tau" in used and recipe.gym("tau").published is not None:
        folders = {task.payload.get("database") for task in tasks_of(recipe, "tau", "test")} - {None}
        released = {policy_file(Path(str(folder))).is_file() for folder in folders}
        policy_source = (
            "policy from wiki.md"
            if released == {True}
            else "policy: ours"
            if True not in released
            else "policy: part ours"
        )
        used["tau"] += f", {policy_source}"
    return used


def count_published(gym: str, published: str, validation: float) -> int | None:
    """Count the playable training tasks among a gym's published ones. None if they cannot be read."""
    try:
        resplit = [_resplit(task, validation) for task in given_tasks(gym, published)]
    except UserRLError:
        return None
    return sum(task.split == "train" and "unplayable" not in task.payload for task in resplit)


def given_tasks(gym: str, published: str) -> list[Task]:
    """Return the tasks of ``gyms.NAME.published``: ``imported``, a file of tasks (.jsonl), or a released repository.

    Raises ConfigError or TaskError if they are missing or belong to another gym.
    """
    path = _given_path(gym, published)
    if published == "imported" and not path.is_file():
        raise ConfigError(
            "task.none_imported",
            f"No {gym} tasks were imported. Run: userrl tasks import --from FOLDER --gym {gym}.",
        )
    if published != "imported" and not published.endswith(".jsonl"):
        return gyms.load_published(gym, path)
    tasks = read_tasks(path)
    other = next((task for task in tasks if task.gym != gym), None)
    if other is not None:
        raise ConfigError(
            "task.wrong_gym",
            f"{path} contains a {other.gym} task, and gyms.{gym}.published names it. Give a file of {gym} tasks.",
        )
    return tasks


TRIED = 200
"""Tasks of a person's file that are made before a run begins. Some gyms take 7 ms for each."""


def check_own_file(gym: str, published: str, config: Mapping[str, Any]) -> None:
    """Raise ConfigError or TaskError for a person's file of tasks that this gym cannot play, before a run begins.

    config: the gym's options. Tasks that say themselves that they are unplayable are left to the run, which skips them.
    """
    tasks = given_tasks(gym, published)
    if not tasks:
        raise TaskError("task.none_left", f"{published} contains no task.")
    (split, task_id), number = Counter((task.split, task.id) for task in tasks).most_common(1)[0]
    if number > 1:
        raise TaskError(
            "task.invalid_field",
            f"{published} contains {split} task {task_id} {number} times. Give each task of a split its own id.",
        )
    for task in [task for task in tasks if "unplayable" not in task.payload][:TRIED]:
        try:
            gyms.make(gym, task, **config)
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            if isinstance(error, UserRLError):
                raise
            problem = f"it has no {error}" if isinstance(error, KeyError) else in_one_line(error)
            raise TaskError(
                "task.invalid_field",
                f"{published}: gym '{gym}' cannot read the payload of task {task.id} ({problem}). "
                f"For an example: userrl tasks generate {gym} --out FILE, or userrl tasks show {gym}.",
            ) from error


def _given_path(gym: str, published: str) -> Path:
    """Return the file or folder of ``gyms.NAME.published``."""
    return imported_tasks(gym) if published == "imported" else user_path(published)


def _data_folder(recipe: Recipe) -> Path:
    return Path(recipe.data_folder) if recipe.data_folder else published_data()


def task_sources(recipe: Recipe, gym: str) -> dict[str, tuple[Path, ...]]:
    """Return the files and folders that a gym's tasks and databases are read from, by the recipe's key. Empty for our own."""
    setup = recipe.gym(gym)
    sources: dict[str, tuple[Path, ...]] = {
        f"gyms.{gym}.{part}.database": (Path(str(folder)),)
        for part, options in (("config", setup.config), ("evaluation", setup.evaluation))
        if (folder := options.get("database"))
    }
    if setup.published == FOLDER:
        folder = _data_folder(recipe)
        parts = ("userrl", "tau-bench") if gym == "tau" else ("userrl" if gym in PAPER_GYMS else "agentgym",)
        return {**sources, **{f"data_folder/{part}": (folder / part,) for part in parts}}
    if setup.published is None or not (path := _given_path(gym, setup.published)).exists():
        return sources
    databases = (
        _databases(gym, setup.published, path_hash(path))
        if "database" in gym_class(gym).config_type.model_fields
        else ()
    )
    return {**sources, f"gyms.{gym}.published": (path, *databases)}


def text_sources(recipe: Recipe, gym: str, role: str) -> dict[str, tuple[Path, ...]]:
    """Return the parts of the folder of published data with the released texts of a gym's agent and user, by the key."""
    user = user_of_role(recipe, role) or recipe.gym(gym).user
    of_user = user.options.get("prompts") == "released" and bool(gym_class(gym).users)
    # The prompts of other gyms' agents are in the part that has the published tasks.
    of_agent = gym == "travel" and recipe.model.prompt_style == "released" and recipe.gym(gym).published == FOLDER
    if not (of_user or of_agent):
        return {}
    parts = {"tau": ("tau-bench",), "travel": ("userrl", "userbench")}.get(gym, ("userrl",))
    return {f"data_folder/{part}": (_data_folder(recipe) / part,) for part in parts}


@lru_cache(maxsize=32)
def _databases(gym: str, published: str, content: str) -> tuple[Path, ...]:
    """Return the folders that published tasks name as their databases. content: hash of the tasks."""
    try:
        tasks = given_tasks(gym, published)
    except UserRLError:
        return ()  # the stage that plays them refuses them
    return tuple(Path(folder) for folder in sorted({str(task.payload.get("database") or "") for task in tasks} - {""}))


def _playable(tasks: list[Task], gym: str, split: str) -> list[Task]:
    """Drop tasks that were published without their data, and print how many. Raises ConfigError if none is left."""
    playable = [task for task in tasks if "unplayable" not in task.payload]
    if len(playable) < len(tasks):
        why = next(task.payload["unplayable"] for task in tasks if "unplayable" in task.payload)
        count = f"{len(tasks) - len(playable)} of {len(tasks)} published {split} tasks of gym '{gym}'"
        if not playable:
            raise ConfigError("task.none_left", f"No task is left, because {count} cannot be played: {why}.")
        print(f"skipped {count}: {why}", flush=True)
    return playable


def _resplit(task: Task, share: float) -> Task:
    if task.split != "train":
        return task
    return dataclasses.replace(task, split=validation_of(content_hash(task.payload), share))


def sample(tasks: list[Task], limit: int | None, *seed: object) -> list[Task]:
    """Return at most this many tasks: those with the lowest draw, independent of the order of the list."""
    if limit is None or len(tasks) <= limit:
        return tasks
    return sorted(tasks, key=lambda task: derive_seed(*seed, task.key))[:limit]


def validation_tasks(recipe: Recipe) -> list[Task]:
    """Return the tasks for choosing checkpoints: the same number from every training gym, the same for every seed."""
    trained = recipe.training_gyms
    per_gym = max(1, recipe.evaluate.validation_tasks // max(1, len(trained)))
    return [task for gym in trained for task in sample(tasks_of(recipe, gym, "validation"), per_gym, "validate", gym)]


def demonstrated_gyms(recipe: Recipe) -> tuple[str, ...]:
    """Return the gyms of demonstrations: the training gyms, or the evaluation gyms if only a cold start is trained."""
    return recipe.training_gyms or evaluation_gyms(recipe)


def evaluation_gyms(recipe: Recipe) -> tuple[str, ...]:
    """Return the gyms whose test split is played."""
    return recipe.evaluation_gyms


def test_tasks(recipe: Recipe, seed: int) -> list[Task]:
    """Return held-out tasks of every evaluated gym: at most ``evaluate.tasks`` per gym, ``total`` in all.

    They are the same for every seed, unless ``evaluate.draw`` is ``seed``.
    """
    drawn = ("evaluate", seed) if recipe.evaluate.draw == "seed" else ("evaluate",)
    among = {gym: _only(recipe, gym, tasks_of(recipe, gym, "test")) for gym in evaluation_gyms(recipe)}
    limits = {gym: min(len(tasks), recipe.evaluate.tasks or len(tasks)) for gym, tasks in among.items()}
    if recipe.evaluate.total is not None:
        limits = equal_shares(limits, recipe.evaluate.total)
    return [task for gym, tasks in among.items() for task in sample(tasks, limits[gym], *drawn, gym)]


def equal_shares(limits: Mapping[str, int], total: int) -> dict[str, int]:
    """Share a total equally, limited by each maximum. The remainder goes to the first that have more."""
    shares = dict.fromkeys(limits, 0)
    while (left := total - sum(shares.values())) > 0:
        open_ = [name for name, limit in limits.items() if shares[name] < limit]
        if not open_:
            break
        share = max(left // len(open_), 1)
        for name in open_[:left]:
            shares[name] = min(shares[name] + share, limits[name])
    return shares


def _only(recipe: Recipe, gym: str, tasks: list[Task]) -> list[Task]:
    """Return the tasks of the tiers or compositions in ``gyms.NAME.only``. Raises ConfigError if there are none."""
    only = recipe.gym(gym).only
    if not only:
        return tasks
    chosen = [task for task in tasks if not _kinds(task).isdisjoint(only)]
    if not chosen:
        raise ConfigError(
            "task.none_left", f"gyms.{gym}.only is {', '.join(only)}, and no test task belongs to it. Omit it."
        )
    return chosen


def demonstration_tasks(recipe: Recipe, gym: str, seed: int) -> list[Task]:
    """Return all training tasks of a gym in the order of demonstrations: random, and the same for the same seed."""
    return sorted(tasks_of(recipe, gym, "train"), key=lambda task: derive_seed("demonstrate", seed, task.key))


def rl_tasks(recipe: Recipe, gym: str, used: Collection[str], options: dict[str, Any] | None = None) -> list[Task]:
    """Return the training tasks that demonstrations did not use.

    Raises ConfigError if none are left.
    """
    unused = [task for task in tasks_of(recipe, gym, "train", options) if task.key not in used]
    if not unused:
        raise ConfigError(
            "task.none_left",
            f"Demonstrations used every training task of gym '{gym}'. Lower demonstrations.episodes or top_k, "
            "so that some are left for reinforcement learning.",
        )
    return unused


def users_of(recipe: Recipe, played: Collection[str], *, role: str) -> dict[str, User]:
    """Return the user of each played gym. role: train, demonstrate or evaluate; demonstrations name one user for all.

    The profile's user model gets the profile's address, unless the recipe gives one.
    """
    chosen = user_of_role(recipe, role)
    return {gym: _placed(recipe.gym(gym).user if chosen is None else chosen, recipe, gym) for gym in played}


def user_of_role(recipe: Recipe, role: str) -> UserSetup | None:
    """Return the one user of demonstrations or evaluations, in place of the gyms' own. None without one. role: as in `users_of`."""
    return {"demonstrate": recipe.demonstrations.user, "evaluate": recipe.evaluate.user}.get(role)


def judge_of(recipe: Recipe) -> JudgeConfig | None:
    """Return the judge of turns, with the folder of its prompt if that is released."""
    judge = recipe.judge
    if judge is None or judge.prompts == "ours" or judge.texts is not None:
        return judge
    read_prompt(_data_folder(recipe))
    return judge.model_copy(update={"texts": str(_data_folder(recipe))})


def judge_prompt(recipe: Recipe) -> Path | None:
    """Return the file of the judge's released prompt. None for a judge with our prompt."""
    judge = recipe.judge
    return None if judge is None or judge.prompts == "ours" else Path(judge.texts or _data_folder(recipe)) / PROMPT_FILE


def own_user_url(recipe: Recipe) -> str | None:
    """Return the address of the server that a run starts for its users. None if it starts none."""
    hardware = recipe.hardware
    if hardware.user_url is not None or (hardware.user_gpus is None and hardware.user_command is None):
        return None
    return f"http://127.0.0.1:{hardware.user_port}/v1"


def _placed(user: UserSetup, recipe: Recipe, gym: str) -> User:
    if user.options.get("prompts") == "released" and gym_class(gym).users:
        # Named here and not in the recipe: a run's id does not depend on where the copy is. Read here, so that a missing copy is
        # refused before anything is played.
        released_module(gym).read_texts(_data_folder(recipe))
        user = user.model_copy(update={"options": {**user.options, "texts": str(_data_folder(recipe))}})
    url = recipe.hardware.user_url or own_user_url(recipe)
    model = user.options.get("model")
    if url is None or user.kind != "openai" or model != recipe.hardware.user_model or "base_url" in user.options:
        return user.as_argument()
    return user.model_copy(update={"options": {**user.options, "base_url": url}}).as_argument()


PLAYED: dict[str, tuple[str, Callable[[Recipe], Collection[str]]]] = {
    "distill": ("demonstrate", demonstrated_gyms),
    "rl": ("train", lambda recipe: recipe.training_gyms),
    "evaluate": ("evaluate", evaluation_gyms),
}
"""Kinds of stages that play conversations: the role of their users, and the gyms."""


def gym_config(recipe: Recipe, *, evaluation: bool = False) -> dict[str, dict[str, Any]]:
    """Return the options of each gym that has any. evaluation: use the held-out evaluation's options, where they differ."""
    options = {
        name: {**setup.config, **(setup.evaluation if evaluation else {})} for name, setup in recipe.gyms.items()
    }
    return {name: fields for name, fields in options.items() if fields}
