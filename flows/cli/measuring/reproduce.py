"""``userrl reproduce``: a claim of the papers in miniature, over paired seeds."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from flows.cli.arguments import Json
from flows.cli.terminal import plain, plain_json


def reproduce(
    claim: Annotated[
        str | None, typer.Argument(help="A shipped claim, a check of one (NAME.half-rate, see --list), or a YAML file.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Every claim, one a line.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of every arm; verdicts come at 8, 16 and 24.")] = 8,
    arm: Annotated[str | None, typer.Option(help="A YAML file with an arm of one's own; exploratory.")] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="Another budget of each run; exploratory.")] = None,
    parallel: Annotated[int, typer.Option(min=1, help="Runs at once.")] = 2,
    as_json: Json = False,
) -> None:
    """Run a claim's arms here, as child processes; started again it goes on where it was, and gives the same table.

    `prefect deployment run reproduce/default -p claim=NAME` uses workers instead.
    """
    from curricula.claims import CHECKS, claim_names, load_claim

    if listed or claim is None:
        for name in claim_names():
            known = load_claim(name)
            print(plain(f"{name:28s} {known.kind:16s} {known.text} ({known.paper})"))
        print(f"Checks, where a claim has them: NAME.{', NAME.'.join(CHECKS)}", file=sys.stderr)
        return
    import userrl
    from userrl.machine.interrupts import leave_on_term

    leave_on_term()
    done = userrl.reproduce(claim, seeds=seeds, arm=arm, tokens=tokens, parallel=parallel)
    print(plain_json(done.as_json(), indent=1) if as_json else plain(str(done)))
