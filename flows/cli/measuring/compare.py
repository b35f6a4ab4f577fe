"""``userrl compare``: do these checkpoints differ, do these recipes?"""

from __future__ import annotations

import sys
from pathlib import Path
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
    from flows.machine.home import warehouse_dir
    from flows.run.reports import compared
    from flows.run.reports.comparison import compare as find
    from flows.run.reports.sides import find_sides
    from warehouse import open_warehouse

    with open_warehouse(warehouse_dir()) as warehouse:
        ours, published = find_sides(warehouse, sides)
        found = find(warehouse, ours)
    page = compared.page(found, published)
    print(plain_json(compared.as_json(found), indent=1) if as_json else plain(page.text()))
    if html is not None:
        print(f"wrote {', '.join(map(str, page.write(Path(html))))}", file=sys.stderr)
