"""``userrl play``: one conversation in the terminal, as the agent or the user, with the reward of each turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flows.cli.invocation import next_call
from flows.cli.terminal import plain
from userrl.machine.page_address import trajectory_address

if TYPE_CHECKING:
    from userrl_core.records import Trajectory, Turn

Side = Literal["agent", "user"]


def play(
    ctx: typer.Context,
    gym: Annotated[str, typer.Argument(help="The gym, such as travel.")],
    as_side: Annotated[Side, typer.Option("--as", help="The side you play.")] = "agent",
    task: Annotated[
        str | None,
        typer.Option(
            "--task", help="A task's id or the beginning of it, also of an imported task. Default: chosen by the seed."
        ),
    ] = None,
    split: Annotated[
        str, typer.Option("--split", help="Without --task: the split, train, validation or test.")
    ] = "train",
    seed: Annotated[int, typer.Option("--seed", help="Seed of the task choice and of all random draws.")] = 0,
    horizon: Annotated[int, typer.Option("--horizon", help="Without --run: maximum number of agent turns.")] = 16,
    model: Annotated[
        str | None, typer.Option("--model", help="Without --run: a served model plays the other side.")
    ] = None,
    base_url: Annotated[str | None, typer.Option("--base-url", help="With --model: its server's /v1 address.")] = None,
    run: Annotated[
        str | None, typer.Option("--run", help="With --as user: a run whose checkpoint plays the agent, or latest.")
    ] = None,
    skill: Annotated[
        float,
        typer.Option(
            "--skill", help="With --as user, without --model, without --run: skill of the scripted agent from 0 to 1."
        ),
    ] = 0.7,
    name: Annotated[str, typer.Option("--name", help="A pseudonym to store with the conversation.")] = "",
) -> None:
    """Play one task in the terminal, as the agent or as the user.

    The other side is a rule, a served model (--model) or a run's checkpoint (--run). The conversation is stored as in a run.

    Example: userrl play travel --seed 3
    """
    import userrl
    from userrl_core.gyms import gym_class
    from userrl_core.gyms.human_user import Console

    console = Console(lambda prompt: input(plain(prompt)), lambda text: typer.echo(plain(text)))

    def after_turn(turn: Turn, trajectory: Trajectory, last: bool) -> None:
        typer.echo(plain(_line(turn, trajectory, as_side, last=last)))

    try:
        trajectory = userrl.play(
            gym, side=as_side, task=task, split=split, seed=seed, turns=horizon, model=model, base_url=base_url,
            run=run, skill=skill, person=name, console=console, after_turn=after_turn,
        )  # fmt: skip
    except KeyboardInterrupt:
        typer.echo("\nStopped.")
        raise typer.Exit(130) from None
    typer.echo(f"\n{plain(ending(trajectory))}")
    typer.echo(
        f"Stored: userrl show {trajectory.traj_id}, or userrl view and {trajectory_address(trajectory.traj_id or 0)}"
    )
    reverse = "agent" if as_side == "user" else "user"
    typer.echo(
        f"Next: {next_call(ctx, seed=seed + 1, task=None)}"
        + (f"   or: userrl play {gym} --as {reverse}" if "human" in gym_class(gym).users else "")
    )


def _line(turn: Turn, trajectory: Trajectory, side: Side, *, last: bool) -> str:
    from userrl.machine.separate import part
    from userrl_core.number_format import number

    reward_text = "not scored" if turn.reward is None else number(turn.reward, sign=True)
    total = trajectory.return_sum
    shown = turn.observation and (last or side == "user")
    observation = f"{part('userrl-people', 'human_policy').readable(turn.observation)}\n" if shown else ""
    return f"{observation}-- turn {turn.number}: reward {reward_text}, total {number(total)}"


def ending(trajectory: Trajectory) -> str:
    """Return a sentence that says how the conversation ended."""
    from userrl.reports.wording import ended
    from userrl_core.number_format import number

    if not trajectory.admitted:
        return f"Ended without a score ({trajectory.reject_reason})."
    how = ended(trajectory.stop_reason)
    turns = len(trajectory.turns)
    return f"{how.capitalize()} after {turns} turn{'' if turns == 1 else 's'}; score {number(trajectory.score)}."
