"""One conversation with one person, who plays a gym's agent or its user."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

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

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

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


def play(values: Mapping[str, Any], console: Console | None, after_turn: AfterTurn | None) -> Trajectory:
    """Hold one conversation as `userrl.play` explains it. values: the fields of a `PlayRequest`.

    Raises ConfigError or GymError for a gym, task or part that cannot be played.
    """
    quiet_process()
    request = validated(PlayRequest, values, "play")
    with contextlib.closing(Study(warehouse_dir())) as study:
        other = request.other()
        if request.task is not None:
            task = task_by_id(request.gym, request.task)
        elif request.run is not None:
            task = study.hand_out(request.gym, request.side, other, split=request.split)
        else:
            task = task_by_seed(request.gym, request.split, request.seed)
        setup = ConversationSetup(task, request.side, other, request.turns, request.seed)
        on_turn = after_turn or (lambda turn, trajectory, last: None)
        trajectory = study.hold(setup, console or Console(), person=request.person, after_turn=on_turn)
        study.tell(trajectory, person=request.person, side=request.side, where="terminal")
    return trajectory
