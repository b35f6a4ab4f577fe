"""The registry of gyms: the folders next to this file, and installed packages with the entry point ``userrl.gyms``.

A gym is a package with three modules. ``gym`` has its `Gym` class. ``tasks`` has ``tasks(split, **options)``,
``generate(n, seed, **options)`` and, for published tasks, ``load_published(root)``. ``demonstrator`` has a class
``(task, rng, skill, config)`` with ``act(observation) -> InteractCall``. The folder or the entry point names the gym. Modules
are imported on first use, for a short start-up.
"""

from __future__ import annotations

import inspect
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from userrl_core.errors import ConfigError, TaskError, UserRLError, in_one_line
from userrl_core.gyms.base import Gym, GymConfig, parse_config
from userrl_core.installed.same_name import by_name, same_name
from userrl_core.records import Task
from userrl_core.seeding import derive_seed
from userrl_core.suggest import nearest
from userrl_core.user_path import no_folder

ENTRY_POINT = "userrl.gyms"

PACKAGED = {
    "agentgym": "userrl-gym-agentgym",
    "openenv": "userrl-gym-openenv",
    "sciworld": "userrl-gym-sciworld",
    "verifiers": "userrl-gym-verifiers",
    "voice": "userrl-gym-voice",
    "webshop": "userrl-gym-webshop",
}
"""Our gyms in separate packages, with the package of each: a folder of this name in ``packages/``."""


class MissingModule(ConfigError, ModuleNotFoundError):
    """A gym needs a module that is not installed."""


@cache
def packages() -> Mapping[str, str]:
    """Return the import path of every gym's package by the gym's name, our gyms first."""
    core = _core()
    paths = {**{point.name: point.value for point in entry_points(group=ENTRY_POINT)}, **core}
    return {name: paths[name] for name in sorted(paths, key=lambda name: (name not in {*core, *PACKAGED}, name))}


@cache
def clashes() -> Mapping[str, str]:
    """Return the refusal of every gym that several packages define, by its name."""
    core = _core()
    points = by_name(entry_points(group=ENTRY_POINT))
    refusals = {name: same_name("gym", same, core.get(name, "")) for name, same in points.items()}
    return {name: refusal for name, refusal in refusals.items() if refusal}


def _core() -> dict[str, str]:
    parent = __name__.rpartition(".")[0]
    return {m.name: f"{parent}.{m.name}" for m in iter_modules([str(Path(__file__).parent)]) if m.ispkg}


def names() -> tuple[str, ...]:
    """Return the names of all installed gyms."""
    return tuple(packages())


def part(name: str, module: str) -> ModuleType:
    """Import a module of a gym: ``gym``, ``tasks`` or ``demonstrator``.

    Raises ConfigError if the gym is not installed, if several packages define it, or if its module cannot be imported.
    """
    if name not in packages():
        raise ConfigError("gym.not_installed", not_installed(name))
    if name in clashes():
        raise ConfigError("gym.bad_package", clashes()[name])
    path = f"{packages()[name]}.{module}"
    with of_package(name, f"{path} cannot be imported"):
        return import_module(path)


@contextmanager
def of_package(gym: str, fault: str) -> Iterator[None]:
    """Raise ConfigError for any error of a gym's package in the block that is none of ours. fault: what cannot be done."""
    try:
        yield
    except UserRLError:
        raise
    except ModuleNotFoundError as error:
        sentence = f"Gym '{gym}' needs the module {error.name}, which is not installed. Install the extra envs."
        missing = MissingModule("gym.not_installed", sentence)
        missing.name = error.name
        raise missing from error
    except (Exception, SystemExit) as error:
        raise ConfigError(
            "gym.bad_package", f"Gym '{gym}': {fault} ({in_one_line(error)}). Correct its package or uninstall it."
        ) from error


