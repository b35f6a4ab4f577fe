"""``userrl tasks synthesise`` and ``userrl tasks filter``: new instructions for tasks, and tasks of medium difficulty."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.terminal import plain, refusals
from userrl.machine.home import published_data
from userrl_core.errors import ConfigError
from userrl_core.gyms.taskfile import read_tasks, write_tasks

Out = Annotated[Path, typer.Option("--out", help="The JSONL file that is written: gyms.NAME.published of a recipe.")]
Model = Annotated[str | None, typer.Option("--model", help="A served model.")]
BaseUrl = Annotated[str | None, typer.Option("--base-url", help="Its OpenAI-compatible server; OpenAI by default.")]


def synthesise(
    out: Out,
    source: Annotated[
        Path | None, typer.Option("--from", help="APIGen-MT trajectories (ShareGPT), or a JSONL file of tau's tasks.")
    ] = None,
    domain: Annotated[str, typer.Option(help="Without --from: our own domain, outfitter or bikes.")] = "outfitter",
    variant: Annotated[
        str, typer.Option(help="inferred, withheld, simplified, or mix: half as they are, half withheld.")
    ] = "mix",
    data: Annotated[Path | None, typer.Option(help="tau-bench's folder; $USERRL_PUBLISHED_DATA's by default.")] = None,
    model: Model = None,
    base_url: BaseUrl = None,
    limit: Annotated[int | None, typer.Option("--limit", help="At most this many tasks.", min=1)] = None,
) -> None:
    """Make tau's tasks anew (TARL appendix A): by templates, or written by --model. What gold calls do not solve is left out."""
    from userrl.run.readiness import server_of
    from userrl_core.gyms.tau.synthesis import made as synthesis

    with refusals("tasks", OSError):
        folder = data or published_data() / "tau-bench"
        made = synthesis.synthesise(source, domain, variant, folder, server_of(model, base_url), limit)
        write_tasks(out, made.tasks)
    if model is not None:
        typer.echo(f"{made.calls:,} calls of {model}.")
    typer.echo(f"{len(made.tasks):,} of {made.found:,} tasks in {out}.")
    for why, count in made.lost.most_common(5):
        typer.echo(plain(f"  left out: {count:,} x {why}"))
    typer.echo(f"Next: a recipe plays them with gyms.tau.published: {out}")


def filter_by_difficulty(
    tasks: Annotated[Path, typer.Argument(help="A JSONL file of tasks, such as userrl tasks import writes.")],
    out: Out,
    model: Model = None,
    base_url: BaseUrl = None,
    attempts: Annotated[int, typer.Option(help="Conversations per task.", min=1)] = 4,
    least: Annotated[float, typer.Option(help="Lowest pass rate kept.", min=0.0, max=1.0)] = 0.25,
    most: Annotated[float, typer.Option(help="Highest pass rate kept.", min=0.0, max=1.0)] = 0.75,
    horizon: Annotated[int, typer.Option(help="Most agent turns.", min=1)] = 16,
    temperature: Annotated[float, typer.Option(help="Of sampling.", min=0.0)] = 0.7,
) -> None:
    """Keep the tasks that a model passes sometimes (TARL 3.1: medium difficulty), by its pass rate."""
    from userrl.evaluation import difficulty
    from userrl.run.readiness import server_of

    with refusals("tasks", OSError):
        server = server_of(model, base_url, temperature=temperature)
        if server is None:
            raise ConfigError("A pass rate is somebody's; name the model with --model.")
        filtered = difficulty.filter_by_difficulty(
            read_tasks(tasks), server, attempts=attempts, least=least, most=most, horizon=horizon
        )
        write_tasks(out, filtered.tasks)
    kept, found = len(filtered.tasks), filtered.found
    typer.echo(f"{kept:,} of {found:,} tasks in {out}: {model} passes {least:g} to {most:g} of them.")
    if filtered.unscored:
        typer.echo(f"  left out: {filtered.unscored:,} without a score")
