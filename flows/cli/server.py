"""``userrl server``: the Prefect server of this home, with the work pool and limits that a worker needs."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, help="Start the Prefect server of this home.")

READY_SECONDS = 180.0


@app.command(name="server")
def server(
    port: Annotated[
        int | None, typer.Option("--port", min=1, max=65535, help="Port. Default: $USERRL_PORT, else 4311.")
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    name: Annotated[
        list[str] | None, typer.Option("--name", help="A host name that other machines use for it; may be repeated.")
    ] = None,
    password: Annotated[bool, typer.Option("--password", help="Print the password of the web page and exit.")] = False,
) -> None:
    """Start the Prefect server of this home until Ctrl-C. Only this machine can reach it, with the home's password.

    Example: userrl server
    """
    import os

    from flows.server import password as passwords
    from flows.server.own_server import PORT, server_state
    from flows.server.prefect_server import run_server, server_environment
    from userrl.machine.home import home
    from userrl_core.errors import ConfigError

    if password:
        typer.echo(passwords.password(home()))
        return
    port = port or int(os.environ.get("USERRL_PORT", PORT))
    if (state := server_state(port)) != "free":
        raise ConfigError("server.port_taken", taken_sentence(port, state))
    environment = server_environment(port, host)
    url = environment["PREFECT_API_URL"].removesuffix("/api")
    typer.echo(f"starting the server of this home at {url} (up to a minute on a busy machine)")
    threading.Thread(target=_provision, args=(port, url, environment), daemon=True).start()
    run_server(port, host, name or [])


def taken_sentence(port: int, state: str) -> str:
    """Return the sentence that says why no server can start at a port."""
    if state == "ours":
        return f"The server of this home already runs at http://127.0.0.1:{port}. Stop it first, or use it."
    if state == "open":
        return (
            f"The Prefect server on port {port} was started without a password, by an earlier version or by hand. Stop it "
            "and its workers (Ctrl-C in their terminals), then start again."
        )
    return f"Port {port} on 127.0.0.1 is used by another program. Stop it, or choose a free port with USERRL_PORT=4313."


def _provision(port: int, url: str, environment: dict[str, str]) -> None:
    """Create pool, limits and automation once the server answers, then print the next commands."""
    from flows.server.own_server import server_state
    from flows.server.password import password_file
    from userrl.machine.home import home

    deadline = time.monotonic() + READY_SECONDS
    while server_state(port) != "ours":
        if time.monotonic() > deadline:
            typer.echo(f"the server did not answer within {READY_SECONDS:g} s", err=True)
            return
        time.sleep(0.3)
    typer.echo("the server answers; making its work pool, limits and automation")
    done = subprocess.run(
        [sys.executable, "-m", "flows.server.provision", "default", "sweeps"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        typer.echo(f"the work pool could not be made: {(done.stderr.strip().splitlines() or ['?'])[-1]}", err=True)
        return
    # Only its owner reads a terminal; in a file or a log others could read the password.
    secret = environment["PREFECT_API_AUTH_STRING"] if sys.stdout.isatty() else f"in {password_file(home())}"
    typer.echo(
        f"server    {url}\npassword  {secret} (the web page asks for it once; commands in this folder know it)\n"
        "next      prefect worker start --pool gpu --type process     in another terminal, in this folder\n"
        "          userrl deploy                                      once, in a third\n"
        "          userrl start train/equalized-r2g                   or prefect deployment run train/equalized-r2g --watch"
    )
