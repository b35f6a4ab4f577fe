"""Merging of layers of values, with the author and rank of each value and a list of the replaced ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from pydantic import BaseModel

from curricula.recipe import Origin, Recipe, Replaced
from curricula.validation import block_of
from userrl_core.errors import ConfigError

BLOCKS = {
    key
    for key, info in Recipe.model_fields.items()
    if isinstance(info.default, BaseModel) or info.default_factory is dict
}
"""Keys of a recipe that are always a mapping."""


class Rank(IntEnum):
    """Precedence of values, the weakest first (docs/recipes.md has the same list)."""

    SHIPPED = 1
    """Recipes of this package, base first."""
    MACHINE = 2
    """Machine keys of a person's own files: sizes and optimisation, which a profile sets as well."""
    PROFILE = 3
    """The profile."""
    SHIPPED_FOR_PROFILE = 4
    """The shipped recipes' blocks ``profiles.<name>``."""
    PERSON = 5
    """Experiment keys of a person's own files, base first."""
    PERSON_FOR_PROFILE = 6
    """The blocks ``profiles.<name>`` of a person's files, any key."""
    OVERRIDE = 7
    """Overrides of the call."""


@dataclass(slots=True)
class Layer:
    """One source of values: its label, its rank, its values, and their citations. A block of null sets nothing.

    Raises ConfigError for a block that is no mapping, and for stages that are no list of mappings.
    """

    where: str
    rank: Rank
    values: dict[str, Any]
    source: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # A later layer's block would replace another value before the recipe is checked.
        self.values |= {key: block_of(value, self.where, key) for key, value in self.values.items() if key in BLOCKS}
        stages = self.values.get("stages") or []
        if not isinstance(stages, list):
            label = f"{self.where[0].upper()}{self.where[1:]}"
            raise ConfigError(
                "recipe.invalid_value", f"{label}: 'stages' must be a list of stages, not {stages!r:.200}."
            )
        for number, stage in enumerate(stages):
            block_of(stage, self.where, f"stages[{number}]")


class Merged:
    """Values under construction. Layers are added in the order of their rank."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.origins: dict[str, Origin] = {}
        self._ranks: dict[str, Rank] = {}
        self._wrote: set[tuple[str, Rank]] = set()
        self._seen: list[dict[str, tuple[Any, str]]] = []

    def add(self, layer: Layer) -> None:
        """Lay a layer over the present values: mappings merge key by key, all else is replaced.

        A person's stages without a schedule end an inherited schedule. A person's schedule removes the horizons of
        inherited stages.
        """
        if layer.rank >= Rank.PERSON and "stages" in layer.values and "schedule" not in layer.values:
            self._end_schedule()
        if layer.rank >= Rank.PERSON and "schedule" in layer.values and "stages" not in layer.values:
            self._end_horizons()
        self._merge(self.values, layer.values, (), layer)
        self._wrote |= {(key, layer.rank) for key in layer.values}
        self._remember()

    def override(self, overrides: Mapping[str, Any]) -> None:
        """Set dotted keys. Raises ConfigError for an unreachable key."""
        flat = dict(_flat(overrides))
        if not flat:
            return
        if "stages" in flat and not any(key.split(".")[0] == "schedule" for key in flat):
            self._end_schedule()
        for key, value in flat.items():
            _set(self.values, key.split("."), value, key)
            self._note(key, Origin("override"), Rank.OVERRIDE)
        self._remember()

    def set(self, key: str, value: Any, where: str, rank: Rank, citation: str = "") -> None:
        """Set one dotted key that follows from others."""
        _set(self.values, key.split("."), value, key)
        self._note(key, Origin(where, citation), rank)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value at a dotted key of mappings."""
        value: Any = self.values
        for part in key.split("."):
            if not isinstance(value, Mapping) or part not in value:
                return default
            value = value[part]
        return value

    def rank(self, key: str) -> Rank | None:
        """Return the highest rank that wrote this key, a part of it, or its block; None if no layer wrote it."""
        inside = [
            rank for written_key, rank in self._ranks.items() if written_key == key or written_key.startswith(key + ".")
        ]
        while not inside and "." in key:
            key = key.rpartition(".")[0]
            inside = [self._ranks[key]] if key in self._ranks else []
        return max(inside, default=None)

    def wrote(self, key: str, rank: Rank) -> bool:
        """Return whether a layer of this rank had this top-level key."""
        return (key, rank) in self._wrote

    def replaced(self) -> tuple[Replaced, ...]:
        """Return every written value that now differs, in order of writing."""
        final = dict(leaves(self.values))
        rows: dict[tuple[str, str], Replaced] = {}
        for snapshot in self._seen:
            for key, (value, where) in snapshot.items():
                if key in UNSAID or (key in final and _equal(value, final[key])):
                    continue
                rows.setdefault((key, repr(value)), Replaced(key, value, where, final.get(key), self._where(key)))
        # Within one rank a recipe says what differs from its base: that is what `extends` is for.
        return tuple(row for row in rows.values() if row.by != row.where)

    def _where(self, key: str) -> str:
        while key:
            if key in self.origins:
                return self.origins[key].where
            below = next(
                (o.where for written_key, o in self.origins.items() if written_key.startswith(key + ".")), None
            )
            if below is not None:
                return below
            key = key.rpartition(".")[0]
        return "left out"

    def _end_schedule(self) -> None:
        if self.values.pop("schedule", None) is not None:
            self._forget("schedule")

    def _end_horizons(self) -> None:
        self.values["stages"] = [
            {key: value for key, value in stage.items() if key not in ("horizon", "gates")}
            for stage in self.values.get("stages") or ()
        ]

    def _remember(self) -> None:
        self._seen.append({key: (_copied(value), self._where(key)) for key, value in leaves(self.values)})

    def _merge(self, into: dict[str, Any], values: Mapping[str, Any], path: tuple[str, ...], layer: Layer) -> None:
        for key, value in values.items():
            key_path = (*path, str(key))
            old = into.get(key)
            if (
                isinstance(value, Mapping)
                and isinstance(old, dict)
                and value.get("kind", old.get("kind")) == old.get("kind")
            ):
                self._merge(old, value, key_path, layer)
                continue
            into[key] = _copied(value)
            self._forget(".".join(key_path))
            for leaf, _ in leaves({key: value}, "".join(f"{part}." for part in path)):
                self.origins[leaf], self._ranks[leaf] = _origin(leaf, layer), layer.rank

    def _note(self, key: str, origin: Origin, rank: Rank) -> None:
        self._forget(key)
        self.origins[key], self._ranks[key] = origin, rank

    def _forget(self, key: str) -> None:
        for written_key in [k for k in self.origins if k == key or k.startswith(key + ".")]:
            del self.origins[written_key], self._ranks[written_key]


