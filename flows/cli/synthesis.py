"""``userrl tasks synthesise`` and ``userrl tasks filter``: rewritten task instructions, and tasks of medium difficulty."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.terminal import plain
from userrl.machine.home import published_data
from userrl.machine.output_files import check_output, writing
from userrl_core.errors import ConfigError

Out = Annotated[
    Path, typer.Option("--out", help="The JSONL file to write. A recipe reads it with gyms.NAME.published.")
]
Model = Annotated[str | None, typer.Option("--model", help="A served model.")]
BaseUrl = Annotated[
    str | None,
    typer.Option("--base-url", help="With --model: the /v1 address of its OpenAI-compatible server. Default: OpenAI."),
]


def synthesise(
    out: Out,
    source: Annotated[
        Path | None, typer.Option("--from", help="APIGen-MT trajectories (ShareGPT), or a JSONL file of tau tasks.")
    ] = None,
    domain: Annotated[str, typer.Option(help="Without --from: one of our domains, outfitter or bikes.")] = "outfitter",
    variant: Annotated[
        str, typer.Option(help="inferred, withheld, simplified, or mix (half unchanged, half withheld).")
    ] = "mix",
    data: Annotated[
        Path | None, typer.Option(help="With --from: tau-bench's folder. Default: the one in $USERRL_PUBLISHED_DATA.")
    ] = None,
    model: Model = None,
    base_url: BaseUrl = None,
    limit: Annotated[int | None, typer.Option("--limit", help="Maximum number of tasks.", min=1)] = None,
) -> None:
    """Rewrite tau's tasks (TARL appendix A), by templates or with --model. Tasks that the gold calls do not solve are
    dropped.

    Example: userrl tasks synthesise --domain outfitter --variant withheld --out tasks.jsonl
    """
    from userrl.machine.separate import part
    from userrl.run.readiness import server_of
    from userrl_core.gyms.taskfile import write_tasks

    check_output(out)
    folder = data or published_data() / "tau-bench"
    result = part("userrl-synthesis", "made").synthesise(
        source, domain, variant, folder, server_of(model, base_url), limit
    )
    with writing(out):
        write_tasks(out, result.tasks)
    if model is not None:
        typer.echo(f"{result.calls:,} calls of {model}.")
    typer.echo(f"{len(result.tasks):,} of {result.found:,} tasks in {out}.")
    for reason, count in result.lost.most_common(5):
        typer.echo(plain(f"  dropped: {count:,} x {reason}"))
    typer.echo(f"Next: train on them with gyms.tau.published: {out} in a recipe")


def filter_by_difficulty(
    tasks: Annotated[Path, typer.Argument(help="A JSONL file of tasks, such as `userrl tasks import` writes.")],
    out: Out,
    model: Model = None,
    base_url: BaseUrl = None,
    attempts: Annotated[int, typer.Option(help="Conversations per task.", min=1)] = 4,
    least: Annotated[float, typer.Option(help="Lowest pass rate to keep.", min=0.0, max=1.0)] = 0.25,
    most: Annotated[float, typer.Option(help="Highest pass rate to keep.", min=0.0, max=1.0)] = 0.75,
    horizon: Annotated[int, typer.Option(help="Maximum number of agent turns.", min=1)] = 16,
    temperature: Annotated[float, typer.Option(help="Sampling temperature.", min=0.0)] = 0.7,
) -> None:
    """Keep the tasks that a model sometimes passes (TARL 3.1: medium difficulty), by its pass rate.

    Example: userrl tasks filter tasks.jsonl --model gpt-4o --out medium.jsonl
    """
    from userrl.machine.separate import part
    from userrl.run.readiness import server_of
    from userrl_core.gyms.taskfile import read_tasks, write_tasks

    server = server_of(model, base_url, temperature=temperature)
    if server is None:
        raise ConfigError("argument.missing", "A pass rate needs a model. Name it with --model.")
    check_output(out)
    filtered = part("userrl-synthesis", "difficulty").filter_by_difficulty(
        read_tasks(tasks), server, attempts=attempts, min_rate=least, max_rate=most, horizon=horizon
    )
    with writing(out):
        write_tasks(out, filtered.tasks)
    count, total = len(filtered.tasks), filtered.played
    typer.echo(f"{count:,} of {total:,} tasks in {out}: the pass rate of {model} is between {least:g} and {most:g}.")
    if filtered.unscored:
        typer.echo(f"  dropped: {filtered.unscored:,} without a score")
