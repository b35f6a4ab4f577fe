"""``userrl protocol``: what an evaluation was played with, and what differs from another."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.arguments import Json, RunName
from flows.cli.terminal import plain, plain_json


def protocol(
    run: RunName,
    against: Annotated[
        str | None, typer.Option(metavar="RUN|SUITE|PAPER", help="A run, a suite, or a table such as 'UserRL table 3'.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what an evaluation was played with, and what differs from another.

    Settings are listed by gym, those first that are known to matter most.

    Example: userrl protocol latest --against 'UserRL table 3'
    """
    import userrl

    report = userrl.protocol(run, against)
    print(plain_json(report.as_json(), indent=1) if as_json else plain(str(report)).rstrip())
