"""A sweep: Optuna over a named space, with the winner confirmed on fresh seeds."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from optuna import Study

from curricula import load
from curricula.layers import sources
from curricula.validation import validated
from curricula.yaml_files import stem
from sweeps.driver import Sweep
from sweeps.identity import compare_space, record_space
from sweeps.launcher import Launcher
from sweeps.parameters import Options
from sweeps.results import Winner, draw, winner
from sweeps.space import NAME, Space, load_space
from sweeps.storage import hidden, storage_of
from sweeps.study import counted, open_study, progress, queue_points
from userrl.machine.home import home, warehouse_dir
from userrl.machine.slots import alone
from userrl.run.plan import plan_run
from userrl.run.request import SweepRequest, TrainRequest
from userrl.trials.document import sweep_document
from userrl_core.errors import ConfigError
from userrl_core.json_files import read_json, write_json
from userrl_core.replaced_file import write_text


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The end of a sweep: its winner, number of trials, and pictures."""

    space: Space
    study: Study
    best: Winner
    trials: int
    pictures: tuple[Path, ...]


def run_sweep(
    request: SweepRequest,
    launcher_of: Callable[..., Launcher],
    say: Callable[..., None],
    reporter_of: Callable[[Space, Study], Callable[[], None]] = lambda space, study: lambda: None,
) -> SweepResult:
    """Run a named space to the end of its budget. Run again, it continues where it stopped.

    launcher_of: takes the space and ``say``. reporter_of: takes space and study, and returns a function called after every poll.
    """
    space = requested_space(request)
    _refuse_impossible(space)
    folder = home() / "sweeps" / space.name
    with alone(folder / "sweep.lock", f"Sweep {space.name}"):
        record = read_json(folder / "space.json")
        storage = storage_of(request.storage, record, space.name)
        address = None if storage is None else hidden(storage)
        study = open_study(space, folder, storage, queue=False)
        for sentence in record_space(space, study, recorded_space(record), content_of(space)):
            say("sweep %s: %s", space.name, sentence)
        write_json(folder / "space.json", {"space": space.model_dump(mode="json"), "storage": address})
        queue_points(space, study)
        say("sweep %s: %s done", space.name, progress(space, study))
        driver = Sweep(space, study, launcher_of(space, say), warehouse_dir(), say=say)
        driver.parallel, driver.poll_seconds = request.parallel, request.poll_seconds
        driver.show = reporter_of(space, study)
        driver.check = lambda: compare_space(space, study, None, content_of(space))
        driver.run()
        write_json(folder / ENDED, {"at": time.time(), "trials": len(counted(study))})
        best = winner(space, study)
        write_text(folder / "report.md", sweep_document(space, study, at_work=False).markdown())
        write_text(folder / "best.yaml", recipe_text(space, best))
        pictures = draw(space, study, folder)
    say("best: %s", best.claim)
    return SweepResult(space, study, best, len(counted(study)), tuple(pictures))


def requested_space(request: SweepRequest) -> Space:
    """Return the space of a request, under the name and seed of its edition. Raises ConfigError if it cannot be used."""
    space = edition(_adjusted(load_space(request.space), request), renew=request.renew, fresh=request.fresh)
    return space.refuse_faults(f"Sweep {space.name}")


def _refuse_impossible(space: Space) -> None:
    """Raise ConfigError for a missing recipe or profile, and for a key that the recipe does not have.

    Every trial would fail of it and use up the budget, and the mended space would be refused as a changed one.
    """
    try:
        sources(space.recipe, space.profile)
    except ConfigError as error:
        raise ConfigError(error.code, f"Sweep {space.name}: no trial can run. {error}") from error
    try:
        load(space.recipe, profile=space.profile, overrides=space.with_common(_first_values(space)), check=False)
    except ConfigError as error:
        if error.code in ("recipe.unknown_key", "recipe.bad_override"):
            raise ConfigError(error.code, f"Sweep {space.name}: no trial can run. {error}") from error


def _first_values(space: Space) -> dict[str, Any]:
    """Return the first value of each parameter."""
    return {name: p.labels()[0] if isinstance(p, Options) else p.low for name, p in space.parameters.items()}


