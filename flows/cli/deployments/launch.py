"""``userrl start``: a run of a deployment by the workers of a running server, shown without Prefect's events."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer


def start(
    deployment: Annotated[str, typer.Argument(help="A deployment, such as train/equalized-r2g.")],
    values: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="KEY=VALUE", help="A parameter; JSON or text. May be repeated."),
    ] = None,
) -> None:
    """Start a deployment on the running server and show its stages, steps and scores until it ends. Ctrl-C cancels it.

    Example: userrl start train/equalized-r2g -p profile=laptop-quick
    """
    from flows.cli.quickstart import parse_parameters, request_of
    from flows.server.own_server import need_server
    from flows.server.settings import settle

    parameters = parse_parameters(values or [])
    request_of(deployment, parameters)
    need_server()
    settle()
    from flows.cli.watch import follow

    try:
        raise typer.Exit(asyncio.run(follow(deployment, parameters)))
    except KeyboardInterrupt:
        typer.echo("\nstopped; the same command continues from the last checkpoint", err=True)
        raise typer.Exit(130) from None
