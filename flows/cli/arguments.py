"""Arguments and options that several commands share."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
RunName = Annotated[str, typer.Argument(help="A run's id or the beginning of it, a run's name, or latest.")]
Html = Annotated[
    str | None,
    typer.Option("--html", metavar="FILE", help="Also write one HTML file; FILE.md writes Markdown with its figures."),
]


def parse_user(text: str) -> Any:
    """Return a user as a request takes it: a kind, or a mapping with kind and options. Raises ConfigError for broken JSON."""
    from userrl_core.errors import ConfigError

    if not text.startswith("{"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        raise ConfigError(
            "argument.malformed", f'{text} is not valid JSON. Give a user as {{"kind": ..., "options": {{...}}}}.'
        ) from None
