"""``userrl warehouse``: keep the warehouse in order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from userrl_core.errors import UserRLError

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Keep the warehouse in order.")
Root = Annotated[Path | None, typer.Option("--warehouse", help="Folder of the warehouse.")]
AsJson = Annotated[bool, typer.Option("--json", help="The outcome as JSON.")]


@app.command()
def compact(root: Root = None, as_json: AsJson = False) -> None:
    """Seal what dead writers left and pack sealed segments."""
    from dataclasses import asdict

    from warehouse.compact import compact as run
    from warehouse.store import default_root

    try:
        done = run(root or default_root())
    except UserRLError as error:
        typer.echo(f"userrl warehouse: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(json.dumps(asdict(done)) if as_json else f"Sealed {done.recovered} files that dead writers left.")
