"""A sweep: Optuna over a named space, trials as runs of a ``train`` deployment, the winner confirmed on fresh seeds."""

from __future__ import annotations

from flows.machine.home import settle

settle()

import base64  # noqa: E402
import re  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Mapping  # noqa: E402
from dataclasses import dataclass, field  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import yaml  # noqa: E402
from optuna import Study  # noqa: E402
from prefect import flow, get_run_logger, runtime  # noqa: E402
from prefect.artifacts import create_image_artifact  # noqa: E402
from prefect.utilities.urls import url_for  # noqa: E402

from curricula import load  # noqa: E402
from curricula.validation import validated  # noqa: E402
from curricula.yaml_files import stem  # noqa: E402
from flows.machine.home import home, warehouse_dir  # noqa: E402
from flows.machine.keyless import keyless  # noqa: E402
from flows.machine.slots import alone  # noqa: E402
from flows.run.artifacts import artifact_key, show_markdown  # noqa: E402
from flows.run.request import SweepRequest, takes  # noqa: E402
from flows.trials.launchers import DeploymentLauncher, ProcessLauncher  # noqa: E402
from sweeps.driver import Sweep  # noqa: E402
from sweeps.results import Winner, draw, importance, table, winner  # noqa: E402
from sweeps.space import Space, load_space  # noqa: E402
from sweeps.storage import hidden, storage_of  # noqa: E402
from sweeps.study import counted, open_study, planned, ranked  # noqa: E402
from userrl_core.json_files import read_json, write_json  # noqa: E402


def flow_run_name() -> str:
    """The space's name, also where it was given as a file."""
    return stem(str(runtime.flow_run.parameters.get("space", "sweep")))


@keyless
@flow(name="sweep", flow_run_name=flow_run_name, validate_parameters=True)
@takes(SweepRequest)
def sweep(request: SweepRequest) -> dict[str, Any]:
    """Run a named space to the end of its budget; running it again goes on where it stopped."""
    log = get_run_logger()
    space = edition(_adjusted(load_space(request.space), request), renew=request.renew)
    folder = home() / "sweeps" / space.name
    launcher_of = DeploymentLauncher if request.workers == "deployments" else ProcessLauncher
    with alone(folder / "sweep.lock", f"Sweep {space.name}"):
        storage = storage_of(request.storage, read_json(folder / "space.json"), space.name)
        address = None if storage is None else hidden(storage)
        write_json(folder / "space.json", {"space": space.model_dump(mode="json"), "storage": address})
        study = open_study(space, folder, storage)
        log.info("sweep %s: %d of %d trials done", space.name, len(counted(study)), planned(space))
        driver = Sweep(space, study, launcher_of(space, log.info), warehouse_dir(), say=log.info)
        driver.parallel, driver.poll_seconds = request.parallel, request.poll_seconds
        driver.show = shown = _ShownTrials(space, study)
        driver.run()
        write_json(folder / ENDED, {"at": time.time(), "trials": len(counted(study))})
        best = winner(space, study)
        (folder / "report.md").write_text(page(space, study))
        (folder / "best.yaml").write_text(recipe_text(space, best))
        pictures = draw(space, study, folder)
    shown(over=True)
    _show_pictures(space.name, pictures)
    log.info("best: %s", best.claim)
    return {"sweep": space.name, "best": best.overrides, "claim": best.claim, "trials": len(counted(study))}


ENDED = "ended.json"
_EDITION = re.compile(r"^(?P<name>.+)\.(?P<number>[0-9]+)$")


def edition(space: Space, *, renew: bool) -> Space:
    """The newest edition of a sweep (``<name>``, ``<name>.2``, ...), or the one after it if that has ended and renew is set.

    Each edition has trials of its own on a seed of its own: a sweep that a clock starts every night repeats nothing.
    """
    number = newest(space.name)
    if renew and number and (home() / "sweeps" / edition_name(space.name, number) / ENDED).is_file():
        number += 1
    number = max(1, number)
    return space.model_copy(update={"name": edition_name(space.name, number), "seed": space.seed + number - 1})


def edition_name(name: str, number: int) -> str:
    """``gamma``, ``gamma.2``, ``gamma.3`` ..."""
    return name if number == 1 else f"{name}.{number}"


