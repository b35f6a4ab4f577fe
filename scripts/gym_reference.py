"""Write docs/reference/gym-reference.md: choices, rewards, metric, tasks, users and settings of every gym, from its class.

python scripts/gym_reference.py            exit with status 1 if the page is out of date
python scripts/gym_reference.py --write    write the page
"""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from userrl_core import gyms
from userrl_core.gyms.base import Gym, GymConfig
from userrl_core.gyms.registry import PACKAGED, part

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "gym-reference.md"
SPLITS = ("train", "validation", "test")
HEAD = """# Gym reference

This page is generated from the gym classes by `python scripts/gym_reference.py --write`. [gyms.md](../gyms.md) explains
what a gym is.

The reward column gives the bounds of one turn under the default settings. "Fewest turns" is the number of turns that a
demonstrator of full skill needs without luck. It is given as a range over the gym's own test tasks. Task counts are train /
validation / test. A user kind "none" means that the gym itself answers.
"""


def page() -> str:
    """Return the whole page as Markdown."""
    return "\n".join([HEAD, *_summary(), "", *_successes(), "", *_settings()]) + "\n"


def _summary() -> Iterator[str]:
    yield "| gym | choices | reward of a turn | metric | fewest turns | users | own tasks | published tasks |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for name in _names():
        gym = gyms.gym_class(name)
        bounds = gym.reward_bounds(gym.config_type())
        counts = " / ".join(str(len(gyms.tasks(name, split))) for split in SPLITS)
        published = "yes" if hasattr(part(name, "tasks"), "load_published") else "no"
        cells = (
            f"`{name}`",
            ", ".join(gym.choices()),
            f"{bounds.low:g} to {bounds.high:g}",
            gym.metric,
            _fewest(name),
            ", ".join(gym.users) or "none",
            counts,
            published,
        )
        yield f"| {' | '.join(cells)} |"


def _fewest(name: str) -> str:
    turns = [gyms.min_turns(task) for task in gyms.tasks(name, "test")] or [1]
    return f"{min(turns)}" if min(turns) == max(turns) else f"{min(turns)} to {max(turns)}"


def _successes() -> Iterator[str]:
    yield "## When a conversation is a success\n"
    yield "The stop reason `success` and pass^k follow these rules. A partial score is never a success.\n"
    yield "| gym | a conversation is a success when |"
    yield "| --- | --- |"
    for name in _names():
        yield f"| `{name}` | {gyms.gym_class(name).success_rule} |"


def _settings() -> Iterator[str]:
    yield "## Settings\n"
    yield 'A gym\'s settings are keywords of `gyms.make("travel", task, NAME=...)` and keys of `gyms.NAME.config` in a recipe.'
    yield "Task options are keys of `gyms.NAME.tasks`. Every gym has these two settings:\n"
    yield from _fields(GymConfig)
    for name in _names():
        gym = gyms.gym_class(name)
        yield f"\n### {name}\n"
        yield f"{_first_line(gym)}\n"
        if name in PACKAGED:
            yield f"Package: `packages/{PACKAGED[name]}`.\n"
        if gym.irreproducible:
            yield f"The same calls may bring other observations: {gym.irreproducible}.\n"
        if options := _task_options(name):
            yield f"Task options: {', '.join(options)}.\n"
        if set(gym.config_type.model_fields) > set(GymConfig.model_fields):
            yield from _fields(gym.config_type, skip=set(GymConfig.model_fields))
        else:
            yield "Only the two common settings."


def _fields(config: type[BaseModel], skip: set[str] = frozenset()) -> Iterator[str]:  # type: ignore[assignment]
    docs = _field_docs(config)
    yield "| setting | default | meaning |"
    yield "| --- | --- | --- |"
    for name, field in config.model_fields.items():
        if name not in skip:
            default = "required" if field.is_required() else _literal(field.get_default(call_default_factory=True))
            yield f"| `{name}` | {default} | {_cell(docs.get(name, ''))} |"


def _field_docs(config: type[BaseModel]) -> dict[str, str]:
    """Return the docstring under each field of a config class, inherited fields included."""
    docs: dict[str, str] = {}
    for cls in reversed(config.__mro__):
        if issubclass(cls, BaseModel) and cls is not BaseModel:
            body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
            assert isinstance(body, ast.ClassDef)
            for statement, following in zip(body.body, body.body[1:], strict=False):
                match statement, following:
                    case ast.AnnAssign(target=ast.Name(id=field)), ast.Expr(value=ast.Constant(value=str(text))):
                        docs[field] = inspect.cleandoc(text)
    return docs


def _task_options(name: str) -> list[str]:
    parameters = inspect.signature(part(name, "tasks").tasks).parameters.values()
    return [
        f"`{p.name}` ({_literal(p.default)})"
        for p in parameters
        if p.default is not inspect.Parameter.empty and len(repr(p.default)) < 100
    ]


def _literal(value: object) -> str:
    text = str(list(value)) if isinstance(value, range) else repr(value)
    return f"`{_cell(text)}`" if len(text) < 60 else "see the class"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _first_line(gym: type[Gym[Any]]) -> str:
    return _cell(inspect.getdoc(gym) or "").partition(". ")[0].rstrip(".") + "."


def _names() -> list[str]:
    """Return our own gyms, without the gyms of other installed packages."""
    ours = [name for name in gyms.names() if part(name, "gym").__name__.startswith("userrl_")]
    return [name for name in ours if name in PACKAGED or part(name, "gym").__name__.startswith("userrl_core.")]


def main() -> int:
    """Compare or write the page; return 1 if it is out of date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    if parser.parse_args().write:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.read_text(encoding="utf-8") != page():
        print("docs/reference/gym-reference.md is out of date; run python scripts/gym_reference.py --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
