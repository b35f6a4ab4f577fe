"""``userrl up``: server, work pool, worker and deployments in one terminal, until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib

import typer

from flows.cli.server import Port


def up(port: Port = None) -> None:
    """Start the Prefect server with a worker and all deployments until Ctrl-C, and show the flow runs of the worker.

    Example: userrl up
    """
    from flows.cli.services import services, show_server, stop_on_signals
    from userrl.machine.home import quiet_process

    quiet_process()
    stop_on_signals()
    typer.echo("starting server, work pool, worker and deployments (minutes on a busy machine)")
    try:
        with services((), port=port) as running:
            show_server(running)
            registered = running.log("deploy").read_text(errors="replace").splitlines()
            typer.echo(
                f"worker   takes the runs of all {sum(not line.startswith(' ') for line in registered)} deployments"
            )
            for sentence in (line.strip() for line in registered if line.startswith(" ")):
                typer.echo(f"         {sentence}")
            typer.echo(
                "next     prefect deployment run train/equalized-r2g         in another terminal, in this folder\n"
                "         userrl schedule on sweep/horizon                   or list, off\n"
                "Ctrl-C stops all of it."
            )
            from flows.cli.flow_runs import cancel_all, follow_all  # Prefect reads its settings when it is imported

            try:
                asyncio.run(follow_all(running))
            except KeyboardInterrupt:
                typer.echo("\nstopping ...")
                with contextlib.suppress(KeyboardInterrupt):
                    asyncio.run(cancel_all(running))
                raise
    except KeyboardInterrupt:
        typer.echo("stopped. A run that was cancelled continues from its last checkpoint when it is started again")
        raise typer.Exit(130) from None
