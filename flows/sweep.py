"""A sweep: Optuna over a named space, trials as runs of a ``train`` deployment, the winner confirmed on fresh seeds."""

from __future__ import annotations

from flows.machine.home import settle

settle()

import base64  # noqa: E402
import re  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any, Literal  # noqa: E402

import yaml  # noqa: E402
from prefect import flow, get_run_logger  # noqa: E402
from prefect.artifacts import create_image_artifact, create_markdown_artifact  # noqa: E402

from flows.machine.home import home, warehouse_dir  # noqa: E402
from flows.machine.slots import alone  # noqa: E402
from flows.run.run import read_json, write_json  # noqa: E402
from flows.trials.launchers import DeploymentLauncher, ProcessLauncher  # noqa: E402
from sweeps.driver import Sweep  # noqa: E402
from sweeps.report import Winner, importance, pictures, table, winner  # noqa: E402
from sweeps.space import Space, load_space  # noqa: E402
from sweeps.storage import hidden, storage_of  # noqa: E402
from sweeps.study import counted, open_study  # noqa: E402
from userrl_core.errors import ConfigError  # noqa: E402


@flow(name="sweep", flow_run_name="{space}", validate_parameters=True)
def sweep(
    space: str = "gamma",
    parallel: int = 2,
    trials: int | None = None,
    workers: Literal["deployments", "processes"] = "deployments",
    storage: str | None = None,
    budget: dict[str, float] | None = None,
    overrides: dict[str, Any] | None = None,
    poll_seconds: float = 2.0,
    renew: bool = False,
) -> dict[str, Any]:
    """Run a named space to the end of its budget; running it again goes on where it stopped.

    space: name of a shipped space, or a YAML file. parallel: trials at once. trials, budget (hours, gpu_hours, money): in
    place of the space's own. workers: deployments (flow runs that any worker takes) or processes (children of this one).
    storage: an Optuna RDB URL in place of the journal file (or in $USERRL_SWEEP_STORAGE, where a password is seen by fewer).
    overrides: recipe overrides common to all trials. renew: begin anew on the next seed when the last edition has ended, as a
    schedule wants; one that was cut off is still continued.
    """
    log = get_run_logger()
    if parallel < 1:
        raise ConfigError(f"parallel is {parallel}; at least one trial must run at a time.")
    chosen = edition(_adjusted(load_space(space), trials, budget, overrides), renew=renew)
    folder = home() / "sweeps" / chosen.name
    launcher_of = DeploymentLauncher if workers == "deployments" else ProcessLauncher
    with alone(folder / "sweep.lock", f"Sweep {chosen.name}"):
        storage = storage_of(storage, read_json(folder / "space.json"), chosen.name)
        kept = None if storage is None else hidden(storage)
        write_json(folder / "space.json", {"space": chosen.model_dump(mode="json"), "storage": kept})
        study = open_study(chosen, folder, storage)
        log.info("sweep %s: %d of %d trials done", chosen.name, len(counted(study)), chosen.budget.trials)
        launcher = launcher_of(chosen, log.info)
        Sweep(
            chosen, study, launcher, warehouse_dir(), parallel=parallel, poll_seconds=poll_seconds, say=log.info
        ).run()
        write_json(folder / ENDED, {"at": time.time(), "trials": len(counted(study))})
        best = winner(chosen, study)
        text = page(chosen, study, best)
        (folder / "report.md").write_text(text)
        (folder / "best.yaml").write_text(recipe_text(chosen, best))
        drawn = pictures(study, folder)
    _show(chosen.name, text, drawn)
    log.info("best: %s", best.claim)
    return {"sweep": chosen.name, "best": best.overrides, "claim": best.claim, "trials": len(counted(study))}


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
    found = [1] if (folder / name / "space.json").is_file() else []
    for kept in folder.glob(f"{name}.*/space.json"):
        match = _EDITION.match(kept.parent.name)
        if match and match["name"] == name:
            found.append(int(match["number"]))
    return max(found, default=0)


def _show(name: str, text: str, drawn: list[Path]) -> None:
    key = re.sub(r"[^a-z0-9]+", "-", f"sweep-{name}".lower()).strip("-")
    create_markdown_artifact(text, key=key)
    for path in drawn:
        picture = base64.b64encode(path.read_bytes()).decode()
        create_image_artifact(f"data:image/png;base64,{picture}", key=f"{key}-{path.stem}")


def recipe_text(space: Space, best: Winner) -> str:
    """The winning recipe as YAML that ``train`` takes as its recipe parameter."""
    from curricula import load

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


def _adjusted(
    space: Space, trials: int | None, budget: dict[str, float] | None, overrides: dict[str, Any] | None
) -> Space:
    values = space.model_dump(mode="json")
    values["budget"].update(budget or {})
    if trials is not None:
        values["budget"]["trials"] = trials
    values["overrides"].update(overrides or {})
    try:
        return Space.model_validate(values)
    except ValueError as error:
        lines = str(error).splitlines()
        raise ConfigError(f"Sweep {space.name}: {lines[1]}: {lines[2].strip()}") from error


if __name__ == "__main__":
    sweep()
