"""``userrl reproduce``: a claim of a paper in miniature, over paired seeds."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from flows.cli.arguments import Json
from flows.cli.terminal import plain, plain_json


def reproduce(
    claim: Annotated[
        str | None,
        typer.Argument(help="A shipped claim, a check of a claim (NAME.half-rate, see --list), or a YAML file."),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List every claim.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds per arm. Verdicts are given at 8, 16 and 24.")] = 8,
    first_seed: Annotated[
        int | None, typer.Option(min=1, help="First seed to run, instead of the claim's first.")
    ] = None,
    arm: Annotated[
        str | None, typer.Option(help="A YAML file with an additional arm; the result is exploratory.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(min=1, help="Another token budget per run; the result is exploratory.")
    ] = None,
    parallel: Annotated[int, typer.Option(min=1, help="Number of parallel runs.")] = 2,
    as_json: Json = False,
) -> None:
    """Run the arms of a claim on this machine, as child processes. Run again, it continues and gives the same table.

    `prefect deployment run reproduce/default -p claim=NAME` uses workers instead.

    Example: userrl reproduce r2g-above-sum --seeds 8
    """
    from curricula.claims import CHECKS, claim_names, load_claim

    if listed or claim is None:
        for name in claim_names():
            listed_claim = load_claim(name)
            print(plain(f"{name:28s} {listed_claim.kind:16s} {listed_claim.text} ({listed_claim.paper})"))
        print(f"Checks, if a claim has them: NAME.{', NAME.'.join(CHECKS)}", file=sys.stderr)
        return
    import userrl
    from userrl.machine.interrupts import stoppable

    with stoppable("stopped; its runs leave checkpoints. Run it again to go on"):
        done = userrl.reproduce(claim, seeds=seeds, first_seed=first_seed, arm=arm, tokens=tokens, parallel=parallel)
    print(plain_json(done.as_json(), indent=1) if as_json else plain(str(done)))
