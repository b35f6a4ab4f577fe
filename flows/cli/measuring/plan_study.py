"""``userrl plan-study``: what a study will cost."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.arguments import Json
from flows.cli.terminal import plain, plain_json

app = typer.Typer(add_completion=False)


@app.command("plan-study")
def plan_study_(
    studies: Annotated[
        list[str],
        typer.Argument(
            help="Claims, checks of claims, search spaces, or YAML files of claims, cross-play studies or sweeps."
        ),
    ],
    seeds: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="Seeds per arm. Default: 8, or a cross-play study's own.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=100_000, help="Number of parallel runs.")] = 2,
    as_json: Json = False,
) -> None:
    """Print runs, CPU- and GPU-hours, tokens, storage and the critical path of studies. Nothing is started.

    Runs that several claims share are counted once. The critical path is the time that more workers do not shorten.

    Example: userrl plan-study long-leads-early long-collapses-late --seeds 16 --workers 4
    """
    from userrl.claims.plan_study import plan_study

    planned = plan_study(*studies, seeds=seeds, workers=workers)
    print(plain_json(planned.as_json(), indent=1) if as_json else plain(str(planned)))
