"""Continue a stored conversation from one turn several times, with new random draws or another reply. Nothing is logged.

No model is imported before a conversation is continued, so a web server may import the request and the result.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from analysis.credit.continuations import Prefix, continuations
from analysis.credit.replay import why_not
from curricula.load import from_resolved
from curricula.validation import validated
from userrl.evaluation.frozen import frozen, setting_of
from userrl.machine.foreign_text import plain
from userrl.machine.home import quiet_process
from userrl.machine.notebook import Printed, Tabular
from userrl.run.run import find
from userrl.run.stored import stored_conversation
from userrl_core.errors import ConfigError, GymError
from userrl_core.interact import CHOICES, InteractCall, parse_text, render_call
from userrl_core.number_format import number
from userrl_core.records import PolicyReply, Trajectory
from userrl_core.seeding import derive_seed

NARROWEST = 24
"""Minimum width of a column in characters. Columns that do not fit are printed below."""


class BranchRequest(BaseModel):
    """A request. trajectory: its traj_id. edit: the agent's reply in that turn. policy: a run or a checkpoint's folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    trajectory: int
    turn: int = Field(ge=1)
    k: int = Field(default=4, ge=1, le=64)
    edit: str | None = None
    policy: str | None = None
    seed: int = 0


class ContinuationTurn(BaseModel):
    """A turn of one continuation."""

    model_config = ConfigDict(frozen=True)

    turn: int
    choice: str | None
    content: str | None
    message: str | None
    observation: str
    reward: float | None


class Continuation(BaseModel):
    """One continuation: its turns from the replayed one, and how it ended."""

    model_config = ConfigDict(frozen=True)

    turns: tuple[ContinuationTurn, ...]
    stop_reason: str | None
    score: float | None


@dataclass(frozen=True, slots=True)
class Branches(Printed, Tabular):
    """A stored conversation and the continuations from one of its turns. player: the label of the continuing checkpoint."""

    request: BranchRequest
    stored: Trajectory
    played: tuple[Trajectory, ...]
    player: str

    @property
    def ways(self) -> tuple[Continuation, ...]:
        """The continuations, each from the replayed turn."""
        return tuple(_continuation(trajectory, self.request.turn) for trajectory in self.played)

    def as_json(self) -> dict[str, Any]:
        """Return the continuations as JSON."""
        continuations = [continuation.model_dump(mode="json") for continuation in self.ways]
        return {"trajectory": self.request.trajectory, "turn": self.request.turn, "ways": continuations}

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return one row per continuation (from 1) and turn, with the continuation's score."""
        return [
            {"way": number, **turn.model_dump(), "stop_reason": continuation.stop_reason, "score": continuation.score}
            for number, continuation in enumerate(self.ways, 1)
            for turn in continuation.turns
        ]

    def __str__(self) -> str:
        task, request = self.stored.task, self.request
        title = (
            f"{task.gym} {plain(task.id)}, trajectory {request.trajectory} from turn {request.turn}; "
            f"continued by {plain(self.player)}"
        )
        width = shutil.get_terminal_size((120, 24)).columns
        return "\n".join([title, *side_by_side([self.stored, *self.played], request.turn, width)])


def branch(
    trajectory: int, turn: int, *, k: int = 4, edit: str | None = None, policy: str | None = None, seed: int = 0
) -> Branches:
    """Continue a stored conversation from one turn several times, with new random draws or another reply. Nothing is logged.

    trajectory: its traj_id. turn: the turn that is played again, from 1. k: number of continuations. edit: the agent's reply
    in that turn, such as ``answer H1``, or a whole reply text. policy: a run or a checkpoint's folder; by default the run's
    own. Raises ConfigError, CheckpointError or GymError with one sentence.
    """
    quiet_process()
    values = {"trajectory": trajectory, "turn": turn, "k": k, "edit": edit, "policy": policy, "seed": seed}
    return branches(validated(BranchRequest, values, "branch"))


