"""``userrl runs``: the runs of this home."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer

from flows.cli.arguments import Json, RunName
from flows.cli.terminal import plain

app = typer.Typer(help="Runs of this home: list, show, delete.", no_args_is_help=True)


@app.command("list")
def list_runs(as_json: Json = False) -> None:
    """Every run of this home, the oldest first."""
    from flows.run.run import DIED, all_runs

    found = [
        {"run": run.id, "state": status["state"], "stage": status.get("stage"), "created": run.about["created"]}
        for run in all_runs()
        for status in [run.status]
    ]
    if as_json:
        print(json.dumps(found, indent=1))
        return
    for row in found:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(float(row["created"])))
        note = "   start it again to continue" if row["state"] == DIED else ""
        print(f"{row['run']:44} {row['state']:10} {row['stage'] or '':9} {when}{note}")
    if not found:
        print("no runs yet; `make run` starts one")


@app.command("show")
def show_run(run: RunName = "latest", as_json: Json = False) -> None:
    """What a run is, which stages are done, and where its files are."""
    from flows.run.report import stage_results
    from flows.run.run import DIED, find

    found = find(run)
    stages = stage_results(found)
    if as_json:
        print(json.dumps({"about": dict(found.about), "status": found.status, "stages": stages}, indent=1, default=str))
        return
    status = found.status
    died = " (its process is gone; start it again to continue)" if status["state"] == DIED else ""
    print(f"{found.id}: {status['state']} {status.get('stage', '')}".rstrip() + died)
    if status.get("error"):
        print(f"error: {plain(str(status['error']))}")
    for name, result in stages.items():
        print(f"  {name:9} done, step {result['step']}, {result['seconds']:.1f} s")
    print(f"folder {found.folder}\nnext: userrl report {found.id}")


@app.command("stop")
def stop_run(run: RunName = "latest") -> None:
    """Stop a run within seconds, also when its server or worker is gone; starting it again continues it."""
    from flows.run.run import DIED, find

    found = find(run)
    state = found.status["state"]
    if state not in ("running", DIED):  # the trainer of a flow that was killed may outlive it
        print(f"{found.id} is {state}; nothing to stop")
        return
    found.ask_to_stop()
    print(f"asked {found.id} to stop; its last checkpoint stays")


@app.command("delete")
def delete_run(run: RunName, yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False) -> None:
    """Remove a run's checkpoints and report; its turns stay in the warehouse."""
    from flows.machine.slots import alone
    from flows.run.run import delete, find

    found = find(run)
    if not yes and not typer.confirm(f"Remove {found.folder} with its checkpoints?"):
        raise typer.Exit(1)
    with alone(found.lock, f"Run {found.id}"):
        delete(found)
    print(f"removed {found.id}; its turns stay in the warehouse")