def newest(name: str) -> int:
    """The number of a sweep's newest edition in this home, 0 when it has not been run."""
    folder = home() / "sweeps"
    numbers = [1] if (folder / name / "space.json").is_file() else []
    for file in folder.glob(f"{name}.*/space.json"):
        match = _EDITION.match(file.parent.name)
        if match and match["name"] == name:
            numbers.append(int(match["number"]))
    return max(numbers, default=0)


@dataclass(slots=True)
class _ShownTrials:
    """The table of trials as Prefect shows it, written anew when a row changes. over: the sweep is, with all that can be said."""

    space: Space
    study: Study
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, *, over: bool = False) -> None:
        rows = table(self.space, self.study, at_work=True)
        if over or rows != self.rows:
            self.rows = rows
            text = page(self.space, self.study, link=_link, over=over)
            show_markdown(f"sweep-{self.space.name}", text, f"sweep {self.space.name}")


def _link(handle: str) -> str | None:
    """The page of a trial's flow run, None where a trial is a child process."""
    return None if ":" in handle else url_for("flow-run", obj_id=handle)


def _show_pictures(name: str, pictures: list[Path]) -> None:
    key = artifact_key(f"sweep-{name}")
    for path in pictures:
        picture = base64.b64encode(path.read_bytes()).decode()
        create_image_artifact(f"data:image/png;base64,{picture}", key=f"{key}-{path.stem}")


def recipe_text(space: Space, best: Winner) -> str:
    """The winning recipe as YAML that ``train`` takes as its recipe parameter."""
    recipe = load(space.recipe, profile=space.profile, overrides=best.overrides)
    values = {
        **recipe.resolved(),
        "name": f"{space.recipe}-{space.name}",
        "source": f"sweep {space.name}: {best.claim}",
    }
    return "# train it with `-p recipe=FILE`: the profile's sizes are in here already\n" + str(
        yaml.safe_dump(values, sort_keys=False)
    )


def page(
    space: Space, study: Study, link: Callable[[str], str | None] = lambda handle: None, *, over: bool = True
) -> str:
    """The sweep in Markdown, over or not: importance is told at the end. link: the page of a trial, by its handle."""
    rows, names = table(space, study, at_work=True), [objective.query for objective in space.objectives]
    done = f"{len(counted(study))} of {planned(space)} trials done"
    lines = [f"# Sweep {space.name}", "", space.source, "", done, ""]
    if ranked(study):
        best = winner(space, study)
        lines += [f"Best: {best.claim}", "", *(f"- `{key}` = {value}" for key, value in best.overrides.items()), ""]
    shares = importance(study) if over else {}
    if shares:
        lines += ["Importance (fANOVA): " + ", ".join(f"{name} {share:.0%}" for name, share in shares.items()), ""]
    head = ["trial", "state", *space.parameters, *names, "run", "note"]
    lines += ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    for row in rows:
        address = link(row["handle"]) if row["handle"] else None
        run = f"[{row['run_id']}]({address})" if address else row["run_id"] or ""
        chosen = [row["params"].get(name, "") for name in space.parameters]
        cells = [row["trial"], row["state"], *chosen, *_measured(row, len(names)), run, row["note"] or ""]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    confirmed = study.user_attrs.get("confirmed", [])
    if confirmed:
        lines += ["", "Fresh seeds: " + ", ".join(f"{row['seed']}: {row['values']}" for row in confirmed)]
    return "\n".join(lines) + "\n"


def _measured(row: Mapping[str, Any], count: int) -> list[str]:
    """A cell per objective: the value with its standard error, or the last validation of a trial that is not over."""
    if not row["values"]:
        so_far = row["so_far"]
        return ["" if so_far is None else f"{so_far:.3f} so far", *[""] * (count - 1)]
    errors = row["stderr"] or [None] * count
    return [f"{v:.3f}" + ("" if e is None else f" ± {e:.3f}") for v, e in zip(row["values"], errors, strict=True)]


def _adjusted(space: Space, request: SweepRequest) -> Space:
    values = space.model_dump(mode="json")
    values["budget"].update(request.budget or {})
    if request.trials is not None:
        values["budget"]["trials"] = request.trials
    values["overrides"].update(request.overrides or {})
    return validated(Space, values, f"sweep {space.name}")


if __name__ == "__main__":
    sweep()
