"""The files that make a recipe, in order of precedence (docs/recipes.md, "What wins").

The order is: shipped recipes, the profile, the shipped recipes' blocks for that profile, a person's files. A person's file is
any file outside the package. Only its *experiment* keys win over the profile, since a profile is requested for its sizes
and its machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import Field, PositiveInt

from curricula.merge import Layer, Merged, Rank
from curricula.spec import Stage
from curricula.validation import block_of, names_of, validated
from curricula.yaml_files import HERE, find, read, stem
from userrl_core.errors import ConfigError
from userrl_core.json_files import read_json, unchanged
from userrl_core.settings import Settings
from userrl_core.suggest import nearest
from userrl_core.training.config import AlgorithmConfig, SftConfig

EXPERIMENT: Mapping[str, frozenset[str] | None] = {
    "stages": None,
    "schedule": None,
    "evolve": None,
    "credit": None,
    "judge": None,
    "intervention": None,
    "split": None,
    "data": None,
    "published": None,
    "data_folder": None,
    "algorithm": frozenset({"name"}),
    "evaluate": frozenset({"gyms", "horizon", "attempts"}),
}
"""Keys that define an experiment, in addition to the tasks and the config of gyms. None: the whole block."""

GYM_EXPERIMENT = frozenset({"tasks", "config", "evaluation"})
"""Experiment keys of one gym."""

PROFILE_FIELDS: Mapping[str, frozenset[str] | None] = {
    "data": None,
    "data_folder": None,
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
    - {"name", "loss_aggregation", "entropy_mask", "dual_clip", "clip_high", "assignment", "gae_gamma", "gae_lambda"}
    - {"dpo_beta", "dpo_normalize"},
}
"""Keys that a profile may set: sizes, machines, optimisation, stages. None: the whole block."""

YOURS = "yours"
"""The source of values in a person's file without a source. The source of the extended recipe does not apply."""


class SmallTokens(Settings):
    """Maximum tokens of the opening (prompt), of one reply and of one turn (reply and answer)."""

    prompt: PositiveInt
    reply: PositiveInt
    turn: PositiveInt


class Small(Settings):
    """A gym at the size of a profile. tasks: its small tier."""

    tasks: dict[str, Any] = Field(default_factory=dict)
    tokens: SmallTokens | None = None


@dataclass(slots=True)
class Sources:
    """A recipe's files.

    layers: by rank. resolved_profile: the profile of a fully resolved recipe. small: gyms at the profile's size.
    """

    layers: list[Layer]
    resolved_profile: str | None = None
    small: Mapping[str, Small] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecipeProfiles:
    """A recipe's statements about profiles: the profile named in its file, and its family's profiles."""

    chosen: str | None
    runs_on: tuple[str, ...]


def recipe_profiles(name: str | Path) -> RecipeProfiles:
    """Return the profiles that a recipe names. Raises ConfigError for an unknown recipe."""
    documents = _documents(name)
    return RecipeProfiles(_chosen(documents), _runs_on(documents))


def sources(name: str | Path, profile: str | Path | None, overrides: Mapping[str, Any] | None = None) -> Sources:
    """Return the files of a recipe under a profile. Raises ConfigError for missing files, circles and foreign keys.

    overrides: read for their training gyms, which decide which sizes of a profile apply.
    """
    documents = _documents(name)
    chosen = _chosen(documents)
    _refuse_foreign(documents, profile)
    # A sweep's winner or a run's record names the profile that it holds: laid over it again, the profile would undo what was
    # changed since.
    recipe_sources = Sources([], resolved_profile=chosen if _is_resolved(documents) else None)
    parts = [_parts(path, document) for path, document in documents]
    shipped = [part for part in parts if part.shipped]
    own_parts = [part for part in parts if not part.shipped]
    recipe_sources.layers += [part.layer(Rank.SHIPPED, part.values) for part in shipped]
    recipe_sources.layers += [part.layer(Rank.MACHINE, _machine(part.values)) for part in own_parts]
    if profile is not None and stem(profile) != recipe_sources.resolved_profile:
        blocks = [block_of(part.profiles.get(stem(profile)), f"recipe {part.name}", stem(profile)) for part in parts]
        chosen_gyms = _trained([*(part.values for part in own_parts), *blocks, overrides or {}])
        _add_profile(recipe_sources, profile, shipped, chosen_gyms)
    recipe_sources.layers += [part.layer(Rank.PERSON, _experiment(part.values)) for part in own_parts]
    if profile is not None and stem(profile) != recipe_sources.resolved_profile:
        recipe_sources.layers += _for_profile(own_parts, stem(profile), Rank.PERSON_FOR_PROFILE)
    recipe_sources.layers = [layer for layer in recipe_sources.layers if layer.values]
    return recipe_sources


