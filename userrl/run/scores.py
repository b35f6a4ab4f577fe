"""The scores of an evaluation as rows, each with its interval over tasks and its setting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict

from analysis.measure.checkpoints import Difference, difference, mean_score
from analysis.measure.interval import Interval
from userrl.machine.home import warehouse_dir
from userrl.run.job import Actor
from userrl_core.errors import ConfigError
from userrl_core.number_format import number, with_limits
from userrl_core.records import Flag
from userrl_core.seeding import content_hash
from warehouse import Warehouse, open_warehouse

ALL = "all"
"""The row over all gyms, with equal weight for every task."""


class ScoreRow(BaseModel):
    """A score with its setting. low, high: 95 % over tasks, with the attempts of a task kept together; none for a
    single task.

    tier: the category of a gym's tasks, "" for a row over all of them.
    """

    model_config = ConfigDict(frozen=True)

    actor: str
    gym: str
    tier: str = ""
    score: float | None
    low: float | None = None
    high: float | None = None
    tasks: int = 0
    """Number of scored tasks."""
    trajectories: int = 0
    rejected: int = 0
    unreadable: int = 0
    """Scored trajectories with a reply in which no call could be read."""
    data: str = ""
    user: str = ""
    horizon: int = 0
    attempts: int = 0
    version: str = ""
    """Hash of the versions of the played tasks."""
    more: dict[str, float] = {}
    """Other metrics of a suite, by name."""

    def interval(self) -> str:
        """Format score and interval."""
        if self.score is None:
            return "not scored"
        if self.low is None or self.high is None:
            return number(self.score)
        return with_limits(Interval(self.score, self.low, self.high, self.tasks, ""))

    def setting(self) -> str:
        """Format the setting."""
        return (
            f"{self.tasks} tasks x {self.attempts} of {self.data}, user {self.user}, {self.horizon} turns, "
            f"version {self.version}"
        )


def score_rows(
    run_id: str, actors: Sequence[Actor], gyms: Sequence[str], metrics: Sequence[str] = (), categories: bool = False
) -> list[ScoreRow]:
    """Return one row for each actor and gym of an evaluation, and one over all of ``gyms`` if an actor played several.

    actors: the actors of this evaluation, because a run may also hold another checkpoint's. gyms: the gyms of the recipe's
    evaluation; other gyms that the checkpoint was trained on keep their own setting. metrics: other metrics of a suite.
    categories: also add a row for every category of a gym's tasks.
    """
    with open_warehouse(warehouse_dir(), run=run_id) as warehouse:
        settings = warehouse.query("evaluation_setting", run=run_id).pl().to_dicts()
        scores, rejected, unreadable = _scores(warehouse, run_id)
        more = _more(warehouse, run_id, metrics, categories)
    rows: list[ScoreRow] = []
    for policy, checkpoint in dict.fromkeys((row["policy"], row["checkpoint"]) for row in settings):
        policy_key = (policy, checkpoint)
        actor = next((actor for actor in actors if _is(actor, *policy_key)), None)
        if actor is None:
            continue
        policy_settings = [row for row in settings if (row["policy"], row["checkpoint"]) == policy_key]
        together = [row for row in policy_settings if row["gym"] in gyms]
        tiers = {row["gym"]: _tiers(scores, policy_key, row["gym"]) if categories else [] for row in policy_settings}
        parts = [(row["gym"], tier, [row]) for row in policy_settings for tier in ("", *tiers[row["gym"]])]
        parts += [(ALL, "", together)] if len(together) > 1 else []
        for gym, tier, part_settings in parts:
            tasks = [attempts for row in part_settings for attempts in scores[(*policy_key, row["gym"], tier)].values()]
            interval = mean_score(tasks) if tasks else None
            rows.append(
                ScoreRow(
                    actor=actor.label,
                    gym=gym,
                    tier=tier,
                    score=interval.estimate if interval else None,
                    low=interval.low if interval and interval.units > 1 else None,
                    high=interval.high if interval and interval.units > 1 else None,
                    tasks=len(tasks),
                    trajectories=sum(map(len, tasks)),
                    rejected=sum(rejected[(*policy_key, row["gym"], tier)] for row in part_settings),
                    unreadable=sum(unreadable[(*policy_key, row["gym"], tier)] for row in part_settings),
                    data=_joined(row["data"] for row in part_settings),
                    user=_joined(row["user_model"] for row in part_settings),
                    horizon=max(row["horizon"] for row in part_settings),
                    attempts=max(row["attempts"] for row in part_settings),
                    version=part_settings[0]["benchmark_version"]
                    if len(part_settings) == 1
                    else content_hash([row["benchmark_version"] for row in part_settings])[:8],
                    more=more[(*policy_key, gym, tier)],
                )
            )
    return rows


def _is(actor: Actor, policy: str, checkpoint: str | None) -> bool:
    """Return whether a logged policy is this actor. The log names a demonstrator by its skill."""
    return checkpoint == actor.id and (policy == actor.label or actor.kind == "demonstrator")


Key = tuple[str, str | None, str, str]
"""Policy, checkpoint, gym, and the tier of its tasks, "" for all tiers."""


def _tiers(scores: Iterable[Key], policy_key: tuple[str, str | None], gym: str) -> list[str]:
    """Return the categories of a gym's tasks, if there are several."""
    categories = sorted(tier for *policy, of_gym, tier in scores if (*policy, of_gym) == (*policy_key, gym) and tier)
    return categories if len(categories) > 1 else []


