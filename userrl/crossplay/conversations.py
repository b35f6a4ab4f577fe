"""The conversations of one evaluation, with what was told, asked and answered, and the number of the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from userrl.machine.home import warehouse_dir
from userrl_core.measure.grounded import Answered
from warehouse import open_warehouse

_TEXT = """
SELECT t.task_id, t.score, t.turns AS length, max((u.info->'persona'->>'number')::INT) AS number,
       arg_max((u.info->>'told')::INT, u.turn) FILTER (u.info->>'told' IS NOT NULL) AS told,
       max((u.info->>'wished')::INT) AS needed,
       max(u.turn) FILTER (u.choice = 'answer' AND u.info->>'success' IS NOT NULL) AS answered,
       coalesce(bool_or((u.info->>'left')::BOOLEAN), false) AS gone,
       list(u.turn ORDER BY u.turn) FILTER (u.choice = 'action') AS asked,
       count(*) FILTER (u.info->'persona'->>'shown' IS NOT NULL) AS due,
       count(*) FILTER (u.info->'persona'->>'shown' = 'true') AS shown
FROM trajectories t JOIN turns u USING (traj_id)
WHERE t.run_id = $run AND t.phase = 'evaluate' AND t.admitted AND t.checkpoint IS NOT DISTINCT FROM $checkpoint AND t.gym = $gym
GROUP BY t.traj_id, t.task_id, t.score, t.turns ORDER BY t.task_id, t.traj_id
"""


@dataclass(frozen=True, slots=True)
class UserConversation:
    """One evaluated conversation. number: the user's number in its population. told, needed: facts, None if the gym does
    not count them. due, shown: turns in which a served user was told to show a trait, and those that show it.
    """

    task: str
    number: int | None
    score: float
    turns: int
    told: int | None
    needed: int | None
    answered: int | None
    asked: tuple[int, ...]
    due: int = 0
    shown: int = 0

    @property
    def grounded(self) -> bool:
        """Return whether the answer is right after everything needed was told."""
        return self.score >= 1.0 and self.told is not None and self.told == self.needed

    @property
    def lucky(self) -> bool:
        """Return whether the answer is right although something was not told."""
        return self.score >= 1.0 and self.told is not None and self.told != self.needed

    @property
    def early(self) -> bool:
        """Return whether the agent answered before everything was told."""
        return self.answered is not None and self.told is not None and self.told != self.needed

    def as_answered(self) -> Answered:
        """Return the conversation for a curve of grounded answers."""
        return Answered(self.answered, self.grounded, self.lucky, self.asked, self.needed or 0)

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON."""
        return asdict(self)


def conversations(run: str, checkpoint: str | None, gym: str) -> list[UserConversation]:
    """Return the scored conversations of a checkpoint's evaluation."""
    with open_warehouse(warehouse_dir(), run=run) as warehouse:
        rows = warehouse.rows(_TEXT, run=run, checkpoint=checkpoint, gym=gym)
    return [_conversation(row) for row in rows if row["score"] is not None]


def _conversation(row: Mapping[str, Any]) -> UserConversation:
    return UserConversation(
        row["task_id"],
        row["number"],
        row["score"],
        row["length"],
        row["told"],
        row["needed"],
        None if row["gone"] else row["answered"],
        tuple(row["asked"] or ()),
        row["due"],
        row["shown"],
    )


@dataclass(frozen=True, slots=True)
class CellMeasures:
    """Means over the conversations of one agent and one population. compliance: None without a due turn."""

    success: float
    grounded: float
    lucky: float
    told: float
    early: float
    questions: float
    turns: float
    compliance: float | None


def measures(talks: Sequence[UserConversation]) -> CellMeasures:
    """Return the means of a cell. Raises ValueError without conversations."""
    if not talks:
        raise ValueError("A cell needs at least one conversation.")
    n, due = len(talks), sum(talk.due for talk in talks)
    return CellMeasures(
        success=sum(talk.score for talk in talks) / n,
        grounded=sum(talk.grounded for talk in talks) / n,
        lucky=sum(talk.lucky for talk in talks) / n,
        told=sum((talk.told or 0) / (talk.needed or 1) for talk in talks) / n,
        early=sum(talk.early for talk in talks) / n,
        questions=sum(len(talk.asked) for talk in talks) / n,
        turns=sum(talk.turns for talk in talks) / n,
        compliance=sum(talk.shown for talk in talks) / due if due else None,
    )
