"""``userrl play``: one conversation at the terminal, as the agent or as the user, with the turn rewards as they fall."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from flows.cli.terminal import plain, refusals
from userrl.machine.page_address import trajectory_address
from userrl.run.outcome import ended
from userrl_core.gyms import gym_class
from userrl_core.gyms.human_user import Console
from userrl_core.number_format import number
from userrl_core.policies.human import readable
from userrl_core.records import Trajectory, Turn

Side = Literal["agent", "user"]


def play(
    gym: Annotated[str, typer.Argument(help="The gym, such as travel.")],
    as_side: Annotated[Side, typer.Option("--as", help="Whom you play.")] = "agent",
    task: Annotated[
        str | None,
        typer.Option("--task", help="The id (or its beginning) of a task, also an imported one; else one by the seed."),
    ] = None,
    split: Annotated[str, typer.Option("--split", help="Where the task comes from.")] = "train",
    seed: Annotated[int, typer.Option("--seed", help="Chooses the task and every random draw.")] = 0,
    horizon: Annotated[int, typer.Option("--horizon", help="The most turns.")] = 16,
    model: Annotated[str | None, typer.Option("--model", help="A served model on the other side.")] = None,
    base_url: Annotated[str | None, typer.Option("--base-url", help="The server's /v1 address.")] = None,
    run: Annotated[str | None, typer.Option("--run", help="The checkpoint of a run as the agent, or latest.")] = None,
    skill: Annotated[float, typer.Option("--skill", help="The scripted agent's skill, without --model.")] = 0.7,
    name: Annotated[str, typer.Option("--name", help="A pseudonym that is kept with the conversation.")] = "",
) -> None:
    """Play one task. The other side is by rule, a served model with --model, or a run's checkpoint; all is kept as in a run."""
    import userrl

    console = Console(lambda prompt: input(plain(prompt)), lambda text: typer.echo(plain(text)))

    def after_turn(turn: Turn, trajectory: Trajectory, last: bool) -> None:
        typer.echo(plain(_line(turn, trajectory, as_side, last=last)))

    try:
        with refusals("play"):
            trajectory = userrl.play(
                gym, side=as_side, task=task, split=split, seed=seed, turns=horizon, model=model, base_url=base_url,
                run=run, skill=skill, person=name, console=console, after_turn=after_turn,
            )  # fmt: skip
    except KeyboardInterrupt:
        typer.echo("\nStopped.")
        raise typer.Exit(130) from None
    typer.echo(f"\n{plain(ending(trajectory))}")
    typer.echo(
        f"Kept: userrl show {trajectory.traj_id}, or userrl view and {trajectory_address(trajectory.traj_id or 0)}"
    )
    reverse = "agent" if as_side == "user" else "user"
    typer.echo(
        f"Next: userrl play {gym} --seed {seed + 1}"
        + (f"   or: --as {reverse}" if "human" in gym_class(gym).users else "")
    )


def _line(turn: Turn, trajectory: Trajectory, side: Side, *, last: bool) -> str:
    earned = "not scored" if turn.reward is None else number(turn.reward, sign=True)
    total = trajectory.return_sum
    observation = f"{readable(turn.observation)}\n" if turn.observation and (last or side == "user") else ""
    return f"{observation}-- turn {turn.number}: reward {earned}, so far {number(total)}"


def ending(trajectory: Trajectory) -> str:
    """How it ended, in a sentence."""
    if not trajectory.admitted:
        return f"Ended without a score ({trajectory.reject_reason})."
    how = ended(trajectory.stop_reason)
    turns = len(trajectory.turns)
    return f"{how.capitalize()} after {turns} turn{'' if turns == 1 else 's'}; score {number(trajectory.score)}."
