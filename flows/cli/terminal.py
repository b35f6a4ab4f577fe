"""Terminal output: escape sequences in foreign text are disarmed, and a refusal is one sentence."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from userrl.machine.foreign_text import plain as plain
from userrl.machine.foreign_text import plain_json as plain_json
from userrl_core.errors import LINE, UserRLError

if TYPE_CHECKING:
    from userrl.reports.document import Document


def page_text(document: Document) -> str:
    """Return a page for this terminal, with alarms in red. The page disarms foreign text itself."""
    return document.text(colour=sys.stdout.isatty())


def error_line(error: Exception) -> str:
    """The line for a terminal: the sentence, and the code in brackets if the error is one of ours."""
    return plain(error.line if isinstance(error, UserRLError) else f"{LINE}{str(error).strip()}")


@contextmanager
def refusals(*more: type[Exception]) -> Iterator[None]:
    """Turn a UserRLError, or one of ``more``, into the line ``error: sentence [code]`` on stderr and exit status 1."""
    refused: tuple[type[Exception], ...] = (UserRLError, *more)
    try:
        yield
    except refused as error:
        typer.echo(error_line(error), err=True)
        raise typer.Exit(1) from None
