"""``userrl server``: the Prefect server of this home, with the work pool and limits that a worker needs."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from flows.cli.arguments import Host, Names

app = typer.Typer(add_completion=False, help="Start the Prefect server of this home.")

Port = Annotated[int | None, typer.Option("--port", min=1, max=65535, help="Port. Default: $USERRL_PORT, else 4311.")]


@app.command(name="server")
def server(
    port: Port = None,
    host: Host = "127.0.0.1",
    name: Names = None,
    password: Annotated[bool, typer.Option("--password", help="Print the password of the web page and exit.")] = False,
) -> None:
    """Start the Prefect server of this home until Ctrl-C. `userrl up` starts a worker and registers deployments too.

    Only this machine can reach it, with the home's password. Example: userrl server
    """
    from flows.cli.services import services, show_server, stop_on_signals, taken_sentence
    from flows.server import password as passwords
    from flows.server.own_server import default_port, server_state
    from userrl.machine.home import home
    from userrl_core.errors import ConfigError

    if password:
        if port or name or host != "127.0.0.1":
            raise ConfigError("argument.conflict", "--password prints it and starts no server. Omit the other options.")
        typer.echo(passwords.password(home()))
        return
    port = port or default_port()
    if (state := server_state(port)) != "free":
        raise ConfigError("server.port_taken", taken_sentence(port, state))
    stop_on_signals()
    typer.echo("starting server and work pool (minutes on a busy machine)")
    try:
        with services(None, port=port, host=host, names=name or []) as running:
            show_server(running)
            typer.echo(
                "next     prefect worker start --pool gpu --type process     in another terminal, in this folder\n"
                "         userrl deploy                                      once, in a third\n"
                "         userrl start train/equalized-r2g                   or prefect deployment run train/equalized-r2g --watch"
            )
            while True:
                running.check()
                time.sleep(1.0)
    except KeyboardInterrupt:
        typer.echo("\nstopped the server")
        raise typer.Exit(130) from None
