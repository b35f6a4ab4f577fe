"""Which gyms there are: the folders beside this file, and packages that name themselves under the entry point ``userrl.gyms``.

A gym is a package with ``gym`` (its `Gym` class), ``tasks`` (``tasks(split, **options)``, ``generate(n, seed, **options)`` and,
where published tasks exist, ``load_published(root)``) and ``demonstrator`` (a class ``(task, rng, skill, config)`` with
``act(observation) -> InteractCall``). Its name is the folder's, or the entry point's. Modules are imported on first use, so
that starting up stays quick.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from userrl_core.errors import ConfigError, TaskError
from userrl_core.gyms.base import Gym, GymConfig, parse_config
from userrl_core.records import Task
from userrl_core.seeding import derive_seed
from userrl_core.suggest import nearest

ENTRY_POINT = "userrl.gyms"


@cache
def packages() -> Mapping[str, str]:
    """Import path of every gym's package by the gym's name; our own first, by name. Raises ConfigError for a name given twice."""
    here = __name__.rpartition(".")[0]
    found = {m.name: f"{here}.{m.name}" for m in iter_modules([str(Path(__file__).parent)]) if m.ispkg}
    for point in sorted(entry_points(group=ENTRY_POINT), key=lambda point: point.name):
        if found.setdefault(point.name, point.value) != point.value:
            raise ConfigError(
                f"Two packages bring a gym '{point.name}', {found[point.name]} and {point.value}; uninstall one of them."
            )
    return found


def names() -> tuple[str, ...]:
    """All gyms that are installed."""
    return tuple(packages())


def part(name: str, module: str) -> ModuleType:
    """A module of a gym's package: ``gym``, ``tasks``, ``demonstrator``. Raises ConfigError naming the nearest known gym."""
    if name not in packages():
        raise ConfigError(f"There is no gym '{name}'{nearest(name, names())}. Known: {', '.join(names())}.")
    return import_module(f"{packages()[name]}.{module}")


def gym_class(name: str) -> type[Gym[Any]]:
    """The gym's class."""
    kind: type[Gym[Any]] = _class_in(part(name, "gym"), lambda kind: issubclass(kind, Gym) and kind.name == name)
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
    module = part(name, "tasks")
    try:
        found: Sequence[Task] = module.tasks(split, **dict(options))
    except TypeError as error:
        lists = [key for key, value in options if not hashable(value)]
        why = f"give {lists[0]} a single value" if lists else error
        raise ConfigError(f"The tasks of gym '{name}' do not take these options: {dict(options)} ({why}).") from error
    return found


def generate(name: str, n: int, seed: int, **options: Any) -> list[Task]:
    """n new tasks from the gym's generator, the same for the same seed."""
    found: list[Task] = part(name, "tasks").generate(n, seed, **options)
    return found


def load_published(name: str, path: str | Path) -> list[Task]:
    """The published tasks of a gym, every split, from the root of a copy of the released repository.

    Raises TaskError naming file, index and field for a bad row, and for a gym that has none.
    """
    module = part(name, "tasks")
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
    return _class_in(part(name, "demonstrator"), lambda kind: kind.__name__.endswith("Demonstrator"))


def _class_in(module: ModuleType, fits: Callable[[type[Any]], bool]) -> type[Any]:
    """The one class of a module that fits. Raises ConfigError where there is none, or more than one."""
    found = [kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == module.__name__]
    fitting = [kind for kind in found if fits(kind)]
    if len(fitting) != 1:
        has = ", ".join(kind.__name__ for kind in fitting) or "none"
        raise ConfigError(
            f"{module.__name__} must define the one class that the gym's folder is found by; it has {has}."
        )
    return fitting[0]
