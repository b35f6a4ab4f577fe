"""What a study was begun with. Its trials are comparable only if all of it stays.

The study has a record of the values that decide its results, with their hash. A space with other values is refused, with the
difference. So is other content of the files and packages that trials read. More trials, more options of a grid and more fresh
seeds are taken. Studies of earlier versions have no record: their trials, and the stored space if it fits them, are compared
instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import optuna
from optuna.trial import FrozenTrial
from pydantic import TypeAdapter

from curricula import load
from curricula.host import AUTO
from curricula.layers import sources
from curricula.load import MACHINE
from sweeps.parameters import Parameter, label_of, params_of
from sweeps.space import Space
from sweeps.study import planned, points
from userrl_core.errors import ConfigError
from userrl_core.json_files import json_text
from userrl_core.seeding import content_hash
from userrl_core.settings import Settings

RECORD = "space"
"""The study's attribute with the record: hash and values."""

CONTENT = "external"
"""The record's key with the content that trials read. Earlier records lack it."""

Content = Mapping[str, Sequence[str]]
"""The hashes of what trials read from outside, by name. A parameter may have one for each option."""

NO_CONTENT: Content = {}

_PARAMETER: TypeAdapter[Parameter] = TypeAdapter(Parameter)


def record_space(space: Space, study: optuna.Study, earlier: Space | None, content: Content = NO_CONTENT) -> list[str]:
    """Record what a study has now, and return sentences about what is new. For the arguments and the error see `compare_space`."""
    sentences = compare_space(space, study, earlier, content)
    stored = study.user_attrs.get(RECORD, {"values": {}})["values"]
    recorded = stored.get(CONTENT, {})
    if sentences or not stored or any(recorded.get(name) != hashes for name, hashes in content.items()):
        now = _values(space) | {CONTENT: {**recorded, **content}}
        study.set_user_attr(RECORD, {"hash": content_hash(now), "values": now})
    return sentences


def compare_space(space: Space, study: optuna.Study, earlier: Space | None, content: Content = NO_CONTENT) -> list[str]:
    """Return sentences about what a space adds to its study.

    earlier: the space that was last stored here. content: what trials read now. A name that the study or now lacks is taken.
    Raises ConfigError with the difference if the space or the content is not the study's.
    """
    now, stored = _values(space) | {CONTENT: content}, study.user_attrs.get(RECORD)
    sentences, before = [], now
    if stored is not None:
        before = stored["values"]
    elif study.get_trials(deepcopy=False):
        before = _values(_fitting(space, study, earlier))
        sentences = [f"An earlier version recorded no hash of its space. The hash is now {content_hash(now)}."]
    differences, added = _compared(before, now)
    if differences:
        raise _changed(space, differences)
    if space.sampler.name == "grid" and added and (left := points(space) - planned(space)):
        added.append(f"The budget of {space.budget.trials} trials leaves {left} points of the grid out.")
    return [*sentences, *added]


def _values(space: Space) -> dict[str, Any]:
    """Return the values that decide a study's results by dotted key, as JSON stores them.

    A grid is the same whatever the seed of its sampler, and a sampler without a model has no startup.
    """
    values: dict[str, Any] = {"recipe": space.recipe, "profile": space.profile, "seed": space.seed}
    values["objectives"] = list(map(_dumped, space.objectives))
    values["constraints"] = list(map(_dumped, space.constraints))
    values["pruning"] = _dumped(space.pruning) if space.pruning.enabled else None
    values["confirm.seeds"] = space.confirm.seeds
    sampler = ("name", *({"grid": (), "random": ("seed",)}.get(space.sampler.name, ("seed", "startup"))))
    values["sampler"] = {field: getattr(space.sampler, field) for field in sampler}
    values |= {f"overrides.{key}": value for key, value in space.overrides.items()}
    values |= {f"parameters.{name}": _dumped(p) | {"kind": p.kind} for name, p in space.parameters.items()}
    values["recipe_hash"] = _recipe_hash(space)
    plain: dict[str, Any] = json.loads(json.dumps(values))
    return plain


def _recipe_hash(space: Space) -> str | None:
    """Return the hash of the recipe with its profile, the same on every machine. None if its files cannot be read.

    A recipe that is complete only with the overrides is hashed as its files give it.
    """
    try:
        recipe = load(space.recipe, profile=space.profile, check=False)
    except ConfigError:
        with suppress(ConfigError):
            return content_hash(json_text([layer.values for layer in sources(space.recipe, space.profile).layers]))
        return None
    values = recipe.identity
    if recipe.origin("model.dtype").where == MACHINE:
        values = values | {"model": values["model"] | {"dtype": AUTO}}
    return content_hash(values)


def _dumped(model: Settings) -> dict[str, Any]:
    """Return a block as JSON. A field that is added later enters only where it differs from its default."""
    return model.model_dump(mode="json", exclude_defaults=True)


