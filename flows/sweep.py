"""A sweep: Optuna over a named space, trials as runs of a ``train`` deployment, the winner confirmed on fresh seeds."""

from __future__ import annotations

from flows.machine.home import settle

settle()

import base64  # noqa: E402
import re  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import yaml  # noqa: E402
from prefect import flow, get_run_logger  # noqa: E402
from prefect.artifacts import create_image_artifact, create_markdown_artifact  # noqa: E402

from curricula import load  # noqa: E402
from curricula.validation import validated  # noqa: E402
from flows.machine.home import home, warehouse_dir  # noqa: E402
from flows.machine.slots import alone  # noqa: E402
from flows.run.artifacts import artifact_key  # noqa: E402
from flows.run.request import SweepRequest, takes  # noqa: E402
from flows.trials.launchers import DeploymentLauncher, ProcessLauncher  # noqa: E402
from sweeps.driver import Sweep  # noqa: E402
from sweeps.results import Winner, draw, importance, table, winner  # noqa: E402
from sweeps.space import Space, load_space  # noqa: E402
from sweeps.storage import hidden, storage_of  # noqa: E402
from sweeps.study import counted, open_study  # noqa: E402
from userrl_core.json_files import read_json, write_json  # noqa: E402


@flow(name="sweep", flow_run_name="{space}", validate_parameters=True)
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
        log.info("sweep %s: %d of %d trials done", space.name, len(counted(study)), space.budget.trials)
        driver = Sweep(space, study, launcher_of(space, log.info), warehouse_dir(), say=log.info)
        driver.parallel, driver.poll_seconds = request.parallel, request.poll_seconds
        driver.run()
        write_json(folder / ENDED, {"at": time.time(), "trials": len(counted(study))})
        best = winner(space, study)
        text = page(space, study, best)
        (folder / "report.md").write_text(text)
        (folder / "best.yaml").write_text(recipe_text(space, best))
        pictures = draw(study, folder)
    _show(space.name, text, pictures)
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


def _show(name: str, text: str, pictures: list[Path]) -> None:
    key = artifact_key(f"sweep-{name}")
    create_markdown_artifact(text, key=key)
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


def page(space: Space, study: Any, best: Winner) -> str:
    """The sweep's report in Markdown."""
    lines = [f"# Sweep {space.name}", "", space.source, "", f"Best: {best.claim}", ""]
    lines += [f"- `{key}` = {value}" for key, value in best.overrides.items()]
    shares = importance(study)
    if shares:
        lines += ["", "Importance (fANOVA): " + ", ".join(f"{name} {share:.0%}" for name, share in shares.items())]
    lines += ["", "| trial | state | values | parameters | run | note |", "| --- | --- | --- | --- | --- | --- |"]
    for row in table(study):
        values = ", ".join(f"{v:.3f}" for v in row["values"] or [])
        parameters = ", ".join(f"{k}={v}" for k, v in row["params"].items())
        cells = [row["trial"], row["state"], values, parameters, row["run_id"], row["note"] or ""]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    confirmed = study.user_attrs.get("confirmed", [])
    if confirmed:
        lines += ["", "Fresh seeds: " + ", ".join(f"{row['seed']}: {row['values']}" for row in confirmed)]
    return "\n".join(lines) + "\n"


def _adjusted(space: Space, request: SweepRequest) -> Space:
    values = space.model_dump(mode="json")
    values["budget"].update(request.budget or {})
    if request.trials is not None:
        values["budget"]["trials"] = request.trials
    values["overrides"].update(request.overrides or {})
    return validated(Space, values, f"sweep {space.name}")


if __name__ == "__main__":
    sweep()
