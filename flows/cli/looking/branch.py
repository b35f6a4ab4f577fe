"""``userrl branch``: other ways on from a turn of a stored conversation, side by side."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.arguments import Json
from flows.cli.terminal import plain, plain_json

if TYPE_CHECKING:
    from userrl_core.records import Trajectory

NARROWEST = 24
"""Characters that a column has at least; more columns stand below each other."""


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
    from curricula.load import from_resolved
    from flows.cli.measuring.frozen import frozen
    from flows.cli.measuring.stored import stored_conversation
    from flows.run.run import find
    from flows.run.tasks import gym_config, users_of
    from userrl_core.audit.continuations import Prefix, continuations
    from userrl_core.audit.replay import Setting, why_not
    from userrl_core.errors import ConfigError, GymError
    from userrl_core.records import PolicyReply
    from userrl_core.seeding import derive_seed

    stored, run = stored_conversation(trajectory)
    if reason := why_not(stored.task.gym, stored.user):
        raise GymError(reason)
    if turn > len(stored.turns):
        raise ConfigError(
            f"Trajectory {trajectory} has {len(stored.turns)} turns; give --turn from 1 to {len(stored.turns)}."
        )
    actor = frozen(policy or run)
    own = from_resolved(find(run).info.resolved)
    phase, name = stored.context.phase, stored.task.gym
    role = {"evaluate": "evaluate", "distill": "demonstrate"}.get(phase, "train")
    setting = Setting(
        gym_config(own, evaluation=phase == "evaluate"),
        users_of(own, (name,), role=role),
        own.on_format_error,
        own.model.prompt_style,
    )
    if edit is not None and not edit.strip():
        raise ConfigError("--edit is empty; write what the agent says, or leave it out.")
    then = None if edit is None else PolicyReply(text=_reply(edit))
    prefix = Prefix(stored, turn - 1, then)
    drawn = derive_seed("branch", trajectory, turn, seed)
    (ways,) = asyncio.run(continuations([prefix], actor.policy(drawn), k, setting, seed=drawn))
    if as_json:
        print(plain_json({"trajectory": trajectory, "turn": turn, "ways": [_way(way, turn) for way in ways]}, indent=1))
        return
    print(f"{name} {plain(stored.task.id)}, trajectory {trajectory} from turn {turn}; {plain(actor.label)} goes on")
    for line in side_by_side([stored, *ways], turn, shutil.get_terminal_size((120, 24)).columns):
        print(line)


def _reply(text: str) -> str:
    """A whole reply as it is; ``answer H1`` as the call that it means."""
    from userrl_core.interact import CHOICES, InteractCall, parse_text, render_call

    choice, _, content = text.partition(" ")
    if parse_text(text).call is None and choice in CHOICES:
        return render_call(InteractCall(choice, content))
    return text


def _way(way: Trajectory, turn: int) -> dict[str, Any]:
    return {
        "turns": [
            {
                "turn": one.number,
                "choice": one.choice,
                "content": one.content,
                "message": one.message,
                "observation": one.observation,
                "reward": one.reward,
            }
            for one in way.turns[turn - 1 :]
        ],
        "stop_reason": way.stop_reason,
        "score": way.score,
    }


def side_by_side(ways: Sequence[Trajectory], turn: int, width: int) -> Iterator[str]:
    """The stored conversation and the ways on from its turn, a column each, as many beside each other as there is room for."""
    across = max(min(len(ways), width // (NARROWEST + 3)), 1)
    each = (width - 3 * (across - 1)) // across
    for first in range(0, len(ways), across):
        shown = ways[first : first + across]
        yield ""
        yield from _row(
            [
                [f"stored ({_ending(way)})" if first + i == 0 else f"{first + i}: {_ending(way)}"]
                for i, way in enumerate(shown)
            ],
            each,
        )
        for number in range(turn, max(len(way.turns) for way in shown) + 1):
            yield from _row([_said(way, number, each) for way in shown], each)


def _row(cells: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    for line in itertools.zip_longest(*cells, fillvalue=""):
        yield " | ".join(f"{text[:width]:{width}}" for text in line).rstrip()


def _said(way: Trajectory, number: int, width: int) -> list[str]:
    if number > len(way.turns):
        return []
    turn = way.turns[number - 1]
    call = f"{turn.choice}: {turn.content}" if turn.choice else turn.message
    reward = "not scored" if turn.reward is None else f"{turn.reward:+.3f}"
    texts = f"{number}. {plain(call or '')}", f"< {plain(turn.observation)}"
    return [*(line for text in texts for line in textwrap.wrap(text, width) or [""]), f"({reward})"]


def _ending(way: Trajectory) -> str:
    score = "not scored" if way.score is None else f"score {way.score:.3f}"
    return f"{way.stop_reason} after {len(way.turns)}, {score}"