@dataclass(frozen=True, slots=True)
class _RecipeFile:
    """One file of a recipe, divided into its parts."""

    name: str
    shipped: bool
    values: dict[str, Any]
    profiles: Mapping[str, Any]
    source: str
    sources: Mapping[str, str]

    def layer(self, rank: Rank, values: dict[str, Any]) -> Layer:
        return Layer(f"recipe {self.name}", rank, values, self.source, self.sources)


def _documents(name: str | Path, labels: tuple[str, ...] = ()) -> list[tuple[Path, dict[str, Any]]]:
    """Return the recipe and its bases, the most general first."""
    path = find(name, "recipe")
    document = dict(read(path))
    if isinstance(document.get("resolved"), Mapping):  # a run's record: run.json is YAML
        if unchanged(read_json(path) or {}) is False:
            raise ConfigError(
                "file.damaged", f"{path} fails its checksum. Restore it from a backup, or give the recipe by its name."
            )
        document = dict(document["resolved"])
    label = str(document.setdefault("name", stem(name)))
    if label in labels:
        raise ConfigError(
            "recipe.circular", f"Recipe '{label}' extends itself ({' -> '.join((*labels, label))}). Remove one extends."
        )
    base = document.pop("extends", None)
    below = _documents(base, (*labels, label)) if base is not None else []
    for _, base_document in below:  # why a control is expected to fail speaks of its own values
        profiles = base_document.get("profiles")
        for block in (base_document, *(profiles.values() if isinstance(profiles, Mapping) else ())):
            if isinstance(block, dict):
                block.pop("control", None)
    return [*below, (path, document)]


def _is_shipped(path: Path) -> bool:
    return path.resolve().parent in (HERE / "recipes", HERE / "profiles")


def _runs_on(documents: Sequence[tuple[Path, dict[str, Any]]]) -> tuple[str, ...]:
    """Remove ``runs_on`` from the documents and return it: it says where a recipe runs and is not one of its values."""
    profiles: tuple[str, ...] = ()
    for _, document in documents:
        profiles = names_of(document.pop("runs_on", None), f"recipe {document['name']}", "runs_on") or profiles
    return profiles


def _refuse_foreign(documents: Sequence[tuple[Path, dict[str, Any]]], profile: str | Path | None) -> None:
    """Refuse a profile that would remove the experiment, because the recipe's stages are for a laptop's tasks only."""
    name, only = documents[-1][1]["name"], _runs_on(documents)
    if "laptop" in only and profile is not None and stem(profile) not in only:
        raise ConfigError(
            "profile.other_recipe",
            f"Recipe '{name}' has stages for profile {', '.join(only)} alone, and '{stem(profile)}' is another "
            f"profile. Run it with profile={only[0]}, or write your own recipe (extends: {name}) with stages "
            "and runs_on.",
        )


def _chosen(documents: Sequence[tuple[Path, dict[str, Any]]]) -> str | None:
    """Remove ``profile`` from the documents and return it."""
    profiles = [document.pop("profile", None) for _, document in documents]
    return next((str(profile) for profile in reversed(profiles) if profile is not None), None)


def _is_resolved(documents: Sequence[tuple[Path, dict[str, Any]]]) -> bool:
    """Return whether a file has every block, as `Recipe.resolved` writes them. It then needs neither base nor profile."""
    return len(documents) == 1 and {"hardware", "model", "algorithm", "stages"} <= set(documents[0][1])


def _parts(path: Path, document: Mapping[str, Any]) -> _RecipeFile:
    where, values = f"recipe {document['name']}", dict(document)
    cited = _cited(values.pop("sources", None), where)
    profiles = block_of(values.pop("profiles", None), where, "profiles")
    shipped = _is_shipped(path)
    source = str(values.get("source", "" if shipped else YOURS))
    return _RecipeFile(str(document["name"]), shipped, values, profiles, source, cited)