UNSAID = ("name", "source", "control", "profile")
"""Keys that every recipe sets. Their replacement is not reported."""


def _equal(written: Any, value: Any) -> bool:
    # YAML 1.1 reads 1e-3, which has no point, as a text.
    if isinstance(written, str) and isinstance(value, int | float):
        with suppress(ValueError):
            return float(written) == value
    return bool(written == value)


def _origin(key: str, layer: Layer) -> Origin:
    prefix = key
    while prefix:
        if prefix in layer.sources:
            return Origin(layer.where, layer.sources[prefix])
        prefix = prefix.rpartition(".")[0]
    return Origin(layer.where, layer.source)


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted keys and their values. Lists and empty mappings are values."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def gyms_of(stage: object) -> list[str]:
    """Return the gyms that a stage's values name. What is no stage, mix or list of gyms is refused when the recipe is made."""
    named = [stage.get("mix"), stage.get("alternate")] if isinstance(stage, Mapping) else []
    return [str(gym) for gyms in named if isinstance(gyms, (Mapping, list, tuple)) for gym in gyms]


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _copied(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copied(v) for v in value]
    return value


# -- overrides ------------------------------------------------------------------------------------------------------


def _flat(overrides: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted keys. A nested mapping merges into its block, unless it is itself a value such as a mix."""
    for key, value in overrides.items():
        dotted = (prefix + str(key)).replace("[", ".").replace("]", "")
        if not isinstance(value, Mapping) or dotted not in Recipe.model_fields or dotted in ("schedule", "alarms"):
            yield dotted, value
        elif value:
            yield from _flat(value, dotted + ".")
        elif isinstance(Recipe.model_fields[dotted].default, BaseModel):
            raise ConfigError(
                "recipe.bad_override", f"'{dotted}' has an empty mapping, which sets nothing. Give one of its keys."
            )
        else:
            yield dotted, value  # no gym's settings, no branches


def _set(values: Any, parts: Sequence[str], value: Any, key: str) -> None:
    head, *rest = parts
    if not head or (key == "profile" and not rest):
        raise ConfigError(
            "recipe.bad_override",
            f"'{key}' cannot be overridden. Give dotted keys of the recipe, such as algorithm.lr.",
        )
    if isinstance(values, list):
        for index in _indices(values, head, key):
            if rest:
                _set(values[index], rest, value, key)
            else:
                values[index] = _copied(value)
        return
    if not isinstance(values, dict):
        raise ConfigError(
            "recipe.bad_override", f"Override '{key}' goes into a single value. Remove '.{head}' and what follows it."
        )
    if not rest:
        values[head] = _copied(value)
        return
    if values.get(head) is None:
        values[head] = {}
    _set(values[head], rest, value, key)


def _indices(values: list[Any], head: str, key: str) -> range:
    if head == "*":
        return range(len(values))
    if not head.isdigit() or int(head) >= len(values):
        raise ConfigError(
            "recipe.bad_override",
            f"Override '{key}': '{head}' is not an index of a list of {len(values)}. Use 0 to {len(values) - 1} or *.",
        )
    return range(int(head), int(head) + 1)
