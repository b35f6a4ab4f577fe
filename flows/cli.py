"""``userrl``: the command line. Light to start: every command imports what it needs when it is called."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import time
from typing import Annotated

import typer

from flows.terminal import plain
from userrl_core.errors import UserRLError

app = typer.Typer(
    name="userrl",
    help="Train agents that learn by talking to users. State lies under .userrl/ here, or in $USERRL_HOME.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
runs = typer.Typer(help="Runs of this home: list, show, delete.", no_args_is_help=True)
app.add_typer(runs, name="runs")

Json = Annotated[bool, typer.Option("--json", help="For programs.")]
RunName = Annotated[str, typer.Argument(help="A run's id, the beginning of one, a name, or latest.")]

GROUPS = ("recipe", "tasks", "sql", "warehouse", "play", "sweep", "serve")
"""Commands that live in `flows.commands`, one module each."""


@app.command()
def report(run: RunName = "latest", as_json: Json = False) -> None:
    """Show what a run achieved: demonstrator, SFT and RL side by side on held-out tasks."""
    from flows.runs import find, read_json
    from userrl_core.errors import ConfigError

    found = find(run)
    summary = read_json(found.folder / "report.json")
    if summary is None:
        raise ConfigError(f"Run {found.id} has no report yet; it is {found.status['state']}.")
    if as_json:
        print(json.dumps(summary, indent=1))
        return
    print(plain((found.folder / "report.md").read_text()), end="")


@app.command()
def evaluate(
    checkpoint: Annotated[
        str, typer.Argument(help="A checkpoint's folder, a run, latest, or demonstrator.")
    ] = "latest",
    recipe: Annotated[str, typer.Option(help="Whose gyms, horizon and prompts count.")] = "equalized-r2g",
    profile: Annotated[str, typer.Option(help="Sizes and machine.")] = "laptop",
    gym: Annotated[list[str] | None, typer.Option(help="A gym to play; may be repeated.")] = None,
    horizon: Annotated[int | None, typer.Option(help="Most agent turns.")] = None,
    tasks: Annotated[int | None, typer.Option(help="Test tasks per gym.")] = None,
    attempts: Annotated[int | None, typer.Option(help="Attempts per task.")] = None,
    model: Annotated[str | None, typer.Option(help="A served model in place of a checkpoint.")] = None,
    base_url: Annotated[str | None, typer.Option(help="Its OpenAI-compatible server.")] = None,
    seed: Annotated[int, typer.Option(help="Fixes every draw.")] = 0,
    as_json: Json = False,
) -> None:
    """Play held-out tasks with a checkpoint, a served model or the demonstrator."""
    from flows.evaluate import evaluate_here

    summary = evaluate_here(
        checkpoint,
        recipe=recipe,
        profile=profile,
        gyms=gym,
        horizon=horizon,
        tasks=tasks,
        attempts=attempts,
        model=model,
        base_url=base_url,
        seed=seed,
    )
    if as_json:
        print(json.dumps(summary, indent=1))
        return
    for actor, rows in summary["table"].items():
        for name, row in rows.items():
            score = "not scored" if row["score"] is None else f"{row['score']:.3f} ± {row['stderr']:.3f}"
            print(f"{plain(actor)}  {name}  {score}  ({row['attempts']} attempts, {row['rejected']} rejected)")
    print(f"every turn: userrl sql \"from trajectories where run_id = '{summary['run']}'\"")


@app.command()
def doctor(as_json: Json = False) -> None:
    """Check pins, server, pool, limits, automation, disk, GPU, user model and warehouse; say what to do about each."""
    from flows.doctor import examine

    findings = examine()
    if as_json:
        print(json.dumps([finding.__dict__ for finding in findings], indent=1))
    else:
        for finding in findings:
            print(f"{'ok  ' if finding.ok else 'BAD ' if finding.fatal else 'note'}  {finding.what}: {finding.said}")
    if any(finding.fatal and not finding.ok for finding in findings):
        raise typer.Exit(1)


@runs.command("list")
def list_runs(as_json: Json = False) -> None:
    """Every run of this home, the oldest first."""
    from flows.runs import DIED, all_runs

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


@runs.command("show")
def show_run(run: RunName = "latest", as_json: Json = False) -> None:
    """What a run is, which stages are done, and where its files are."""
    from flows.report import stage_results
    from flows.runs import DIED, find

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


@runs.command("stop")
def stop_run(run: RunName = "latest") -> None:
    """Stop a run within seconds, also when its server or worker is gone; starting it again continues it."""
    from flows.runs import DIED, find

    found = find(run)
    state = found.status["state"]
    if state not in ("running", DIED):  # the trainer of a flow that was killed may outlive it
        print(f"{found.id} is {state}; nothing to stop")
        return
    found.ask_to_stop()
    print(f"asked {found.id} to stop; its last checkpoint stays")


@runs.command("delete")
def delete_run(run: RunName, yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False) -> None:
    """Remove a run's checkpoints and report; its turns stay in the warehouse."""
    from flows.runs import delete, find
    from flows.slots import alone

    found = find(run)
    if not yes and not typer.confirm(f"Remove {found.folder} with its checkpoints?"):
        raise typer.Exit(1)
    with alone(found.lock, f"Run {found.id}"):
        delete(found)
    print(f"removed {found.id}; its turns stay in the warehouse")


def mount() -> None:
    """Add the commands that are installed. A module holds a function of its own name, or an ``app`` with several."""
    for name in GROUPS:
        module = f"flows.commands.{name}"
        if importlib.util.find_spec(module) is None:
            continue
        loaded = importlib.import_module(module)
        found = getattr(loaded, "app", None)
        if found is None:
            app.command(name)(getattr(loaded, name))
            continue
        commands = [command.name or getattr(command.callback, "__name__", "") for command in found.registered_commands]
        # One command of the module's name, or several that begin with it (serve-gym, serve-user): no group between.
        flat = all(command == name or command.startswith(f"{name}-") for command in commands)
        app.add_typer(found, name=None if flat else name)


def main() -> None:
    """Exit status: 0 done, 1 failed (one sentence on stderr), 2 wrong call."""
    mount()
    try:
        app()
    except UserRLError as error:
        print(f"error: {plain(str(error))}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        sys.exit(1)


if __name__ == "__main__":
    main()
