"""``userrl plot``: learning curves as a picture file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.arguments import run_names


def plot(
    sides: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN ...",
            help="Runs (an id or its beginning, a name, latest), or groups of runs ('recipe=naive-sum,seed=*').",
            autocompletion=run_names,
        ),
    ],
    out: Annotated[str, typer.Option("--out", metavar="FILE", help="The file: .png, .svg or .pdf.")] = "curve.png",
) -> None:
    """Draw training and validation scores by step. A group of runs is drawn as its mean over seeds, with a band.

    Example: userrl plot latest --out curve.png
    """
    from userrl.reports.plots import plot_curves

    print(f"wrote {plot_curves(sides, Path(out))}")
