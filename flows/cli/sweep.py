"""``userrl sweep run|status|best``: run a sweep here, see what it has found so far, print its winner as a recipe.

Heavy modules are imported inside the commands: ``userrl --help`` stays quick.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.arguments import Html
from flows.cli.terminal import plain

if TYPE_CHECKING:
    from optuna import Study

    from sweeps.space import Space

app = typer.Typer(no_args_is_help=True, help="Sweeps: run, status, the best recipe.")


@app.command()
def run(
    space: Annotated[str, typer.Argument(help="A shipped space or a YAML file.")],
    parallel: Annotated[int, typer.Option(help="Trials at once.")] = 2,
    trials: Annotated[int | None, typer.Option(help="In place of the space's budget.")] = None,
    storage: Annotated[
        str | None, typer.Option(help="An Optuna RDB URL in place of the journal file; or $USERRL_SWEEP_STORAGE.")
    ] = None,
    renew: Annotated[bool, typer.Option("--renew", help="Begin anew when the last edition has ended.")] = False,
) -> None:
    """Run a sweep here, its trials as child processes; `prefect deployment run sweep/gamma` uses workers instead."""
    from sweeps.space import load_space

    load_space(space)  # refused before a server is started for it
    from flows.machine.temporary_server import stop_in_order
    from flows.sweep import sweep

    stop_in_order()
    done = sweep(space=space, parallel=parallel, trials=trials, workers="processes", storage=storage, renew=renew)
    typer.echo(f"{done['sweep']}: {done['claim']}\nnext: userrl sweep best {done['sweep']}")


@app.command()
def status(
    name: Annotated[str, typer.Argument(help="The sweep's name.")],
    as_json: Annotated[bool, typer.Option("--json", help="Rows as JSON.")] = False,
) -> None:
    """Every trial with its state, values and run."""
    from flows.machine.home import home, runs_dir
    from flows.machine.slots import held
    from flows.run.run import read_status
    from sweeps.results import importance, table
    from sweeps.study import planned

    space, study = _open(name)
    at_work = held(home() / "sweeps" / space.name / "sweep.lock")
    rows = table(space, study, at_work=at_work)
    if as_json:
        typer.echo(json.dumps(rows, default=str))
        return
    done, count = sum(row["state"] in ("complete", "pruned") for row in rows), planned(space)
    typer.echo(f"{name}: {done} of {count} trials done, recipe {space.recipe}, profile {space.profile}")
    if done < count and not at_work:
        typer.echo("nothing works on it; start the sweep again to continue")
    for row in rows:
        errors = row["stderr"] or [None] * len(row["values"] or [])
        measured = zip(row["values"] or [], errors, strict=False)
        so_far = "-" if row["so_far"] is None else f"{row['so_far']:.3f} so far"
        values = ", ".join(f"{v:.3f}" + ("" if e is None else f" ± {e:.3f}") for v, e in measured) or so_far
        parameters = " ".join(f"{k}={v}" for k, v in row["params"].items())
        waits = read_status(runs_dir() / row["run_id"]).waits if row["run_id"] and row["state"] == "running" else None
        note = f"waits for a slot, held: {waits}" if waits else row["note"] or ""
        tail = f"{parameters}  {row['run_id'] or ''}  {note}".rstrip()
        typer.echo(plain(f"{row['trial']:4d} {row['state']:9s} {values:>16s}  {tail}"))
    shares = importance(study)
    if shares:
        typer.echo("importance: " + ", ".join(f"{key} {share:.0%}" for key, share in shares.items()))
    typer.echo(f"next: userrl sweep best {name}")


@app.command()
def best(name: Annotated[str, typer.Argument(help="The sweep's name.")]) -> None:
    """The winning recipe as YAML, which the train flow takes as its recipe."""
    from flows.sweep import recipe_text
    from sweeps.results import winner

    space, study = _open(name)
    best_so_far = winner(space, study)
    typer.echo(f"# {best_so_far.claim}")
    typer.echo(recipe_text(space, best_so_far), nl=False)


@app.command()
def report(name: Annotated[str, typer.Argument(help="The sweep's name.")], html: Html = None) -> None:
    """What won, on how many fresh seeds, what mattered, and every trial."""
    from flows.machine.home import home
    from flows.machine.slots import held
    from flows.run.reports.of_sweep import page

    space, study = _open(name)
    document = page(space, study, at_work=held(home() / "sweeps" / space.name / "sweep.lock"))
    if html is None:
        typer.echo(plain(document.text()))
        return
    typer.echo(f"wrote {', '.join(map(str, document.write(Path(html))))}")


def _open(name: str) -> tuple[Space, Study]:
    from flows.machine.home import home
    from flows.sweep import edition_name, newest
    from sweeps.space import NAME, Space
    from sweeps.storage import storage_of
    from sweeps.study import open_study
    from userrl_core.errors import ConfigError
    from userrl_core.json_files import read_json

    if re.fullmatch(NAME, name) is None:
        raise ConfigError(f"'{name}' is no sweep's name; a name is made of letters, digits, '.', '_' and '-'.")
    # `gamma` means its newest edition, `gamma.1` the first.
    folder = home() / "sweeps" / (name.removesuffix(".1") if name.endswith(".1") else edition_name(name, newest(name)))
    record = read_json(folder / "space.json")
    if record is None:
        known = ", ".join(sorted(p.parent.name for p in folder.parent.glob("*/space.json"))) or "none yet"
        raise ConfigError(f"Sweep '{name}' has not been run here; known: {known}.")
    space = Space.model_validate(record["space"])
    return space, open_study(space, folder, storage_of(None, record, name), queue=False)