def branches(request: BranchRequest) -> Branches:
    """Continue from the turn ``k`` times, with the run's own gym, users and prompts.

    Raises ConfigError, CheckpointError or GymError if the conversation cannot be replayed or the checkpoint is missing.
    """
    stored, run = stored_conversation(request.trajectory)
    if reason := why_not(stored.task.gym, stored.user):
        raise GymError("gym.not_replayable", reason)
    if request.turn > len(stored.turns):
        raise ConfigError(
            "argument.out_of_range",
            f"Trajectory {request.trajectory} has {len(stored.turns)} turns. Give --turn from 1 to "
            f"{len(stored.turns)}.",
        )
    if request.edit is not None and not request.edit.strip():
        raise ConfigError("argument.missing", "--edit is empty. Write what the agent says, or omit it.")
    checkpoint = frozen(request.policy or run)
    recipe = from_resolved(find(run).info.resolved)
    setting = setting_of(recipe, (stored.task.gym,), stored.context.phase)
    then = None if request.edit is None else PolicyReply(text=_reply(request.edit))
    prefix = Prefix(stored, request.turn - 1, then)
    drawn = derive_seed("branch", request.trajectory, request.turn, request.seed)
    (played,) = asyncio.run(continuations([prefix], checkpoint.policy(drawn), request.k, setting, seed=drawn))
    return Branches(request, stored, tuple(played), checkpoint.label)


def _reply(text: str) -> str:
    """Return a whole reply unchanged, and ``answer H1`` as a call."""
    choice, _, content = text.partition(" ")
    if parse_text(text).call is None and choice in CHOICES:
        return render_call(InteractCall(choice, content))
    return text


def _continuation(played: Trajectory, turn: int) -> Continuation:
    turns = tuple(
        ContinuationTurn.model_validate({"turn": played_turn.number, **asdict(played_turn)})
        for played_turn in played.turns[turn - 1 :]
    )
    return Continuation(turns=turns, stop_reason=played.stop_reason, score=played.score)


def side_by_side(trajectories: Sequence[Trajectory], turn: int, width: int) -> Iterator[str]:
    """Yield lines with the stored conversation and its continuations as columns, as many as fit side by side."""
    across = max(min(len(trajectories), width // (NARROWEST + 3)), 1)
    column_width = (width - 3 * (across - 1)) // across
    for first in range(0, len(trajectories), across):
        columns = trajectories[first : first + across]
        yield ""
        yield from _row(
            [
                [f"stored ({_ending(trajectory)})" if first + i == 0 else f"{first + i}: {_ending(trajectory)}"]
                for i, trajectory in enumerate(columns)
            ],
            column_width,
        )
        for turn_number in range(turn, max(len(trajectory.turns) for trajectory in columns) + 1):
            yield from _row(
                [_turn_lines(trajectory, turn_number, column_width) for trajectory in columns], column_width
            )


def _row(cells: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    for line in itertools.zip_longest(*cells, fillvalue=""):
        yield " | ".join(f"{text[:width]:{width}}" for text in line).rstrip()


def _turn_lines(trajectory: Trajectory, turn_number: int, width: int) -> list[str]:
    if turn_number > len(trajectory.turns):
        return []
    turn = trajectory.turns[turn_number - 1]
    call = f"{turn.choice}: {turn.content}" if turn.choice else turn.message
    reward = "not scored" if turn.reward is None else number(turn.reward, sign=True)
    texts = f"{turn_number}. {plain(call or '')}", f"reply: {plain(turn.observation)}"
    return [*(line for text in texts for line in textwrap.wrap(text, width) or [""]), f"({reward})"]


def _ending(trajectory: Trajectory) -> str:
    score = "not scored" if trajectory.score is None else f"score {number(trajectory.score)}"
    return f"{trajectory.stop_reason} after {len(trajectory.turns)}, {score}"
