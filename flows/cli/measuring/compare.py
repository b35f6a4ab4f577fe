"""``userrl compare``: a comparison of checkpoints or recipes."""

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
    """Compare B, C ... with A: runs over their tasks, recipes over their seeds. Collapsed seeds are listed first.

    Published rows are shown separately and never subtracted.

    Example: userrl compare 'recipe=equalized-r2g,seed=*' 'recipe=naive-sum,seed=*'
    """
    import userrl

    comparison = userrl.compare(*sides)
    print(plain_json(comparison.as_json(), indent=1) if as_json else plain(str(comparison)))
    if html is not None:
        print(f"wrote {', '.join(map(str, comparison.write(html)))}", file=sys.stderr)
