"""``userrl tasks``: list, check, generate and import tasks."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.synthesis import filter_by_difficulty, synthesise
from flows.cli.terminal import plain, plain_json
from userrl.machine.home import imported_tasks, published_data
from userrl.machine.output_files import writing
from userrl_core.errors import ConfigError, UserRLError

if TYPE_CHECKING:
    from userrl_core.gyms.validate import Proof
    from userrl_core.records import Task

app = typer.Typer(no_args_is_help=True, add_completion=False, help="List, check, generate and import tasks.")
app.command(name="synthesise")(synthesise)
app.command(name="filter")(filter_by_difficulty)
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@app.command(name="list")
def list_tasks(
    gym: Annotated[
        str | None, typer.Argument(help="A gym whose task ids to list. Default: count the tasks of every gym.")
    ] = None,
    split: Annotated[str | None, typer.Option("--split", help="Only this split: train, validation or test.")] = None,
    as_json: AsJson = False,
) -> None:
    """Count the tasks of every gym, or list the tasks of one gym.

    Example: userrl tasks list travel --split test
    """
    from userrl_core.gyms import names

    if gym is not None:
        tasks = _of_split(gym, split)
        if as_json:
            typer.echo(plain_json([{"id": t.id, "split": t.split, "source": t.source, "tier": t.tier} for t in tasks]))
            return
        for task in tasks:
            typer.echo(plain(f"{task.id:<38} {task.split:<10} {task.source:<18} {task.tier}".rstrip()))
        typer.echo(f"{len(tasks):,} tasks. Next: userrl tasks show {gym} ID")
        return
    if split is not None:
        raise ConfigError("argument.missing", "--split selects among the tasks of one gym. Name the gym.")
    rows = [_counts(name) for name in names()]
    if as_json:
        typer.echo(plain_json(rows, indent=2))
        return
    typer.echo(f"{'gym':<11}{'train':>8}{'valid.':>8}{'test':>8}   imported")
    for row in rows:
        if "problem" in row:
            typer.echo(f"{row['gym']:<11}{row['problem']}")
            continue
        typer.echo(
            f"{row['gym']:<11}{row['train']:>8,}{row['validation']:>8,}{row['test']:>8,}   {row['imported'] or '-'}"
        )
    typer.echo("Next: userrl tasks validate --all   or: userrl tasks import --from FOLDER --gym NAME")


@app.command()
def show(
    gym: Annotated[str, typer.Argument(help="The gym.")],
    task_id: Annotated[
        str | None, typer.Argument(help="A task's id or the beginning of it. Default: the first tasks.")
    ] = None,
    split: Annotated[str | None, typer.Option("--split", help="Only this split: train, validation or test.")] = None,
    count: Annotated[int, typer.Option("-n", help="Maximum number of tasks.", min=1)] = 1,
) -> None:
    """Print tasks as JSON, including the hidden answers.

    Example: userrl tasks show travel -n 3
    """
    tasks = _of_split(gym, split)
    if task_id is not None:
        tasks = [task for task in tasks if task.id.startswith(task_id)]
    if not tasks:
        raise ConfigError("task.no_such_task", f"Gym '{gym}' has no such task. See userrl tasks list {gym}.")
    for task in tasks[:count]:
        typer.echo(plain_json(asdict(task), indent=2, default=dict))


@app.command()
def validate(
    gyms: Annotated[list[str] | None, typer.Argument(help="The gyms to check.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Check every gym, including imported tasks.")] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", help="Maximum number of tasks per gym and source.", min=1)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Play the gold solution of every task with the rule user.

    Exit with 1 if a task misses the full score, or if a task of ours lacks a solution.

    Example: userrl tasks validate travel
    """
    from userrl.run.known_tasks import every_task
    from userrl_core.gyms import names
    from userrl_core.gyms.registry import clashes
    from userrl_core.gyms.validate import first_of_each_source, proofs

    if bool(gyms) == everything:
        typer.echo("userrl tasks validate: name gyms, or give --all.", err=True)
        raise typer.Exit(2)
    outcomes: list[Proof] = []
    for gym in gyms or names():
        if not gyms and gym in clashes():
            typer.echo(f"{gym:<11} {clashes()[gym]}", err=True)
            continue
        try:
            proved = list(proofs(first_of_each_source(every_task(gym), limit)))
        except ModuleNotFoundError as error:
            typer.echo(f"{gym:<11} {_missing(error)}", err=True)
            continue
        outcomes += _progress(gym, proved, quiet=as_json)
    if as_json:
        typer.echo(plain_json([asdict(o) for o in outcomes if o.state != "solved"] + [dict(_states(outcomes))]))
    else:
        typer.echo(
            f"{len(outcomes):,} tasks: " + ", ".join(f"{n:,} {state}" for state, n in _states(outcomes).items()) + "."
        )
    raise typer.Exit(1 if any(o.is_fault for o in outcomes) else 0)


