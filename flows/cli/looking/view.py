"""``userrl view``: the web page over the warehouse."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from userrl.machine.page_address import INSTALL_PAGE, PORT, page_installed
from userrl_core.errors import ConfigError


def view(
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port on this machine.")] = PORT,
    model: Annotated[str | None, typer.Option("--model", help="A served model that people can talk to.")] = None,
    base_url: Annotated[str | None, typer.Option("--base-url", help="The model server's /v1 address.")] = None,
    study: Annotated[
        str | None,
        typer.Option("--study", metavar="FILE", help="A plan of a study with people, such as lab/studies/people.yaml."),
    ] = None,
    root: Annotated[Path | None, typer.Option("--warehouse", help="The warehouse folder.")] = None,
) -> None:
    """Show runs, conversations and groups in a browser until Ctrl-C, also while runs write.

    Example: userrl view --port 8080
    """
    if not page_installed():
        raise ConfigError(
            "install.missing", f"The page needs NiceGUI. Run {INSTALL_PAGE} in the checkout, then try again."
        )
    from flows.page.server import app_of
    from flows.server.front_door import bound, guarded, serve
    from userrl.machine.home import home, warehouse_dir
    from userrl.machine.separate import installed, part
    from warehouse import open_warehouse

    plan = None if study is None else part("userrl-people", "plan").load_people_plan(study)
    served = {"base_url": base_url, **({"model": model} if model else {})} if model or base_url else None
    if root is None:
        warehouse_dir().mkdir(parents=True, exist_ok=True)  # people may take part before any run exists
    with (
        bound("127.0.0.1", port) as door_socket,
        open_warehouse(root or warehouse_dir()) as warehouse,
        contextlib.ExitStack() as stack,
    ):
        if served or installed("userrl-people"):
            people = stack.enter_context(
                contextlib.closing(part("userrl-people", "page").People(warehouse, served, plan))
            )
            app = app_of(warehouse, people.add_pages)
        else:
            app = app_of(warehouse)
        address = f"http://127.0.0.1:{port}/ shows {warehouse.root} (Ctrl-C stops it)"
        serve(guarded(app, "127.0.0.1", [], home()), door_socket, lambda: typer.echo(address))
