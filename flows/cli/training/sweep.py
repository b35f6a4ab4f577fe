"""``userrl sweep run|status|best|report``: run a sweep, show its results so far, print its winner as a recipe.

Commands import heavy modules themselves, so that ``userrl --help`` stays quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.arguments import Html
from flows.cli.terminal import plain, plain_json

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Sweeps: run, status, best recipe, report.")


@app.command()
def run(
    space: Annotated[str, typer.Argument(help="A shipped search space, or a YAML file.")],
    parallel: Annotated[int, typer.Option(help="Number of parallel trials.")] = 2,
    trials: Annotated[int | None, typer.Option(help="Number of trials, instead of the space's budget.")] = None,
    storage: Annotated[
        str | None, typer.Option(help="An Optuna RDB URL instead of the journal file. Default: $USERRL_SWEEP_STORAGE.")
    ] = None,
    renew: Annotated[
        bool, typer.Option("--renew", help="Without --fresh: start a new edition if the last one has ended.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start a new edition, also with a changed space.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would run, and do nothing.")] = False,
) -> None:
    """Run a sweep here, with trials as child processes. `prefect deployment run sweep/gamma` uses workers instead.

    Example: userrl sweep run gamma --parallel 2
    """
    import userrl
    from userrl.machine.interrupts import stoppable
    from userrl.trials.swept import sweep_request

    if dry_run:
        from userrl.trials.sweep_plan import sweep_plan

        request = sweep_request(space, parallel=parallel, trials=trials, storage=storage, renew=renew, fresh=fresh)
        typer.echo(plain(sweep_plan(request)))
        return
    with stoppable("stopped; its trials leave checkpoints. Run it again to go on"):
        done = userrl.sweep(space, parallel=parallel, trials=trials, storage=storage, renew=renew, fresh=fresh)
    typer.echo(f"{done.name}: {done.best_recipe}; {done.claim}\nnext: userrl sweep best {done.name}")


@app.command()
def status(
    name: Annotated[str, typer.Argument(help="The sweep's name.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print rows as JSON.")] = False,
) -> None:
    """Show every trial with its state, values and run.

    Example: userrl sweep status gamma
    """
    from sweeps.results import importance, table
    from sweeps.study import counted, planned, progress, ranked
    from userrl.machine.home import home, runs_dir
    from userrl.machine.slots import held
    from userrl.run.run import read_status
    from userrl.trials.document import measured
    from userrl.trials.sweep import open_sweep
    from userrl_core.number_format import NULL

    space, study = open_sweep(name)
    at_work = held(home() / "sweeps" / space.name / "sweep.lock")
    rows = table(space, study, at_work=at_work)
    if as_json:
        typer.echo(plain_json(rows))
        return
    typer.echo(f"{name}: {progress(space, study)} done, recipe {space.recipe}, profile {space.profile}")
    if len(counted(study)) < planned(space) and not at_work:
        typer.echo("the sweep is not running; start it again to continue")
    for row in rows:
        values = ", ".join(filter(None, measured(row, len(space.objectives)))) or NULL
        parameters = " ".join(f"{k}={v}" for k, v in row["params"].items())
        waits = read_status(runs_dir() / row["run_id"]).waits if row["run_id"] and row["state"] == "running" else None
        note = f"in use: {waits}" if waits else row["note"] or ""
        tail = f"{parameters}  {row['run_id'] or ''}  {note}".rstrip()
        typer.echo(plain(f"{row['trial']:4d} {'waiting' if waits else row['state']:9s} {values:>16s}  {tail}"))
    shares = importance(study)
    if len(shares) > 1:
        typer.echo("importance: " + ", ".join(f"{key} {share:.0%}" for key, share in shares.items()))
    if ranked(study):
        typer.echo(f"next: userrl sweep best {name}")
    elif at_work:
        typer.echo(f"next: userrl sweep status {name}, once a trial is done")


@app.command()
def best(name: Annotated[str, typer.Argument(help="The sweep's name.")]) -> None:
    """Print the winning recipe as YAML, which `userrl train` and the train flow accept.

    Example: userrl sweep best gamma > winner.yaml
    """
    from sweeps.results import winner
    from userrl.trials.sweep import best_recipe, open_sweep, recipe_text

    space, study = open_sweep(name)
    best_so_far = winner(space, study)
    typer.echo(f"# {best_recipe(space, best_so_far)}; {best_so_far.claim}")
    typer.echo(recipe_text(space, best_so_far), nl=False)


@app.command()
def report(name: Annotated[str, typer.Argument(help="The sweep's name.")], html: Html = None) -> None:
    """Show the winner, its fresh seeds, the importance of each parameter, and every trial.

    Example: userrl sweep report gamma --html sweep.html
    """
    from userrl.machine.home import home
    from userrl.machine.slots import held
    from userrl.trials.document import sweep_document
    from userrl.trials.sweep import open_sweep

    space, study = open_sweep(name)
    document = sweep_document(space, study, at_work=held(home() / "sweeps" / space.name / "sweep.lock"))
    if html is None:
        typer.echo(plain(document.text()))
        return
    typer.echo(f"wrote {', '.join(map(str, document.write(Path(html))))}")