@app.command()
def generate(
    gym: Annotated[str, typer.Argument(help="The gym.")],
    count: Annotated[int, typer.Option("-n", help="Number of tasks.", min=1)] = 10,
    seed: Annotated[int, typer.Option("--seed", help="Seed; the same seed gives the same tasks.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="A JSONL file to write. Default: print to the terminal.")
    ] = None,
    tier: Annotated[str | None, typer.Option("--tier", help="Difficulty tier, for gyms that have tiers.")] = None,
) -> None:
    """Generate new tasks with a gym's generator.

    Example: userrl tasks generate errand -n 100 --seed 1 --out errands.jsonl
    """
    from userrl_core.gyms import generate as generate_tasks
    from userrl_core.gyms.taskfile import write_tasks

    try:
        tasks = generate_tasks(gym, count, seed, **({"tier": tier} if tier is not None else {}))
    except TypeError:
        if tier is None:
            raise
        raise ConfigError("task.bad_option", f"The tasks of gym '{gym}' have no tiers. Omit --tier.") from None
    if out is None:
        for task in tasks:
            typer.echo(plain_json(asdict(task), default=dict))
        return
    with writing(out):
        write_tasks(out, tasks)
    typer.echo(f"{len(tasks):,} tasks in {out}.")


@app.command(name="import")
def import_tasks(
    sources: Annotated[
        list[Path], typer.Option("--from", help="The root of a clone of a released repository; may be repeated.")
    ],
    gym: Annotated[
        str | None, typer.Option("--gym", help="Import the tasks of this gym only. Default: all data of the clone.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Import published tasks: the data of whole clones, for `data: published`, or the tasks of one gym.

    Example: userrl tasks import --from UserRL
    """
    from userrl.run.known_tasks import SPLITS
    from userrl_core.gyms import load_published
    from userrl_core.gyms.clones import import_clone
    from userrl_core.gyms.taskfile import write_tasks

    if gym is None:
        parts = [import_clone(source, published_data()) for source in sources]
        if as_json:
            typer.echo(plain_json({"folder": str(published_data()), "parts": parts}))
            return
        typer.echo(f"{', '.join(parts)} in {published_data()}.")
        typer.echo("Next: userrl recipe show equalized-r2g --profile laptop --set data=published-or-ours")
        return
    if len(sources) != 1:
        raise ConfigError("argument.conflict", "--gym reads one clone. Give --from once, or omit --gym.")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tasks = load_published(gym, sources[0])
    path, notes = imported_tasks(gym), [str(warning.message) for warning in caught]
    write_tasks(path, tasks)
    counts: Counter[str] = Counter(task.split for task in tasks)
    if as_json:
        typer.echo(
            plain_json({"gym": gym, "file": str(path), **{split: counts[split] for split in SPLITS}, "notes": notes})
        )
        return
    split = ", ".join(f"{counts[name]:,} {name}" for name in SPLITS)
    typer.echo(f"{len(tasks):,} {gym} tasks ({split}) in {path}.")
    for note in notes:
        typer.echo(plain(note))
    typer.echo(f"Next: userrl tasks validate {gym}; train on them with gyms.{gym}.published: imported in a recipe")


def _progress(gym: str, outcomes: Sequence[Proof], *, quiet: bool) -> Sequence[Proof]:
    if quiet:
        return outcomes
    for source in dict.fromkeys(outcome.source for outcome in outcomes):
        of_source = [outcome for outcome in outcomes if outcome.source == source]
        states = ", ".join(f"{n:,} {state}" for state, n in _states(of_source).items())
        typer.echo(plain(f"{gym:<11} {source:<18} {states}"))
        for reason, n in Counter((o.state, o.reason) for o in of_source if o.state != "solved").most_common(5):
            example = next(o.id for o in of_source if (o.state, o.reason) == reason)
            typer.echo(plain(f"  {reason[0]}: {n:,} x {reason[1]} (such as {example})"))
    return outcomes


def _states(outcomes: Iterable[Proof]) -> Counter[str]:
    return Counter(outcome.state for outcome in outcomes)


def _of_split(gym: str, split: str | None) -> list[Task]:
    """Return a gym's tasks, of one split if it is given. Raises ConfigError for an unknown split."""
    from userrl.run.known_tasks import SPLITS, every_task

    if split not in (None, *SPLITS):
        raise ConfigError("argument.unknown_value", f"There is no split '{split}'. Use one of {', '.join(SPLITS)}.")
    return [task for task in every_task(gym) if split in (None, task.split)]


def _counts(gym: str) -> dict[str, Any]:
    from userrl.run.known_tasks import SPLITS, read_imported
    from userrl_core.gyms import tasks as own_tasks
    from userrl_core.gyms.registry import clashes

    if gym in clashes():
        return {"gym": gym, "problem": clashes()[gym]}
    try:
        counts = {split: len(own_tasks(gym, split)) for split in SPLITS}
    except ModuleNotFoundError as error:
        return {"gym": gym, "problem": _missing(error)}
    except UserRLError as error:
        return {"gym": gym, "problem": str(error)}
    return {"gym": gym, **counts, "imported": len(read_imported(gym))}


def _missing(error: ModuleNotFoundError) -> str:
    return f"not available: the module {error.name} is not installed"
