"""``userrl sweep run|status|best``: run a sweep here, see what it has found so far, print its winner as a recipe.

Heavy modules are imported inside the commands: ``userrl --help`` stays quick.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.arguments import Html
from flows.cli.terminal import plain

if TYPE_CHECKING:
    pass

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
    import userrl
    from userrl.machine.interrupts import leave_on_term

    leave_on_term()
    done = userrl.sweep(space, parallel=parallel, trials=trials, storage=storage, renew=renew)
    typer.echo(f"{done.name}: {done.claim}\nnext: userrl sweep best {done.name}")


@app.command()
def status(
    name: Annotated[str, typer.Argument(help="The sweep's name.")],
    as_json: Annotated[bool, typer.Option("--json", help="Rows as JSON.")] = False,
) -> None:
    """Every trial with its state, values and run."""
    from sweeps.results import importance, table
    from sweeps.study import counted, planned, progress, ranked
    from userrl.machine.home import home, runs_dir
    from userrl.machine.slots import held
    from userrl.reports.sweep_document import measured
    from userrl.run.run import read_status
    from userrl.trials.sweep import open_sweep
    from userrl_core.number_format import NULL

    space, study = open_sweep(name)
    at_work = held(home() / "sweeps" / space.name / "sweep.lock")
    rows = table(space, study, at_work=at_work)
    if as_json:
        typer.echo(json.dumps(rows, default=str))
        return
    typer.echo(f"{name}: {progress(space, study)} done, recipe {space.recipe}, profile {space.profile}")
    if len(counted(study)) < planned(space) and not at_work:
        typer.echo("nothing works on it; start the sweep again to continue")
    for row in rows:
        values = ", ".join(filter(None, measured(row, len(space.objectives)))) or NULL
        parameters = " ".join(f"{k}={v}" for k, v in row["params"].items())
        waits = read_status(runs_dir() / row["run_id"]).waits if row["run_id"] and row["state"] == "running" else None
        note = f"waits for a slot, held: {waits}" if waits else row["note"] or ""
        tail = f"{parameters}  {row['run_id'] or ''}  {note}".rstrip()
        typer.echo(plain(f"{row['trial']:4d} {row['state']:9s} {values:>16s}  {tail}"))
    shares = importance(study)
    if shares:
        typer.echo("importance: " + ", ".join(f"{key} {share:.0%}" for key, share in shares.items()))
    if ranked(study):
        typer.echo(f"next: userrl sweep best {name}")
    elif at_work:
        typer.echo(f"next: userrl sweep status {name}, once a trial is done")


@app.command()
def best(name: Annotated[str, typer.Argument(help="The sweep's name.")]) -> None:
    """The winning recipe as YAML, which the train flow takes as its recipe."""
    from sweeps.results import winner
    from userrl.trials.sweep import open_sweep, recipe_text

    space, study = open_sweep(name)
    best_so_far = winner(space, study)
    typer.echo(f"# {best_so_far.claim}")
    typer.echo(recipe_text(space, best_so_far), nl=False)


@app.command()
def report(name: Annotated[str, typer.Argument(help="The sweep's name.")], html: Html = None) -> None:
    """What won, on how many fresh seeds, what mattered, and every trial."""
    from userrl.machine.home import home
    from userrl.machine.slots import held
    from userrl.reports.sweep_document import sweep_document
    from userrl.trials.sweep import open_sweep

    space, study = open_sweep(name)
    document = sweep_document(space, study, at_work=held(home() / "sweeps" / space.name / "sweep.lock"))
    if html is None:
        typer.echo(plain(document.text()))
        return
    typer.echo(f"wrote {', '.join(map(str, document.write(Path(html))))}")
