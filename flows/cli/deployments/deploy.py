"""``userrl deploy``: the deployments of prefect.yaml on this folder's server."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer


def deploy(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Deployments such as train/equalized-r2g. Default: all.", metavar="[NAME]..."),
    ] = None,
) -> None:
    """Register the deployments of prefect.yaml on the server, a line each. Schedules stay on or off as they are.

    Example: userrl deploy
    """
    from flows.server.own_server import need_server

    print("reading prefect.yaml and the flows ...", flush=True)
    need_server()
    from flows.server.deployments import main

    asyncio.run(main(names or []))
    print("Next: userrl start train/equalized-r2g, or userrl schedule list")
