"""Which gyms there are: one line each. Modules are imported on first use, so that starting up stays quick."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from userrl_core.errors import ConfigError, TaskError
from userrl_core.gyms.base import Gym, GymConfig, parse_config
from userrl_core.nearest import nearest
from userrl_core.records import Task
from userrl_core.seeding import derive_seed


@dataclass(frozen=True, slots=True)
class GymSpec:
    """Where the parts of a gym are: ``module:Class`` paths.

    tasks: a module with ``tasks(split, **options) -> Sequence[Task]``, ``generate(n, seed, **options) -> list[Task]`` and,
    where published tasks exist, ``load_published(root: Path) -> list[Task]``. demonstrator: a class
    ``(task, rng, skill, config)`` with ``act(observation: str) -> InteractCall``.
    """

    gym: str
    tasks: str
    demonstrator: str


def _spec(name: str, kind: str) -> GymSpec:
    return GymSpec(
        gym=f"userrl_core.gyms.{name}:{kind}Gym",
        tasks=f"userrl_core.gyms.tasks.{name}",
        demonstrator=f"userrl_core.policies.demonstrators.{name}:{kind}Demonstrator",
    )


REGISTRY: dict[str, GymSpec] = {
    "travel": _spec("travel", "Travel"),
    "function": _spec("function", "Function"),
    "intention": _spec("intention", "Intention"),
    "turtle": _spec("turtle", "Turtle"),
    "persuade": _spec("persuade", "Persuade"),
    "telepathy": _spec("telepathy", "Telepathy"),
    "search": _spec("search", "Search"),
    "tau": _spec("tau", "Tau"),
    "math": _spec("math", "Math"),
}


def names() -> tuple[str, ...]:
    """All gyms, in the registry's order."""
    return tuple(REGISTRY)


def spec(name: str) -> GymSpec:
    """Raises ConfigError naming the nearest known gym."""
    if name not in REGISTRY:
        raise ConfigError(f"There is no gym '{name}'{nearest(name, REGISTRY)}. Known: {', '.join(REGISTRY)}.")
    return REGISTRY[name]


def gym_class(name: str) -> type[Gym[Any]]:
    """The gym's class."""
    kind: type[Gym[Any]] = _load(spec(name).gym)
    return kind


def make(name: str, task: Task | None = None, user: Any = "rule", **config: Any) -> Gym[Any]:
    """A gym for one attempt.

    task: None takes the first training task. user: a kind (``rule``, ``openai``, ``human``), a ``(kind, options)`` pair, or
    a ready user object. config: fields of the gym's config. Raises ConfigError for an unknown name, kind or option.
    """
    kind = gym_class(name)
    settings = parse_config(kind, config)
    if task is None:
        task = tasks(name, "train")[0]
    if task.gym != name:
        raise ConfigError(f"Task {task.key} is not a task of gym '{name}'.")
    return kind(task, user=make_user(kind, task, user), config=settings)


_USER_KINDS = ("rule", "openai", "human")
"""What a run may ask of every gym; one without a user ignores it."""


def make_user(kind: type[Gym[Any]], task: Task, user: Any) -> Any:
    """The user object for a task: built from its kind (None: the rule user), or passed through. None without any user.

    Raises ConfigError for a kind that the gym lacks and for options that its user does not take.
    """
    user = "rule" if user is None else user
    if not isinstance(user, (str, tuple)):
        return user
    if isinstance(user, tuple) and len(user) != 2:
        raise ConfigError(f"A user is a kind or a pair of kind and options, not {user!r}.")
    name, options = user if isinstance(user, tuple) else (user, {})
    if not kind.users and name in _USER_KINDS:
        return None
    if name not in kind.users:
        raise ConfigError(f"Gym '{kind.name}' has no '{name}' user; it has {', '.join(kind.users or _USER_KINDS)}.")
    rng = random.Random(derive_seed("user", kind.name, task.id))
    try:
        return kind.users[name](task, rng, **options)
    except (TypeError, ValidationError) as error:
        what = str(error).replace("\n", " ")[:200]
        raise ConfigError(f"The '{name}' user of gym '{kind.name}' does not take these options ({what}).") from error


def tasks(name: str, split: str, **options: Any) -> Sequence[Task]:
    """The gym's own tasks of a split (``train``, ``validation``, ``test``); options such as ``tier`` are the gym's."""
    if split not in ("train", "validation", "test"):
        raise ConfigError(f"There is no split '{split}'; there are train, validation and test.")
    words = tuple(sorted(options.items()))
    return _tasks(name, split, words) if hashable(words) else _tasks.__wrapped__(name, split, words)


def hashable(value: object) -> bool:
    """Whether a cache can take this; a recipe's options may hold lists."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


@lru_cache(maxsize=64)
def _tasks(name: str, split: str, options: tuple[tuple[str, Any], ...]) -> Sequence[Task]:
    module = import_module(spec(name).tasks)
    try:
        found: Sequence[Task] = module.tasks(split, **dict(options))
    except TypeError as error:
        lists = [key for key, value in options if not hashable(value)]
        why = f"give {lists[0]} a single value" if lists else error
        raise ConfigError(f"The tasks of gym '{name}' do not take these options: {dict(options)} ({why}).") from error
    return found


def generate(name: str, n: int, seed: int, **options: Any) -> list[Task]:
    """n new tasks from the gym's generator, the same for the same seed."""
    found: list[Task] = import_module(spec(name).tasks).generate(n, seed, **options)
    return found


def load_published(name: str, path: str | Path) -> list[Task]:
    """The published tasks of a gym, every split, from the root of a copy of the released repository.

    Raises TaskError naming file, index and field for a bad row, and for a gym that has none.
    """
    module = import_module(spec(name).tasks)
    loader: Callable[[Path], list[Task]] | None = getattr(module, "load_published", None)
    if loader is None:
        raise TaskError(f"Gym '{name}' has no published tasks; use its own with tasks('{name}', split).")
    root = Path(path)
    if not root.is_dir():
        raise TaskError(f"There is no folder {root}; give the root of a copy of the released repository.")
    return loader(root)


def min_turns(task: Task, config: GymConfig | None = None) -> int:
    """Fewest turns in which the full-skill demonstrator solves this task, without luck."""
    kind = gym_class(task.gym)
    rule = kind.min_turns
    if isinstance(rule, int):
        return rule
    return int(rule(task, config if config is not None else kind.config_type()))


def demonstrator_class(name: str) -> Any:
    """The gym's scripted demonstrator: ``(task, rng, skill, config)`` with ``act(observation) -> InteractCall``."""
    return _load(spec(name).demonstrator)


def _load(path: str) -> Any:
    module, _, attribute = path.partition(":")
    return getattr(import_module(module), attribute)