def not_installed(name: str) -> str:
    """Return the sentence about a gym that is not installed: the command that installs it, or the nearest known gym."""
    if name in PACKAGED:
        return f"Gym '{name}' is a separate package. Install it with pip install ./packages/{PACKAGED[name]}."
    return f"There is no gym '{name}'{nearest(name, names())}. Known: {', '.join(names())}."


def gym_class(name: str) -> type[Gym[Any]]:
    """Return the gym's class. Raises ConfigError if the class has another name than the gym's folder or entry point."""
    module = part(name, "gym")
    used = [cls.name for cls in _classes(module) if issubclass(cls, Gym) and hasattr(cls, "name")]
    if used and name not in used:
        raise ConfigError("gym.bad_package", _other_name(module, used[0], name))
    gym_type: type[Gym[Any]] = _class_in(module, lambda cls: issubclass(cls, Gym) and cls.name == name)
    return gym_type


def _other_name(module: ModuleType, used: str, name: str) -> str:
    return f"{module.__name__} names the gym '{used}', and its package registers it as '{name}'. Write '{name}' there."


def unavailable(name: str) -> str:
    """Return why a gym cannot run on this machine, in a sentence; "" if it can."""
    if name not in packages():
        return not_installed(name)
    if name in clashes():
        return clashes()[name]
    try:
        gym_type = gym_class(name)
        with of_package(name, "its class does not say whether it can run here"):
            return gym_type.unavailable()
    except MissingModule as error:
        return str(error)


def make(name: str, task: Task | None = None, user: Any = "rule", **config: Any) -> Gym[Any]:
    """Make a gym for one episode.

    task: None takes the first training task. user: a kind (``rule``, ``openai``, ``human``), a ``(kind, options)`` pair, or
    a user object. config: fields of the gym's config. Raises ConfigError for an unknown name, kind or option.
    """
    gym_type = gym_class(name)
    settings = parse_config(gym_type, config)
    if task is None:
        task = tasks(name, "train")[0]
    if task.gym != name:
        raise ConfigError("task.wrong_gym", f"Task {task.key} is not a task of gym '{name}'.")
    return gym_type(task, user=make_user(gym_type, task, user), config=settings)


USER_KINDS = ("rule", "openai", "human")
"""The user kinds that a run may request for every gym. A gym without a user ignores them."""


def make_user(gym_type: type[Gym[Any]], task: Task, user: Any) -> Any:
    """Build the user for a task from its kind (None: the rule user), or pass a user object through. None for a gym
    without users.

    Raises ConfigError for a kind that the gym does not have and for options that its user does not accept.
    """
    user = "rule" if user is None else user
    if not isinstance(user, (str, tuple)):
        return user
    if isinstance(user, tuple) and len(user) != 2:
        raise ConfigError("user.bad_option", f"A user is a kind, or a pair of a kind and its options, not {user!r}.")
    kind, options = user if isinstance(user, tuple) else (user, {})
    if not gym_type.users and kind in USER_KINDS:
        return None
    if kind not in gym_type.users:
        raise ConfigError(
            "user.bad_option",
            f"Gym '{gym_type.name}' has no '{kind}' user. It has {', '.join(gym_type.users or USER_KINDS)}.",
        )
    rng = random.Random(derive_seed("user", gym_type.name, task.id))
    factory, options = _with_prompts(gym_type, kind, options)
    try:
        return factory(task, rng, **options)
    except (TypeError, ValidationError) as error:
        reason = str(error).replace("\n", " ")[:200]
        raise ConfigError(
            "user.bad_option", f"The '{kind}' user of gym '{gym_type.name}' does not accept these options ({reason})."
        ) from error


