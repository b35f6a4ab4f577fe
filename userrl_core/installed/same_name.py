"""Entry points by name. Two packages may define the same name: whoever uses it is refused, and nobody else."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pydantic import BaseModel, ValidatorFunctionWrapHandler

from userrl_core.errors import ConfigError, in_one_line


@cache
def offered(group: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    """Return the entry points of a group by name. They are read once: the metadata of all packages takes 40 ms."""
    return by_name(entry_points(group=group))


def by_name(points: Iterable[EntryPoint]) -> dict[str, tuple[EntryPoint, ...]]:
    """Return the entry points of each name, in the order of the names."""
    names: dict[str, tuple[EntryPoint, ...]] = {}
    for point in points:
        names[point.name] = (*names.get(point.name, ()), point)
    return dict(sorted(names.items()))


def same_name(noun: str, points: Sequence[EntryPoint], ours: str = "") -> str:
    """Return the refusal of a name that several packages define, as a sentence; "" if one defines it.

    noun: what is named, such as "gym". ours: our own object of that name, as "module" or "module:object".
    """
    if len(points) + bool(ours) < 2:
        return ""
    owners = {ours: f"userrl ({ours})"} if ours else {}
    owners |= {point.value: f"{package_of(point)} ({point.value})" for point in sorted(points, key=package_of)}
    if len(owners) < 2:
        return ""
    *first, last = owners.values()
    return (
        f"{'Two' if len(owners) == 2 else len(owners)} packages define a {noun} '{points[0].name}': {', '.join(first)} "
        f"and {last}. Uninstall one of them with pip uninstall, or rename the {noun} in yours."
    )


def package_of(point: EntryPoint) -> str:
    """Return the name of the package that has the entry point."""
    return point.dist.name if point.dist is not None else point.module.partition(".")[0]


def loaded(point: EntryPoint, code: str) -> Any:
    """Return the object of an entry point. Raises ConfigError with the code if its package cannot be imported."""
    try:
        return point.load()
    except (Exception, SystemExit) as error:
        raise ConfigError(
            code,
            f"{point.value} of {package_of(point)} cannot be imported ({in_one_line(error)}). Correct it or uninstall it.",
        ) from error


def installed_kind(
    value: Any,
    ours: ValidatorFunctionWrapHandler,
    base: type[BaseModel],
    group: str,
    our_kinds: Collection[str],
    code: str,
) -> Any:
    """Validate a value with a ``kind`` as ours, or as the class of the package that brings its kind.

    An unknown kind gets our error. base: class of the packages' kinds. our_kinds: the names of ours, all in the module of
    base. code: of the ConfigError if two packages bring the kind, or if its package cannot be imported. It begins with what is
    named, such as "schedule".
    """
    if isinstance(value, base):
        return value
    kind = str(value.get("kind")) if isinstance(value, Mapping) else ""
    points = offered(group).get(kind, ())
    our_name = f"{base.__module__}:{kind}" if kind in our_kinds else ""
    if refusal := same_name(code.partition(".")[0], points, our_name):
        raise ConfigError(code, refusal)
    return loaded(points[0], code).model_validate(value) if points else ours(value)