def _scores(
    warehouse: Warehouse, run_id: str
) -> tuple[dict[Key, dict[str, list[float]]], dict[Key, int], dict[Key, int]]:
    """Return the scores of every task's admitted attempts, the number of rejected trajectories, and of the admitted ones with
    an unreadable call.
    """
    text = """select policy, checkpoint, gym, tier, task_id, list(score order by attempt) filter (admitted),
                     count(*) filter (not admitted), count(*) filter (admitted and flags & $unread > 0)
              from trajectories where run_id = $run and phase = 'evaluate' group by all order by all"""
    scores: dict[Key, dict[str, list[float]]] = defaultdict(dict)
    rejected: dict[Key, int] = defaultdict(int)
    unreadable: dict[Key, int] = defaultdict(int)
    rows = warehouse.sql(text, run=run_id, unread=int(Flag.FORMAT_ERROR)).fetchall()
    for policy, checkpoint, gym, tier, task, attempt_scores, lost, unread in rows:
        for part in {"", tier}:
            key = (policy, checkpoint, gym, part)
            rejected[key] += lost
            unreadable[key] += unread
            if attempt_scores:
                scores[key][task] = attempt_scores
    return defaultdict(dict, scores), rejected, unreadable


def _more(warehouse: Warehouse, run_id: str, metrics: Sequence[str], categories: bool) -> dict[Key, dict[str, float]]:
    """Return a suite's other metrics, each from its query."""
    metrics_by_key: dict[Key, dict[str, float]] = defaultdict(dict)
    for metric in metrics:
        if metric == "score":
            continue
        rows = warehouse.query(_QUERY.get(metric, metric), run=run_id).pl().to_dicts()
        if categories and metric in AT_K:
            rows += warehouse.query("at_k", run=run_id, by_tier=True).pl().to_dicts()
        for row in rows:
            name = f"{AT_K[metric]}{row['k']}" if metric in AT_K else metric
            if row[metric] is not None:
                metrics_by_key[(row["policy"], row["checkpoint"], row["gym"] or ALL, row.get("tier") or "")][name] = (
                    row[metric]
                )
    return metrics_by_key


def paired(before: str, after: str, gyms: Sequence[str]) -> Difference:
    """Return the second run's scores − the first's, paired over the tasks of ``gyms`` that both played. Tasks are the unit.

    Each run is an evaluation of one actor.
    """
    with open_warehouse(warehouse_dir(), run=(before, after)) as warehouse:
        a, b = (
            {
                (key[2], task): attempt_scores
                for key, tasks in _scores(warehouse, run)[0].items()
                if key[2] in gyms and not key[3]
                for task, attempt_scores in tasks.items()
            }
            for run in (before, after)
        )
    common = [key for key in a if key in b]
    if not common:
        raise ConfigError("compare.no_evaluation", f"Runs {before} and {after} have no scored task in common.")
    return difference([a[key] for key in common], [b[key] for key in common])


AT_K = {"pass_hat_k": "pass^", "pass_at_k": "pass@", "earned_at_k": "earned@", "best_at_k": "best@"}
"""Metrics of k attempts, and their notation."""

_QUERY = {**dict.fromkeys(AT_K, "at_k"), **dict.fromkeys(("avg_number_of_1", "avg_number_of_08"), "reward_counts")}
"""Queries of metrics whose query has another name."""


def _joined(values: Iterable[str]) -> str:
    """Join distinct values. Many kinds of data are shortened to their common part."""
    parts = sorted({part for value in values for part in value.split(", ")})
    return (
        ", ".join(parts) if len(parts) <= MAX_NAMED else ", ".join(sorted({part.partition(":")[0] for part in parts}))
    )


MAX_NAMED = 4