def _with_prompts(gym_type: type[Gym[Any]], kind: str, options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the user's factory and its options: of an openai user the one with the prompts that its option names.

    Raises ConfigError for released prompts in a gym that has none, and for another value of the option.
    """
    rest = dict(options)
    prompts = rest.pop("prompts", "ours") if kind == "openai" else "ours"
    if prompts == "released":
        return _class_in(released_module(gym_type.name), lambda cls: cls.__name__.startswith("Released")), rest
    if prompts != "ours":
        raise ConfigError("user.bad_option", f"prompts is ours or released, not {prompts!r}.")
    if kind == "openai":
        rest.pop("texts", None)
    return gym_type.users[kind], rest


def released_module(name: str) -> ModuleType:
    """Return the module of a gym with the released prompts. Raises ConfigError for a gym without one."""
    try:
        return part(name, "released_user")
    except ModuleNotFoundError as error:
        if error.name != f"{packages()[name]}.released_user":
            raise
        having = ", ".join(gym for gym in _core() if find_spec(f"{packages()[gym]}.released_user"))
        raise ConfigError(
            "prompts.missing",
            f"Gym '{name}' has no released prompts: they exist for {having}. Use prompts: ours for its user.",
        ) from None


def tasks(name: str, split: str, **options: Any) -> Sequence[Task]:
    """Return the gym's own tasks of a split (``train``, ``validation``, ``test``). Options such as ``tier`` depend on
    the gym.
    """
    if split not in ("train", "validation", "test"):
        raise ConfigError("argument.unknown_value", f"There is no split '{split}'. Use train, validation or test.")
    sorted_options = tuple(sorted(options.items()))
    if hashable(sorted_options):
        return _tasks(name, split, sorted_options)
    # A recipe's options may hold lists, such as depths: they are known by their JSON.
    known_by = (name, split, json.dumps(sorted_options, default=repr))
    if known_by not in _BY_JSON:
        if len(_BY_JSON) >= _MOST:
            _BY_JSON.clear()
        _BY_JSON[known_by] = _tasks.__wrapped__(name, split, sorted_options)
    return _BY_JSON[known_by]


def hashable(value: object) -> bool:
    """Return whether the value can be a cache key. A recipe's options may hold lists, which cannot."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


_MOST = 64
_BY_JSON: dict[tuple[str, str, str], Sequence[Task]] = {}


@lru_cache(maxsize=_MOST)
def _tasks(name: str, split: str, options: tuple[tuple[str, Any], ...]) -> Sequence[Task]:
    module = part(name, "tasks")
    with of_package(name, f"{module.__name__} cannot make its tasks"):
        try:
            gym_tasks: Sequence[Task] = module.tasks(split, **dict(options))
        except TypeError as error:
            raise _not_accepted(name, dict(options), error) from error
    _of_this_gym(name, module, gym_tasks)
    if len(gym_tasks) and (other := gym_tasks[0].split) != split:
        raise ConfigError(
            "gym.bad_package",
            f"{module.__name__} gives tasks of split '{other}' for '{split}', which would mix them. Give each split its own.",
        )
    if gym_tasks and isinstance(gym_tasks, (list, tuple)):  # others build a task when it is played
        _refuse_twice(name, gym_tasks, f"{module.__name__} gives")
    return gym_tasks


def check_task_options(name: str, options: Mapping[str, Any]) -> None:
    """Raise ConfigError for an option that the gym's list of tasks does not have. No task is made."""
    signature = inspect.signature(part(name, "tasks").tasks)
    try:
        signature.bind("train", **options)
        for option, value in options.items():
            known = signature.parameters.get(option)
            kinds = set(re.findall(r"\w+", str(known.annotation))) if known is not None else set()
            if isinstance(value, bool) and kinds & {"int", "float"} and "bool" not in kinds:
                raise TypeError(f"{option} is a truth value; give a number")
    except TypeError as error:
        raise _not_accepted(name, options, error) from error


def _not_accepted(name: str, options: Mapping[str, Any], error: TypeError) -> ConfigError:
    lists = [key for key, value in options.items() if not hashable(value)]
    reason = f"give {lists[0]} a single value" if lists else error
    return ConfigError(
        "task.bad_option", f"The tasks of gym '{name}' do not accept these options: {dict(options)} ({reason})."
    )


def _of_this_gym(name: str, module: ModuleType, gym_tasks: Sequence[Task]) -> Sequence[Task]:
    """Return the tasks. Raises ConfigError if they name another gym, which would play them.

    The first task shows it. To look at all of them would build every task of a gym that builds them when they are played.
    """
    if not isinstance(gym_tasks, Sequence) or (len(gym_tasks) and not isinstance(gym_tasks[0], Task)):
        raise ConfigError("gym.bad_package", f"{module.__name__} returns {gym_tasks!r:.80}. Return a list of tasks.")
    if len(gym_tasks) and (other := gym_tasks[0].gym) != name:
        raise ConfigError("gym.bad_package", _other_name(module, other, name))
    return gym_tasks


def generate(name: str, n: int, seed: int, **options: Any) -> list[Task]:
    """Return n new tasks from the gym's generator, the same for the same seed."""
    module = part(name, "tasks")
    return list(_of_this_gym(name, module, list(module.generate(n, seed, **options))))


def load_published(name: str, path: str | Path) -> list[Task]:
    """Return the published tasks of a gym, all splits, from the root of a copy of the released repository.

    Raises TaskError with file, index and field for a bad row, and for a gym without published tasks.
    """
    module = part(name, "tasks")
    loader: Callable[[Path], list[Task]] | None = getattr(module, "load_published", None)
    if loader is None:
        raise TaskError(
            "task.not_published", f"Gym '{name}' has no published tasks. Use its own with tasks('{name}', split)."
        )
    root = Path(path)
    if why := no_folder(root):
        raise TaskError(
            "task.file_missing",
            f"{root} is no folder ({why}). Give the root folder of a copy of the released repository.",
        )
    published = list(_of_this_gym(name, module, list(loader(root))))
    if not published:
        raise TaskError(
            "task.none_left", f"The files in {root} hold no task of gym '{name}'. Copy them again from the release."
        )
    _refuse_twice(name, published, f"The files in {root} hold")
    return published


def _refuse_twice(name: str, gym_tasks: Sequence[Task], where: str) -> None:
    """Raise TaskError for two tasks of one id: their conversations would be one group."""
    task_id, count = Counter(task.id for task in gym_tasks).most_common(1)[0]
    if count > 1:
        raise TaskError(
            "task.duplicate", f"{where} {count} tasks of gym '{name}' with the id '{task_id}'. Keep one of them."
        )


def min_turns(task: Task, config: GymConfig | None = None) -> int:
    """Return the fewest turns that the full-skill demonstrator needs for this task, without luck."""
    gym_type = gym_class(task.gym)
    rule = gym_type.min_turns
    if isinstance(rule, int):
        return rule
    with of_package(task.gym, f"min_turns of task {task.id} cannot be computed"):
        return int(rule(task, config if config is not None else gym_type.config_type()))


def demonstrator_class(name: str) -> Any:
    """Return the gym's scripted demonstrator: ``(task, rng, skill, config)`` with ``act(observation) -> InteractCall``."""
    return _class_in(part(name, "demonstrator"), lambda cls: cls.__name__.endswith("Demonstrator"))


def _class_in(module: ModuleType, matches: Callable[[type[Any]], bool]) -> type[Any]:
    """Return the one class of a module that matches. Raises ConfigError unless exactly one matches."""
    matching = [cls for cls in _classes(module) if matches(cls)]
    if len(matching) != 1:
        names = ", ".join(cls.__name__ for cls in matching) or "none"
        raise ConfigError(
            "gym.bad_package",
            f"{module.__name__} must define exactly one class of this part of a gym. It defines {names}.",
        )
    return matching[0]


@cache  # asked thousands of times by the check of a recipe
def _classes(module: ModuleType) -> tuple[type[Any], ...]:
    """Return the classes that a module defines."""
    return tuple(cls for cls in vars(module).values() if isinstance(cls, type) and cls.__module__ == module.__name__)
