"""One conversation with one person, who plays a gym's agent or its user."""

from __future__ import annotations

import contextlib
from typing import Literal

from pydantic import BaseModel, ConfigDict

from curricula.validation import validated
from userrl.machine.home import quiet_process, warehouse_dir
from userrl.run.known_tasks import task_by_id, task_by_seed
from userrl.run.run import find
from userrl_core.gyms.human_user import Console
from userrl_core.records import Trajectory
from userrl_people.others import Checkpoint, Other, Served, Side
from userrl_people.study import AfterTurn, ConversationSetup, Study


class PlayRequest(BaseModel):
    """A request to play. side: the person's part. task: its id or the beginning of it; default: chosen by the seed.

    model, base_url: a served model on the other side. run: a run whose checkpoint plays the agent; the task is then the one
    that fewest people had. skill: the scripted agent's skill. turns: maximum number of turns. person: a pseudonym.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    gym: str
    side: Side = "agent"
    task: str | None = None
    split: str = "train"
    seed: int = 0
    turns: int = 16
    model: str | None = None
    base_url: str | None = None
    run: str | None = None
    skill: float = 0.7
    person: str = ""

    def other(self) -> Other:
        """Return the other side. Raises ConfigError for a run without a checkpoint."""
        if self.run is not None:
            return Checkpoint(find(self.run))
        if self.model is None and self.base_url is None:
            return Other(self.skill)
        return Served({"base_url": self.base_url, **({"model": self.model} if self.model else {})})


def play(
    gym: str,
    *,
    side: Literal["agent", "user"] = "agent",
    task: str | None = None,
    split: str = "train",
    seed: int = 0,
    turns: int = 16,
    model: str | None = None,
    base_url: str | None = None,
    run: str | None = None,
    skill: float = 0.7,
    person: str = "",
    console: Console | None = None,
    after_turn: AfterTurn | None = None,
) -> Trajectory:
    """Hold one conversation with a person, log it in the run ``people``, and return it.

    side: the person's part. task: an id or the beginning of one; by default the seed draws a task of the split. turns:
    maximum number of turns. model, base_url: a served model on the other side. run: a run whose checkpoint plays the agent.
    skill: the scripted agent's skill. person: a pseudonym. console: where the person reads and types; by default the
    terminal. after_turn: called after each turn with the turn, the conversation so far and whether it was the last. Raises
    ConfigError or GymError with one sentence.
    """
    quiet_process()
    values = {
        "gym": gym, "side": side, "task": task, "split": split, "seed": seed, "turns": turns, "model": model,
        "base_url": base_url, "run": run, "skill": skill, "person": person,
    }  # fmt: skip
    on_turn = after_turn or (lambda turn, trajectory, last: None)
    return _played(validated(PlayRequest, values, "play"), console or Console(), on_turn)


def _played(request: PlayRequest, console: Console, after_turn: AfterTurn) -> Trajectory:
    """Hold the conversation, log it in the run ``people``, and return it.

    Raises ConfigError or GymError for a gym, task or part that cannot be played.
    """
    with contextlib.closing(Study(warehouse_dir())) as study:
        other = request.other()
        if request.task is not None:
            task = task_by_id(request.gym, request.task)
        elif request.run is not None:
            task = study.hand_out(request.gym, request.side, other, split=request.split)
        else:
            task = task_by_seed(request.gym, request.split, request.seed)
        setup = ConversationSetup(task, request.side, other, request.turns, request.seed)
        trajectory = study.hold(setup, console, person=request.person, after_turn=after_turn)
        study.tell(trajectory, person=request.person, side=request.side, where="terminal")
    return trajectory