def _experiment(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a person's file that win over the profile."""
    above_profile = {key: _kept(values[key], fields) for key, fields in EXPERIMENT.items() if key in values}
    gyms = values.get("gyms")
    if isinstance(gyms, Mapping):
        above_profile["gyms"] = {gym: _kept(setup, GYM_EXPERIMENT) for gym, setup in gyms.items()}
        above_profile["gyms"] = {gym: setup for gym, setup in above_profile["gyms"].items() if setup}
    return {
        key: value
        for key, value in above_profile.items()
        if value not in ({}, None) or key in ("judge", "intervention")
    }


def _kept(block: Any, fields: frozenset[str] | None) -> Any:
    if fields is None or not isinstance(block, Mapping):
        return block
    return {key: value for key, value in block.items() if key in fields}


def _machine(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a person's values below the profile. The experiment keys are applied again above the profile."""
    return {key: value for key, value in values.items() if key not in ("stages", "schedule")}


# -- the profile ----------------------------------------------------------------------------------------------------


def _add_profile(files: Sources, profile: str | Path, shipped: Sequence[_RecipeFile], trained: frozenset[str]) -> None:
    """Add the profile's layers.

    trained: gyms of mixes other than the published ones: a person's, and those that recipes have for the profile.
    """
    where, name = f"profile {stem(profile)}", stem(profile)
    parts = _profile_parts(profile, where)
    blocks = {key: value for part in parts for key, value in part.values.items()}
    tasks, environments = (block_of(blocks.get(key), where, key) for key in ("own", "environments"))
    files.small = _small(blocks.get("small"), where)
    task_key, task_values = _tasks_of(tasks, environments, shipped, trained, where)
    layers: list[Layer] = []
    for part in parts:  # a base's tasks and their sizes are below the values of the profile that extends it
        values = {key: value for key, value in part.values.items() if key not in ("own", "environments", "small")}
        of_tasks = task_values if task_key in part.values else []
        layers += [replace(part, values=layer_values) for layer_values in (values, *of_tasks)]
    for layer in layers:
        _check_whitelist(layer)
    layers += _for_profile(shipped, name, Rank.SHIPPED_FOR_PROFILE)
    kind = _schedule_kind(shipped)
    for layer in layers:
        _fit_to_schedule(layer, kind)
    files.layers += layers


def _profile_parts(profile: str | Path, where: str) -> list[Layer]:
    """Return the profile's file after those that it extends. What it says replaces theirs by whole blocks."""
    parts, files = [_profile_file(profile, where)], [find(profile, "profile").resolve()]
    while (base := parts[0].values.pop("extends", None)) is not None:
        files.append(find(base, "profile").resolve())
        if files[-1] in files[:-1]:
            path = " -> ".join(file.stem for file in files)
            raise ConfigError(
                "recipe.circular", f"Profile '{files[0].stem}' extends itself ({path}). Remove one extends."
            )
        own_keys = {key for part in parts for key in part.values}
        parts.insert(0, _profile_file(base, where))
        parts[0].values = {key: value for key, value in parts[0].values.items() if key not in own_keys}
    return parts


def _profile_file(name: str | Path, where: str) -> Layer:
    path = find(name, "profile")
    values = dict(read(path))
    values.pop("name", None)
    cited = _cited(values.pop("sources", None), where)
    return Layer(where, Rank.PROFILE, values, str(values.pop("source", "" if _is_shipped(path) else YOURS)), cited)


def _tasks_of(
    profile_values: Mapping[str, Any],
    environments: Mapping[str, Any],
    shipped: Sequence[_RecipeFile],
    trained: frozenset[str],
    where: str,
) -> tuple[str, list[dict[str, Any]]]:
    """Return the key that holds the values for training under the profile, and these values.

    Its own tasks replace mixes that its model cannot handle. An environment that a recipe is about gets its small
    tier. Sizes made for the profile's own tasks apply to no other tasks.
    """
    recipe_gyms = _named_gyms(shipped)
    replaced = frozenset(names_of(profile_values.get("in_place_of"), where, "own.in_place_of"))
    gyms = frozenset(block_of(profile_values.get("gyms"), where, "own.gyms"))
    sizes = block_of(profile_values.get("sizes"), where, "own.sizes")
    by_gym = {gym: block_of(values, where, f"environments.{gym}") for gym, values in environments.items()}
    if not recipe_gyms or set(recipe_gyms) <= gyms or (len(recipe_gyms) > 1 and set(recipe_gyms) <= replaced):
        own_values = [{key: value for key, value in profile_values.items() if key not in ("in_place_of", "sizes")}]
        return "own", [*own_values, dict(sizes)] if trained <= gyms else own_values
    return "environments", [dict(by_gym[gym]) for gym in recipe_gyms if gym in by_gym]


def _trained(values: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Return the gyms of all mixes in these values, at any depth and under any dotted key."""
    gyms: set[str] = set()
    for key, value in (pair for mapping in values for pair in mapping.items()):
        if str(key).rpartition(".")[2] in ("mix", "alternate") and isinstance(value, (Mapping, list, tuple)):
            gyms |= {str(gym) for gym in value}
            continue
        inner = value if isinstance(value, (list, tuple)) else [value]
        gyms |= _trained([inner_value for inner_value in inner if isinstance(inner_value, Mapping)])
    return frozenset(gyms)


def _named_gyms(shipped: Sequence[_RecipeFile]) -> tuple[str, ...]:
    """Return the gyms of the shipped recipe's own stages, or of its evaluation without stages."""
    published = Merged()
    for part in shipped:
        published.add(part.layer(Rank.SHIPPED, part.values))
    gyms: dict[str, None] = {}
    for stage in published.get("stages") or ():
        gyms |= dict.fromkeys((*stage.get("mix", {}), *stage.get("alternate", ())))
    evaluated = published.get("evaluate.gyms", "all")
    return tuple(gyms) or (() if evaluated == "all" else tuple(evaluated))


def _small(block: Any, where: str) -> dict[str, Small]:
    setups = {
        str(gym): block_of(setup, where, f"small.{gym}") for gym, setup in block_of(block, where, "small").items()
    }
    return {gym: validated(Small, setup, f"{where}, small.{gym}") for gym, setup in setups.items()}


def _for_profile(parts: Sequence[_RecipeFile], name: str, rank: Rank) -> list[Layer]:
    layers = []
    for part in parts:
        block = dict(block_of(part.profiles.get(name), f"recipe {part.name}", name))
        where = f"recipe {part.name}, for profile {name}"
        cited = _cited(block.pop("sources", None), where)
        source = "" if part.shipped else YOURS
        layers.append(Layer(where, rank, block, str(block.pop("source", source)), cited))
    return layers


def _cited(value: Any, where: str) -> dict[str, str]:
    """Return the citation of each key of ``sources``. ``block.{a, b}`` names two keys of a block."""
    cited = {}
    for key, citation in block_of(value, where, "sources").items():
        block, brace, names = str(key).partition("{")
        for name in names.removesuffix("}").split(",") if brace else ("",):
            cited[block + name.strip()] = str(citation)
    return cited


def _schedule_kind(recipe: Sequence[_RecipeFile]) -> str | None:
    kind = None
    for part in recipe:
        if "schedule" in part.values:
            schedule = part.values["schedule"]
            kind = schedule.get("kind") if isinstance(schedule, Mapping) else None
    return kind


def _check_whitelist(layer: Layer) -> None:
    for key, value in layer.values.items():
        if key not in PROFILE_FIELDS:
            raise ConfigError(
                "profile.recipe_key",
                f"{layer.where[0].upper()}{layer.where[1:]} sets '{key}', which belongs to the "
                f"recipe{nearest(key, PROFILE_FIELDS)}. A profile may set {', '.join(sorted(PROFILE_FIELDS))}.",
            )
        allowed = PROFILE_FIELDS[key]
        if allowed is None:
            continue
        for inner in value:
            if inner not in allowed:
                raise ConfigError(
                    "profile.recipe_key",
                    f"{layer.where[0].upper()}{layer.where[1:]} sets '{key}.{inner}', which belongs to the "
                    f"recipe{nearest(inner, allowed)}. There, a profile may set {', '.join(sorted(allowed))}.",
                )


def _fit_to_schedule(layer: Layer, kind: str | None) -> None:
    """Keep the schedule kind of a recipe that has one. The profile then gives values for that kind and drops horizons."""
    schedules = {
        name: block_of(values, layer.where, f"schedules.{name}")
        for name, values in block_of(layer.values.pop("schedules", None), layer.where, "schedules").items()
    }
    if kind is None:
        return
    if kind in schedules:
        layer.values["schedule"] = {"kind": kind, **schedules[kind]}
    if layer.values.get("stages"):
        for number, stage in enumerate(layer.values["stages"]):
            validated(Stage, stage, f"{layer.where}, stages[{number}]")
        first, *rest = layer.values["stages"]
        unit = "tokens" if "tokens" in first else "steps"
        length = sum(int(stage.get(unit, 0)) for stage in (first, *rest))
        layer.values["stages"] = [{k: v for k, v in first.items() if k not in ("horizon", "gates")} | {unit: length}]
