"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="For programs.")]
RunName = Annotated[str, typer.Argument(help="A run's id, the beginning of one, a name, or latest.")]
Html = Annotated[
    str | None,
    typer.Option(
        "--html", metavar="FILE", help="Write it as one HTML file too; FILE.md: as Markdown with its drawings."
    ),
]
