"""``userrl runs``: the runs of this home."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.arguments import Json, RunName
from flows.cli.terminal import plain, plain_json
from userrl.machine.home import home, warehouse_dir
from userrl.machine.page_address import run_address

if TYPE_CHECKING:
    from userrl.run.listed import ListedRun

PATIENCE = 10.0
"""Seconds that a flow may take to end by itself."""

app = typer.Typer(help="Runs of this home: list, show, stop, delete.", no_args_is_help=True, add_completion=False)


@app.command("list")
def list_runs(as_json: Json = False) -> None:
    """List every run of this home, oldest first, with best and last validation score and its outcome; imported runs by name.

    Example: userrl runs list
    """
    from userrl.run.listed import listed_imports, listed_runs

    (rows, problem), imports = listed_runs(), listed_imports()
    if problem:
        print(f"warning: {plain(problem)}", file=sys.stderr)
    if as_json:
        print(plain_json([*map(asdict, imports), *map(asdict, rows)], indent=1))
        return
    if imports:
        print(f"{'imported conversations':44} name")
        for imported in imports:
            print(f"{imported.run:44} {plain(imported.name)}")
        print()
    if not rows and imports:
        return
    if not rows:
        print(f"no runs yet in {home()}; `make run` starts one, and USERRL_HOME names another folder")
        return
    width = max(44, *(len(row.run) for row in rows))
    print(
        f"{'run':{width}} {'recipe':20} {'seed':>5} {'state':10} {'stage':9} {'best':>5} {'last':>5} {'outcome':13} created"
    )
    for row in rows:
        print(_line(row, width))
    print(
        "best, last: mean validation score; improved, no better: than the cold start; worse, collapsed: than its best "
        "(userrl report RUN shows by how much)"
    )


def _line(row: ListedRun, width: int) -> str:
    from userrl.run.run import DIED

    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.created))
    note = "   start it again to continue" if row.state == DIED else ""
    note = f"   in use: {row.waits}" if row.waits else note
    scores = " ".join("    –" if score is None else f"{score:5.2f}" for score in (row.best, row.last))
    return (
        f"{row.run:{width}} {row.recipe:20} {row.seed:>5} {'waiting' if row.waits else row.state:10} {row.stage or '':9} {scores} "
        f"{row.outcome or '–':13} {when}{note}"
    )


@app.command("show")
def show_run(run: RunName = "latest", as_json: Json = False) -> None:
    """Show a run's state, its finished stages and its folder.

    Example: userrl runs show latest
    """
    from userrl.run.results import stage_results
    from userrl.run.run import DIED, find, waiting_sentence

    target_run = find(run)
    status, stages = target_run.status, stage_results(target_run.folder)
    if as_json:
        results = {name: result.model_dump(mode="json") for name, result in stages.items()}
        summary = {
            "about": asdict(target_run.info),
            "status": status.known(),
            "stages": results,
        }
        print(plain_json(summary, indent=1))
        return
    died = " (its process is gone; start it again to continue)" if status.state == DIED else ""
    print(f"{target_run.id}: {status.at_work} {status.stage or ''}".rstrip() + died)
    if status.waits and status.state == "running":
        print(waiting_sentence(status.waits))
    if target_run.info.because:
        print(f"began because: {target_run.info.because}")
    if status.error:
        print(f"error: {plain(status.error)}{f' [{status.code}]' if status.code else ''}")
    wide = max(map(len, stages), default=0)
    for name, result in stages.items():
        print(f"  {name:{wide}} done, step {result.step}, {result.seconds:.1f} s")
    for sentence in _to_install(target_run.info.resolved):
        print(f"to play it: {sentence}")
    print(
        f"folder {target_run.folder}\nnext: userrl report {target_run.id}, or userrl view and {run_address(target_run.id)}"
    )


def _to_install(resolved: dict[str, Any]) -> list[str]:
    """Return what must be installed to play a run's gyms. Empty for a recipe of an earlier version that cannot be read."""
    from curricula import from_resolved
    from curricula.feasibility import to_install
    from userrl_core.errors import ConfigError

    try:
        return to_install(from_resolved(resolved))
    except ConfigError:
        return []


@app.command("stop")
def stop_run(run: RunName = "latest") -> None:
    """Stop a run within seconds, even if its server or worker is gone. Starting the run again continues it.

    Example: userrl runs stop latest
    """
    from userrl.run.run import DIED, find
    from userrl.stages.stop import stop

    target_run = find(run)
    state = target_run.status.state
    if state not in ("running", DIED):  # the trainer of a flow that was killed may outlive it
        print(f"{target_run.id} is {state}; nothing to stop")
        return
    print(f"stopping {target_run.id}; its last checkpoint stays", flush=True)
    stop(target_run, PATIENCE)


@app.command("delete")
def delete_run(
    run: RunName, yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False
) -> None:
    """Delete a run's checkpoints and report. Its turns stay in the warehouse. An imported run is no longer listed.

    Example: userrl runs delete horizon-fork --yes
    """
    from userrl.machine.slots import alone
    from userrl.run.listed import listed_imports
    from userrl.run.run import delete, find
    from warehouse.files.runs import retire_run

    imports = [imported.run for imported in listed_imports() if run in (imported.run, imported.name)]
    if imports:
        if not yes and not typer.confirm(f"Remove the imported run {imports[-1]} from the lists?"):
            raise typer.Exit(1)
        retire_run(warehouse_dir(), imports[-1])
        print(f"removed {imports[-1]}; its turns stay in the warehouse, under this id")
        return
    target_run = find(run)
    if not yes and not typer.confirm(f"Remove {target_run.folder} with its checkpoints?"):
        raise typer.Exit(1)
    linked = (
        f"; its folder was a link, and {target_run.folder.resolve()} stays" if target_run.folder.is_symlink() else ""
    )
    with alone(target_run.lock, f"Run {target_run.id}"):
        delete(target_run)
    print(f"removed {target_run.id}; its turns stay in the warehouse{linked}")
