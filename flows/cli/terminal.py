"""What reaches a terminal: foreign text is shown and never obeyed, and a refusal is one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from userrl.machine.foreign_text import plain as plain
from userrl.machine.foreign_text import plain_json as plain_json
from userrl_core.errors import UserRLError


@contextmanager
def refusals(command: str, *more: type[Exception]) -> Iterator[None]:
    """A boundary error, or one of ``more``, becomes one sentence on stderr and exit 1."""
    refused: tuple[type[Exception], ...] = (UserRLError, *more)
    try:
        yield
    except refused as error:
        typer.echo(f"userrl {command}: {plain(str(error).strip())}", err=True)
        raise typer.Exit(1) from None
