"""``userrl import``: conversations of other tools."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.arguments import Json
from flows.cli.terminal import plain, plain_json


def import_(
    path: Annotated[Path, typer.Argument(help="The file.")],
    format: Annotated[
        str,
        typer.Option(
            help="auto, tau2, tau-bench, inspect, verifiers, nemo-gym, openai-chat, sharegpt or userrl (our own exports)."
        ),
    ] = "auto",
    name: Annotated[
        str, typer.Option(help="The run's name. By default the file's name. Runs of our own exports keep theirs.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Import conversations of another tool as a run of kind imported.

    Importing the same file again changes nothing. Nothing of a broken file is kept.
    docs/reference/conversation-files.md lists the formats.

    Example: userrl import results.json --name gpt-4o
    """
    import userrl

    runs = userrl.import_logs(path, format=format, name=name)
    if as_json:
        print(plain_json([asdict(run) for run in runs], indent=1))
        return
    for run in runs:
        print(plain(str(run)))
        if run.again:
            kept = f" It keeps its name, {run.name}." if name not in ("", run.name) else ""
            print(plain(f"This file was imported before. Nothing was written.{kept}"))
    print("\n".join(plain(f"Next: userrl report {run.run}") for run in runs))
