"""The scores of an evaluation as rows: each with its interval over tasks, and with what it was played on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict

from userrl.machine.home import warehouse_dir
from userrl.run.job import Actor
from userrl_core.errors import ConfigError
from userrl_core.measure.checkpoints import Difference, difference, mean_score
from userrl_core.measure.interval import Interval
from userrl_core.number_format import number, with_limits
from userrl_core.seeding import content_hash
from warehouse import Warehouse, open_warehouse

ALL = "all"
"""The row over all gyms, every task weighing the same."""


class ScoreRow(BaseModel):
    """A score, and what it was played on. low, high: 95 % over tasks, a task's attempts kept whole; none for a single task."""

    model_config = ConfigDict(frozen=True)

    actor: str
    gym: str
    score: float | None
    low: float | None = None
    high: float | None = None
    tasks: int = 0
    """Tasks that were scored."""
    trajectories: int = 0
    rejected: int = 0
    data: str = ""
    user: str = ""
    horizon: int = 0
    attempts: int = 0
    version: str = ""
    """Hash of the versions of the tasks that were played."""
    more: dict[str, float] = {}
    """What else a suite shows, by name."""

    def interval(self) -> str:
        """Score and interval for a line."""
        if self.score is None:
            return "not scored"
        if self.low is None or self.high is None:
            return number(self.score)
        return with_limits(Interval(self.score, self.low, self.high, self.tasks, ""))

    def setting(self) -> str:
        """What it was played on, for a line."""
        return (
            f"{self.tasks} tasks x {self.attempts} of {self.data}, user {self.user}, {self.horizon} turns, "
            f"version {self.version}"
        )


def score_rows(
    run_id: str, actors: Sequence[Actor], gyms: Sequence[str], metrics: Sequence[str] = ()
) -> list[ScoreRow]:
    """A row for every actor and gym of an evaluation, and one over all of ``gyms`` where an actor played several.

    actors: of the evaluation that is meant, since a run may hold another checkpoint's too. gyms: those of the recipe's
    evaluation; others, which the checkpoint was trained on, keep a setting of their own. metrics: further ones of a suite.
    """
    with open_warehouse(warehouse_dir(), run=run_id) as warehouse:
        settings = warehouse.query("evaluation_setting", run=run_id).pl().to_dicts()
        scores, rejected = _scores(warehouse, run_id)
        more = _more(warehouse, run_id, metrics)
    rows: list[ScoreRow] = []
    for policy, checkpoint in dict.fromkeys((row["policy"], row["checkpoint"]) for row in settings):
        who = (policy, checkpoint)
        actor = next((actor for actor in actors if _is(actor, *who)), None)
        if actor is None:
            continue
        own = [row for row in settings if (row["policy"], row["checkpoint"]) == who]
        together = [row for row in own if row["gym"] in gyms]
        parts = [(row["gym"], [row]) for row in own] + ([(ALL, together)] if len(together) > 1 else [])
        for gym, said in parts:
            tasks = [attempts for row in said for attempts in scores[(*who, row["gym"])].values()]
            interval = mean_score(tasks) if tasks else None
            rows.append(
                ScoreRow(
                    actor=actor.label,
                    gym=gym,
                    score=interval.estimate if interval else None,
                    low=interval.low if interval and interval.units > 1 else None,
                    high=interval.high if interval and interval.units > 1 else None,
                    tasks=len(tasks),
                    trajectories=sum(map(len, tasks)),
                    rejected=sum(rejected[(*who, row["gym"])] for row in said),
                    data=_joined(row["data"] for row in said),
                    user=_joined(row["user_model"] for row in said),
                    horizon=max(row["horizon"] for row in said),
                    attempts=max(row["attempts"] for row in said),
                    version=said[0]["benchmark_version"]
                    if len(said) == 1
                    else content_hash([row["benchmark_version"] for row in said])[:8],
                    more=more[(*who, gym)],
                )
            )
    return rows


def _is(actor: Actor, policy: str, checkpoint: str | None) -> bool:
    """Whether the log means this actor; a demonstrator is called by its skill there."""
    return checkpoint == actor.id and (policy == actor.label or actor.kind == "demonstrator")


Key = tuple[str, str | None, str]
"""Policy, checkpoint, gym."""


def _scores(warehouse: Warehouse, run_id: str) -> tuple[dict[Key, dict[str, list[float]]], dict[Key, int]]:
    """The scores of every task's admitted attempts, and how many trajectories were rejected."""
    text = """select policy, checkpoint, gym, task_id, list(score order by attempt) filter (admitted),
                     count(*) filter (not admitted)
              from trajectories where run_id = $run and phase = 'evaluate' group by all order by all"""
    scores: dict[Key, dict[str, list[float]]] = defaultdict(dict)
    rejected: dict[Key, int] = defaultdict(int)
    for policy, checkpoint, gym, task, found, lost in warehouse.sql(text, run=run_id).fetchall():
        key = (policy, checkpoint, gym)
        rejected[key] += lost
        if found:
            scores[key][task] = found
    return defaultdict(dict, scores), rejected


def _more(warehouse: Warehouse, run_id: str, metrics: Sequence[str]) -> dict[Key, dict[str, float]]:
    """A suite's further metrics, from the queries of the same names."""
    found: dict[Key, dict[str, float]] = defaultdict(dict)
    for metric in metrics:
        if metric == "score":
            continue
        query = "at_k" if metric in AT_K else metric
        for row in warehouse.query(query, run=run_id).pl().to_dicts():
            name = f"{AT_K[metric]}{row['k']}" if metric in AT_K else metric
            if row[metric] is not None:
                found[(row["policy"], row["checkpoint"], row["gym"] or ALL)][name] = row[metric]
    return found


def paired(before: str, after: str, gyms: Sequence[str]) -> Difference:
    """The second run's scores less the first's, paired over the tasks of ``gyms`` that both played: tasks are the unit.

    Each run is an evaluation of one actor.
    """
    with open_warehouse(warehouse_dir(), run=(before, after)) as warehouse:
        a, b = (
            {
                (key[2], task): found
                for key, tasks in _scores(warehouse, run)[0].items()
                if key[2] in gyms
                for task, found in tasks.items()
            }
            for run in (before, after)
        )
    common = [key for key in a if key in b]
    if not common:
        raise ConfigError(f"Runs {before} and {after} have no scored task in common.")
    return difference([a[key] for key in common], [b[key] for key in common])


AT_K = {"pass_hat_k": "pass^", "pass_at_k": "pass@", "best_at_k": "best@"}
"""Metrics of k attempts, and how they are written."""


def _joined(values: Iterable[str]) -> str:
    """Each once; of many kinds of data what they have in common."""
    found = sorted({part for value in values for part in value.split(", ")})
    return (
        ", ".join(found) if len(found) <= MOST_NAMED else ", ".join(sorted({part.partition(":")[0] for part in found}))
    )


MOST_NAMED = 4