def content_of(space: Space) -> dict[str, list[str]]:
    """Return the hashes of what trials of a space read from outside, by name: of every option of its parameters."""
    first, hashes = _first_values(space), dict[str, set[str]]()
    options = [(name, p.labels()) for name, p in space.parameters.items() if isinstance(p, Options)]
    for params in [first, *(first | {name: label} for name, labels in options for label in labels[1:])]:
        request = TrainRequest(
            recipe=space.recipe, profile=space.profile, overrides=space.with_common(params), dry_run=True
        )
        with suppress(ConfigError):  # the trial says what is missing
            plan = plan_run(request)
            external = plan.external()
            for stage in plan.stages[:-1]:  # trials end before the test
                for name, digest in external[stage].items():
                    hashes.setdefault(name, set()).add(digest)
    return {name: sorted(digests) for name, digests in hashes.items()}


def recorded_space(record: Mapping[str, Any] | None) -> Space | None:
    """Return the space that was last stored here, None if there is none or it fits no longer."""
    try:
        return None if record is None else Space.model_validate(record["space"])
    except (KeyError, ValueError):
        return None


def open_sweep(name: str) -> tuple[Space, Study]:
    """Return a sweep of this home with its study. ``gamma`` is its newest edition, ``gamma.1`` the first.

    Raises ConfigError for an invalid name, or for a sweep that was not run here.
    """
    if re.fullmatch(NAME, name) is None:
        raise ConfigError(
            "argument.malformed", f"'{name}' cannot be the name of a sweep. Use letters, digits, '.', '_' and '-'."
        )
    folder = home() / "sweeps" / (name.removesuffix(".1") if name.endswith(".1") else edition_name(name, newest(name)))
    record = read_json(folder / "space.json")
    if record is None:
        names = ", ".join(sorted(p.parent.name for p in folder.parent.glob("*/space.json"))) or "none yet"
        raise ConfigError("sweep.no_such_sweep", f"Sweep '{name}' has not been run here. Known: {names}.")
    space = Space.model_validate(record["space"])
    return space, open_study(space, folder, storage_of(None, record, name), queue=False)


ENDED = "ended.json"
_EDITION = re.compile(r"^(?P<name>.+)\.(?P<number>[0-9]+)$")


def edition(space: Space, *, renew: bool, fresh: bool = False) -> Space:
    """Return the newest edition of a sweep (``<name>``, ``<name>.2``, ...).

    It is the next one if fresh is set, or if renew is set and the newest has ended. Each edition has its own trials and its own
    seed, so that a sweep on a nightly schedule repeats nothing.
    """
    number = newest(space.name)
    finished = (home() / "sweeps" / edition_name(space.name, number) / ENDED).is_file()
    if number and (fresh or (renew and finished)):
        number += 1
    number = max(1, number)
    return space.model_copy(update={"name": edition_name(space.name, number), "seed": space.seed + number - 1})


def edition_name(name: str, number: int) -> str:
    """Return ``gamma``, ``gamma.2``, ``gamma.3`` ..."""
    return name if number == 1 else f"{name}.{number}"


def newest(name: str) -> int:
    """Return the number of a sweep's newest edition in this home, 0 if it has not been run."""
    folder = home() / "sweeps"
    numbers = [1] if (folder / name / "space.json").is_file() else []
    for file in folder.glob(f"{name}.*/space.json"):
        match = _EDITION.match(file.parent.name)
        if match and match["name"] == name:
            numbers.append(int(match["number"]))
    return max(numbers, default=0)


def best_recipe(space: Space, best: Winner) -> str:
    """Return the winner in words: the recipe, and the values that the sweep chose."""
    values = ", ".join(f"{key}={value}" for key, value in best.chosen.items())
    return f"{stem(space.recipe)} with {values}" if values else stem(space.recipe)


def recipe_text(space: Space, best: Winner) -> str:
    """Return the winning recipe as YAML, which ``train`` takes as its recipe."""
    recipe = load(space.recipe, profile=space.profile, overrides=best.overrides)
    values = {
        **recipe.resolved(),
        "name": f"{recipe.name}-{space.name}",
        "source": f"sweep {space.name}: {best.claim}",
    }
    return "# train it with `userrl train FILE`; the profile's sizes are already included\n" + str(
        yaml.safe_dump(values, sort_keys=False)
    )


def _adjusted(space: Space, request: SweepRequest) -> Space:
    values = space.model_dump(mode="json")
    values["budget"].update(request.budget or {})
    if request.trials is not None:
        values["budget"]["trials"] = request.trials
    values["overrides"].update(request.overrides or {})
    return validated(Space, values, f"sweep {space.name}")
