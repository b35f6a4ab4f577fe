"""``userrl branch``: other ways on from a turn of a stored conversation, side by side."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.arguments import Json
from flows.cli.terminal import plain_json


def branch(
    trajectory: Annotated[int, typer.Argument(metavar="TRAJ", help="Its traj_id.")],
    turn: Annotated[int, typer.Option("--turn", min=1, help="The turn that is played anew.")],
    k: Annotated[int, typer.Option("--k", min=1, max=64, help="How many continuations.")] = 4,
    edit: Annotated[
        str | None, typer.Option(help='What the agent says in that turn, such as "answer H1", or a whole reply.')
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="Who goes on: a run or a checkpoint's folder; the run's own.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Fixes every draw.")] = 0,
    as_json: Json = False,
) -> None:
    """Go on from a stored turn several times over, with other draws or another reply. Nothing is logged."""
    import userrl

    done = userrl.branch(trajectory, turn, k=k, edit=edit, policy=policy, seed=seed)
    print(plain_json(done.as_json(), indent=1) if as_json else done)
