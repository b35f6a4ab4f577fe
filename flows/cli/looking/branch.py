"""``userrl branch``: alternative continuations from a turn of a stored conversation."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.arguments import Json
from flows.cli.terminal import plain_json


def branch(
    trajectory: Annotated[int, typer.Argument(metavar="TRAJ", help="The conversation's traj_id.")],
    turn: Annotated[int, typer.Option("--turn", min=1, help="The turn to start from; it is played again.")],
    k: Annotated[int, typer.Option("--k", min=1, max=64, help="Number of continuations.")] = 4,
    edit: Annotated[
        str | None, typer.Option(help='The agent\'s reply in that turn, such as "answer H1", or a whole reply text.')
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="The policy that continues: a run or a checkpoint's folder. Default: the run's own."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random draws.")] = 0,
    as_json: Json = False,
) -> None:
    """Continue a stored conversation from one turn several times, with new random draws or another reply.

    Nothing is written to the warehouse.

    Example: userrl branch 1099612295849 --turn 3 --k 8
    """
    import userrl

    done = userrl.branch(trajectory, turn, k=k, edit=edit, policy=policy, seed=seed)
    print(plain_json(done.as_json(), indent=1) if as_json else done)
