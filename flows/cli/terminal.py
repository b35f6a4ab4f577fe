"""Terminal output: escape sequences in foreign text are disarmed, and a refusal is one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from userrl.machine.foreign_text import plain as plain
from userrl.machine.foreign_text import plain_json as plain_json
from userrl_core.errors import UserRLError


@contextmanager
def refusals(command: str, *more: type[Exception]) -> Iterator[None]:
    """Turn a UserRLError, or one of ``more``, into one sentence on stderr and exit status 1."""
    refused: tuple[type[Exception], ...] = (UserRLError, *more)
    try:
        yield
    except refused as error:
        typer.echo(f"userrl {command}: {plain(str(error).strip())}", err=True)
        raise typer.Exit(1) from None
