"""From YAML to a checked recipe: recipe, profile and overrides merged in this order, every value's origin kept."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curricula.feasibility import check_credit, check_gyms, check_horizons
from curricula.recipe import Origin, Recipe
from curricula.validation import validated
from curricula.yaml_files import find, read, stem
from userrl_core.errors import ConfigError
from userrl_core.suggest import nearest
from userrl_core.training.config import AlgorithmConfig, SftConfig

PROFILE_FIELDS: Mapping[str, frozenset[str] | None] = {
    "gyms": None,
    "demonstrations": None,
    "model": None,
    "hardware": None,
    "stages": None,
    "schedules": None,
    "evaluate": None,
    "split": None,
    "rl_tasks": None,
    "cold_start": frozenset(SftConfig.model_fields) - {"enabled"},
    "algorithm": frozenset(AlgorithmConfig.model_fields)
    - {"name", "loss_aggregation", "entropy_mask", "dual_clip", "clip_high", "assignment", "gae_gamma", "gae_lambda"},
}
"""What a profile may set: sizes, machines, optimisation, stages. None: the whole block."""


@dataclass(slots=True)
class _Layer:
    """One source of values: its label, what it says, and the citations of what it says."""

    where: str
    values: dict[str, Any]
    source: str = ""
    sources: dict[str, str] = field(default_factory=dict)


def load(
    name: str | Path,
    profile: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    check: bool = True,
) -> Recipe:
    """A recipe by name or file, with a profile's sizes and dotted-key overrides.

    overrides: ``{"algorithm.lr": 1e-4, "stages.0.horizon": 4, "stages.*.mix": {...}}``, nested mappings work too.
    check: also ask the gyms whether stages are long enough and rewards fit the credit form.
    Raises ConfigError, in one sentence, for an unknown name or key, a value out of range, or a refusal.
    """
    layers = _recipe_layers(name)
    # A resolved recipe (a sweep's winner, a run's record) names the profile it holds: laid over it again, the profile
    # would undo what was changed since.
    held = layers[-1].values.get("profile")
    if profile is not None and stem(profile) != held:
        layers += _profile_layers(profile, layers)
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for layer in layers:
        _merge(values, layer.values, (), layer, origins)
    label = str(values.get("name", name))
    for key, value in _flat_overrides(overrides or {}):
        _set(values, key.split("."), value, key)
        for known in [k for k in origins if k == key or k.startswith(key + ".")]:
            del origins[known]
        origins[key] = Origin("override")
    values["profile"] = stem(profile) if profile is not None else held
    origins["profile"] = Origin("call", "as asked for")
    recipe = validated(Recipe, values, f"recipe '{label}'")
    recipe._origins = origins
    if check:
        check_gyms(recipe)
        check_credit(recipe)
        recipe._warnings = (*_not_yet(recipe), *check_horizons(recipe))
        for sentence in recipe._warnings:
            warnings.warn(sentence, UserWarning, stacklevel=2)
    return recipe


def from_resolved(values: Mapping[str, Any]) -> Recipe:
    """The recipe that `Recipe.resolved` described; ConfigError in one sentence where it does not fit."""
    return validated(Recipe, values, "resolved recipe")


def _not_yet(recipe: Recipe) -> list[str]:
    """What the recipe asks for and this version leaves out."""
    if recipe.judge is None:
        return []
    return [
        f"Recipe '{recipe.name}' names a judge, and this version has none yet: turns are scored by their gym alone, so its results "
        "are those of its algorithm and mix, not of TARL's rewards."
    ]


# -- layers ---------------------------------------------------------------------------------------------------------


def _recipe_layers(name: str | Path, seen: tuple[str, ...] = ()) -> list[_Layer]:
    """The recipe and those that it extends, the most general first. Each keeps its own ``profiles`` for later."""
    document = dict(read(find(name, "recipe")))
    label = str(document.setdefault("name", stem(name)))
    if label in seen:
        raise ConfigError(f"Recipe '{label}' extends itself ({' -> '.join((*seen, label))}); break the circle.")
    base = document.pop("extends", None)
    below = _recipe_layers(base, (*seen, label)) if base is not None else []
    return [*below, _layer(f"recipe {label}", document)]


def _profile_layers(profile: str | Path, recipe: Sequence[_Layer]) -> list[_Layer]:
    """The profile, then what the recipes say about running under it."""
    document = dict(read(find(profile, "profile")))
    name = stem(profile)
    document.pop("name", None)
    layers = [_layer(f"profile {name}", document)]
    _check_whitelist(layers[0])
    for layer in recipe:
        own = _fields(_fields(layer.values.get("profiles"), layer.where, "profiles").get(name), layer.where, name)
        if own:
            layers.append(_layer(f"{layer.where}, for profile {name}", dict(own)))
    kind = _schedule_kind(recipe)
    for layer in layers:
        _fit_to_schedule(layer, kind)
    return layers


def _layer(where: str, document: dict[str, Any]) -> _Layer:
    sources = _fields(document.pop("sources", None), where, "sources")
    is_recipe = where.startswith("recipe ") and ", for profile" not in where
    source = document.get("source", "") if is_recipe else document.pop("source", "")
    return _Layer(where, document, str(source), {str(k): str(v) for k, v in sources.items()})


def _fields(value: Any, where: str, key: str) -> Mapping[str, Any]:
    """A block that is a mapping, or is left out."""
    if value is None or isinstance(value, Mapping):
        return value or {}
    raise ConfigError(f"{where[0].upper()}{where[1:]}: '{key}' must be a mapping of fields, not {value!r}.")


def _schedule_kind(recipe: Sequence[_Layer]) -> str | None:
    kind = None
    for layer in recipe:
        if "schedule" in layer.values:
            named = layer.values["schedule"]
            kind = named.get("kind") if isinstance(named, Mapping) else None
    return kind


def _check_whitelist(layer: _Layer) -> None:
    for key, value in layer.values.items():
        if key not in PROFILE_FIELDS:
            raise ConfigError(
                f"{layer.where[0].upper()}{layer.where[1:]} sets '{key}', which belongs to the recipe"
                f"{nearest(key, PROFILE_FIELDS)}; a profile may set {', '.join(sorted(PROFILE_FIELDS))}."
            )
        allowed = PROFILE_FIELDS[key]
        if allowed is None:
            continue
        for inner in value or {}:
            if inner not in allowed:
                raise ConfigError(
                    f"{layer.where[0].upper()}{layer.where[1:]} sets '{key}.{inner}', which belongs to the recipe"
                    f"{nearest(inner, allowed)}; a profile may set {', '.join(sorted(allowed))} there."
                )


def _fit_to_schedule(layer: _Layer, kind: str | None) -> None:
    """A recipe with a schedule of its own keeps the kind; the profile brings values for that kind, and drops horizons."""
    schedules = layer.values.pop("schedules", None) or {}
    if kind is None:
        return
    if kind in schedules:
        layer.values["schedule"] = {"kind": kind, **schedules[kind]}
    if layer.values.get("stages"):
        first, *rest = layer.values["stages"]
        steps = sum(int(stage.get("steps", 0)) for stage in (first, *rest))
        layer.values["stages"] = [{k: v for k, v in first.items() if k not in ("horizon", "gates")} | {"steps": steps}]


# -- merging --------------------------------------------------------------------------------------------------------


def _merge(
    into: dict[str, Any], values: Mapping[str, Any], path: tuple[str, ...], layer: _Layer, origins: dict[str, Origin]
) -> None:
    """Mappings merge key by key, all else is replaced."""
    for key, value in values.items():
        if not path and key == "profiles":
            continue
        here = (*path, str(key))
        old = into.get(key)
        if (
            isinstance(value, Mapping)
            and isinstance(old, dict)
            and value.get("kind", old.get("kind")) == old.get("kind")
        ):
            _merge(old, value, here, layer, origins)
            continue
        dotted = ".".join(here)
        for known in [k for k in origins if k == dotted or k.startswith(dotted + ".")]:
            del origins[known]
        into[key] = _copied(value)
        if isinstance(value, Mapping) and value:
            for leaf in _leaves(value, here):
                origins[leaf] = _origin(leaf, layer)
        else:
            origins[dotted] = _origin(dotted, layer)


def _origin(key: str, layer: _Layer) -> Origin:
    """The layer, with the citation of the longest prefix of the key that it cites."""
    prefix = key
    while prefix:
        if prefix in layer.sources:
            return Origin(layer.where, layer.sources[prefix])
        prefix = prefix.rpartition(".")[0]
    return Origin(layer.where, layer.source)


def _leaves(value: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    for key, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            yield from _leaves(inner, (*path, str(key)))
        else:
            yield ".".join((*path, str(key)))


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _copied(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copied(v) for v in value]
    return value


# -- overrides ------------------------------------------------------------------------------------------------------


def _flat_overrides(overrides: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys; a nested mapping merges into its block, except where it is itself a value such as a mix."""
    for key, value in overrides.items():
        dotted = (prefix + str(key)).replace("[", ".").replace("]", "")
        if isinstance(value, Mapping) and dotted in Recipe.model_fields and dotted not in ("schedule", "alarms"):
            yield from _flat_overrides(value, dotted + ".")
        else:
            yield dotted, value


def _set(values: Any, parts: Sequence[str], value: Any, key: str) -> None:
    head, *rest = parts
    if not head or (key == "profile" and not rest):
        raise ConfigError(f"'{key}' cannot be overridden; give dotted keys of the recipe, such as algorithm.lr.")
    if isinstance(values, list):
        for index in _indices(values, head, key):
            if rest:
                _set(values[index], rest, value, key)
            else:
                values[index] = _copied(value)
        return
    if not isinstance(values, dict):
        raise ConfigError(f"Override '{key}' goes into a single value; shorten it by '.{head}'.")
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
            f"Override '{key}': '{head}' is no index of a list of {len(values)}; use 0 to {len(values) - 1} or *."
        )
    return range(int(head), int(head) + 1)
