"""What a sweep would run. Nothing is started or stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from optuna import Study

from curricula import load
from curricula.shown import shown
from sweeps.identity import compare_space
from sweeps.space import Space
from sweeps.storage import storage_of
from sweeps.study import counted, next_trials, open_study, planned
from userrl.machine.home import home
from userrl.run.request import SweepRequest
from userrl.trials.sweep import content_of, recorded_space, requested_space
from userrl_core.errors import ConfigError
from userrl_core.json_files import read_json

MOST = 20
"""Number of trials that are listed."""


def sweep_plan(request: SweepRequest) -> str:
    """Return what this request would run, as lines. Raises ConfigError if it would be refused."""
    space = requested_space(request)
    folder = home() / "sweeps" / space.name
    record, study, sentences = read_json(folder / "space.json"), None, []
    if record is not None:
        study = open_study(space, folder, storage_of(request.storage, record, space.name), queue=False)
        sentences = compare_space(space, study, recorded_space(record), content_of(space))
    return "\n".join([*_head(space, study), *sentences, *_trials(space, study), *_confirmation(space)])


def _head(space: Space, study: Study | None) -> Iterator[str]:
    yield f"sweep {space.name}: recipe {space.recipe}, profile {space.profile}, seed {space.seed}"
    done = 0 if study is None else len(counted(study))
    limits = [f"{value:g} {name}" for name, value in space.budget.model_dump().items() if value is not None]
    left = max(0, planned(space) - done)
    yield f"  {done} trials done, {left} left; sampler {space.sampler.name}; budget {', '.join(limits)}"


def _trials(space: Space, study: Study | None) -> Iterator[str]:
    trials = next_trials(space, study)
    for overrides in trials[:MOST]:
        yield f"  trial: {_line(space, overrides)}"
    if more := max(0, planned(space) - (0 if study is None else len(counted(study))) - len(trials[:MOST])):
        yield f"  and {more} more" if len(trials) > MOST else f"  then {more} that the sampler proposes"


def _line(space: Space, overrides: Mapping[str, Any]) -> str:
    trial_overrides = {key: value for key, value in overrides.items() if space.overrides.get(key) != value}
    text = ", ".join(f"{key}={shown(value)}" for key, value in trial_overrides.items()) or "the common overrides"
    try:
        load(space.recipe, profile=space.profile, overrides=overrides)
    except ConfigError as error:
        return f"{text} (would be refused: {error})"
    return text


def _confirmation(space: Space) -> Iterator[str]:
    if space.confirm.top and space.confirm.seeds:
        yield f"  then the best {space.confirm.top} again on seed {', '.join(map(str, space.confirm.seeds))}"
