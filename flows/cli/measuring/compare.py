"""``userrl compare``: do these checkpoints differ, do these recipes?"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from flows.cli.arguments import Html, Json
from flows.cli.terminal import plain, plain_json


def compare(
    sides: Annotated[
        list[str],
        typer.Argument(
            metavar="A B ...",
            help="Runs (latest, RUN:SFT), groups ('recipe=naive-sum,seed=*'), served models (model=gpt-4o), published:MODEL.",
        ),
    ],
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Hold B, C ... against A: runs over their tasks, recipes over their seeds; the collapsed seeds first.

    Published rows stand apart and are never subtracted.
    """
    import userrl

    found = userrl.compare(*sides)
    print(plain_json(found.as_json(), indent=1) if as_json else plain(str(found)))
    if html is not None:
        print(f"wrote {', '.join(map(str, found.write(html)))}", file=sys.stderr)
