"""The conversations of one evaluation: the facts told, the questions, the answer, and the number of the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from analysis.measure.grounded import Answered
from userrl.evaluation.planned import plan_evaluation
from userrl.machine.home import warehouse_dir
from userrl.reports.run_report import has_report
from userrl.run.request import EvaluateRequest
from userrl.stages.execution import execute
from userrl.stages.workers import Workers
from userrl_crossplay.report import CellMeasures
from warehouse import open_warehouse

_TEXT = """
WITH said AS (
    SELECT traj_id, turn, choice, (info->>'$.persona.number')::INT AS number, (info->>'$.told')::INT AS told,
           (info->>'$.wished')::INT AS wished, info->>'$.success' AS ended, coalesce((info->>'$.left')::BOOLEAN, false) AS gone,
           (info->>'$.persona.shown')::BOOLEAN AS shown
    FROM turns WHERE run_id = $run AND phase = 'evaluate' AND gym = $gym
)
SELECT t.task_id, t.score, t.turns AS length, max(s.number) AS number, arg_max(s.told, s.turn) AS told, max(s.wished) AS needed,
       max(s.turn) FILTER (s.choice = 'answer' AND s.ended IS NOT NULL) AS answered, bool_or(s.gone) AS gone,
       list(s.turn ORDER BY s.turn) FILTER (s.choice = 'action') AS asked, count(s.shown) AS due,
       count(*) FILTER (s.shown) AS shown
FROM trajectories t JOIN said s USING (traj_id)
WHERE t.run_id = $run AND t.phase = 'evaluate' AND t.admitted AND t.gym = $gym
      AND t.checkpoint IS NOT DISTINCT FROM $checkpoint
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


def evaluated(
    checkpoint: str,
    gym: str,
    *,
    horizon: int,
    tasks: int,
    user: dict[str, Any] | None = None,
    workers: Workers | None = None,
) -> tuple[UserConversation, ...]:
    """Evaluate a run's checkpoint greedily, once per task, and return the conversations. See `evaluation`."""
    run, actor = evaluation(checkpoint, gym, horizon=horizon, tasks=tasks, user=user, workers=workers)
    return tuple(conversations(run, actor, gym))


def evaluation(
    checkpoint: str,
    gym: str,
    *,
    horizon: int,
    tasks: int,
    user: dict[str, Any] | None = None,
    workers: Workers | None = None,
    say: Callable[..., None] = lambda *args: None,
) -> tuple[str, str | None]:
    """Evaluate a run's checkpoint greedily, once per task. Return the evaluation's run and the checkpoint's id in it.

    A finished evaluation is reused.

    horizon: maximum agent turns. tasks: number of test tasks. user: the user; None takes the recipe's own.
    workers: the processes that several evaluations share. say: called with log lines as for `logging`.
    """
    request = EvaluateRequest(
        checkpoint=checkpoint, gyms=[gym], horizon=horizon, tasks=tasks, attempts=1, temperature=0.0, user=user
    )
    planned = plan_evaluation(request)
    with planned.plan.begin() as run, run.at_work():
        job = planned.job(run)
        done = job.finished()
        if done is None or not has_report(run):
            planned.report(run, done or execute(job, workers=workers, say=say))
    return run.id, planned.actors[0].id


def protocol_of(run: str, checkpoint: str | None, gym: str) -> dict[str, Any]:
    """Return the protocol of a checkpoint's evaluation. What was not recorded is None."""
    text = "FROM evaluation_protocols(run := $run) WHERE gym = $gym AND checkpoint IS NOT DISTINCT FROM $checkpoint"
    with open_warehouse(warehouse_dir(), run=run) as warehouse:
        return next(iter(warehouse.rows(text, run=run, gym=gym, checkpoint=checkpoint)), {})


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


def measures(conversations: Sequence[UserConversation]) -> CellMeasures:
    """Return the means of a cell. Raises ValueError without conversations."""
    if not conversations:
        raise ValueError("A cell needs at least one conversation.")
    n, due = len(conversations), sum(conversation.due for conversation in conversations)
    return CellMeasures(
        success=sum(conversation.score for conversation in conversations) / n,
        grounded=sum(conversation.grounded for conversation in conversations) / n,
        lucky=sum(conversation.lucky for conversation in conversations) / n,
        told=sum((conversation.told or 0) / (conversation.needed or 1) for conversation in conversations) / n,
        early=sum(conversation.early for conversation in conversations) / n,
        questions=sum(len(conversation.asked) for conversation in conversations) / n,
        turns=sum(conversation.turns for conversation in conversations) / n,
        compliance=sum(conversation.shown for conversation in conversations) / due if due else None,
    )