def _fitting(space: Space, study: optuna.Study, earlier: Space | None) -> Space:
    """Return the space that the trials of an earlier version belong to. Raises ConfigError if it is none of the two."""
    candidates = [candidate for candidate in (earlier, space) if candidate is not None]
    fitting = next((candidate for candidate in candidates if _misfit(candidate, study) is None), None)
    if fitting is None:
        raise _changed(space, [str(_misfit(space, study))])
    return fitting


def _misfit(space: Space, study: optuna.Study) -> str | None:
    """Return in which way a study's trials are not of this space, None if they are."""
    if [direction.name.lower() for direction in study.directions] != [o.direction for o in space.objectives]:
        return f"the study has {len(study.directions)} objective(s) or other directions"
    misfits = (_trial_misfit(space, trial) for trial in study.get_trials(deepcopy=False))
    return next((misfit for misfit in misfits if misfit), None)


def _trial_misfit(space: Space, trial: FrozenTrial) -> str | None:
    params, overrides = params_of(trial), trial.user_attrs.get("overrides")
    for name, label in params.items():
        if name not in space.parameters or not space.parameters[name].has(label):
            return f"trial {trial.number} has {name}={label}"
    if overrides is None:
        return None
    for name, label in params.items():
        for key, value in space.parameters[name].overrides(label).items():
            if label_of(overrides.get(key)) != label_of(value):
                return f"trial {trial.number} ran with {key}={overrides.get(key)}"
    if trial.user_attrs.get("configuration") != space.configuration(overrides):
        return f"trial {trial.number} ran with another recipe, profile or seed"
    searched_overrides = space.found(trial)
    common = {key: value for key, value in overrides.items() if key not in searched_overrides}
    expected = {key: value for key, value in space.overrides.items() if key not in searched_overrides}
    differs = [key for key in common | expected if label_of(common.get(key)) != label_of(expected.get(key))]
    return f"trial {trial.number} ran with {differs[0]}={common.get(differs[0])}" if differs else None


def _compared(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the differences that are refused, and those that are taken, as parts of sentences and as sentences."""
    differences, added = [], []
    for key in sorted({*before, *now} - {"recipe", "recipe_hash", CONTENT}):
        old, new = before.get(key), now.get(key)
        more = _more(key, old, new, grid=now["sampler"] == before["sampler"] == {"name": "grid"})
        if more is None:
            differences.append(f"{key}: {_shown(old)}, now {_shown(new)}")
        elif more:
            added.append(f"Added to {key}: {', '.join(more)}.")
    content = _content_differences(before.get(CONTENT, {}), now[CONTENT])
    return [*_recipe_difference(before, now), *differences, *content], added


def _content_differences(before: Content, now: Content) -> Iterator[str]:
    """Yield what was read that is no longer there. A further option of a grid may read more."""
    for name in sorted(before.keys() & now.keys()):
        if not set(before[name]) <= set(now[name]):
            old, new = (", ".join(digest[:12] for digest in hashes) for hashes in (before[name], now[name]))
            yield f"content of {name}: {old}, now {new}"


def _recipe_difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield the difference of the recipes: by content, and by name if the content of one is not known."""
    hashes, names = (before["recipe_hash"], now["recipe_hash"]), (before["recipe"], now["recipe"])
    if None in hashes:
        hashes = names
    if hashes[0] != hashes[1]:
        old, new = names if names[0] != names[1] else (f"content {hashes[0]}", f"content {hashes[1]}")
        yield f"recipe: {old}, now {new}"


def _more(key: str, old: Any, new: Any, *, grid: bool) -> list[str] | None:
    """Return what a new value has more than the old one, if the old results stay as they are; else None."""
    if old == new:
        return []
    if key == "confirm.seeds":
        return [str(seed) for seed in new if seed not in old] if set(old) <= set(new) else None
    if not key.startswith("parameters.") or None in (old, new) or old["kind"] != new["kind"]:
        return None
    if old["kind"] == "range" and not grid:
        return None
    before, now = _settings(old), _settings(new)
    unchanged = all(now.get(label) == overrides for label, overrides in before.items())
    more = [label for label in now if label not in before]
    return more if unchanged and (grid or not more) else None


def _settings(dumped: Mapping[str, Any]) -> dict[str, Any]:
    """Return the overrides of each value of a parameter."""
    parameter = _PARAMETER.validate_python(dumped)
    return {str(label): parameter.overrides(label) for label in parameter.labels()}


def _shown(value: Any) -> str:
    if isinstance(value, Mapping) and "options" in value:
        return f"{value.get('key', '')} {label_of(value['options'])}".lstrip()
    if isinstance(value, Mapping):
        return " ".join(f"{part}" if name == "name" else f"{name} {label_of(part)}" for name, part in value.items())
    return "absent" if value is None else str(label_of(value))


def _changed(space: Space, differences: list[str]) -> ConfigError:
    return ConfigError(
        "sweep.changed_space",
        f"Sweep '{space.name}' was begun with another space: {'; '.join(differences)}. Its trials stay as they are. Give the space "
        "another name, or begin the next edition of the sweep with `--fresh`.",
    )
