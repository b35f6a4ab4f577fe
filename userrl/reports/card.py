"""The result card of a run: what a reader asks first, from its report and the warehouse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from analysis.measure.checkpoints import difference_interval, mean_score
from analysis.measure.interval import Interval
from userrl.reports.run_report import (
    CardAlarm,
    CardCost,
    CardDifference,
    CardOutcome,
    CardRow,
    CardTiers,
    Reached,
    ResultCard,
    RunReport,
)
from userrl.run.alarms import RULES, remedy
from userrl.run.ending import STARTS, ByTask, endings, last_step
from userrl_core.records import branch_of
from warehouse import Warehouse

TIER_TASKS = 10
"""The smallest tier of which the card gives a difference."""

NAMES = {"SFT": "SFT, the cold start", "start": "start"}
"""Names of the policies that RL starts from."""


def with_card(report: RunReport, warehouse: Warehouse) -> RunReport:
    """Return the report with its card. For a report of an earlier version, the card is made from the warehouse."""
    if report.card is not None:
        return report
    return report.model_copy(update={"card": make_card(report, warehouse, [*_earlier_alarms(report, warehouse)])})


def make_card(report: RunReport, warehouse: Warehouse, alarms: Sequence[CardAlarm] = ()) -> ResultCard:
    """Make the card of a run from its report, the warehouse and the alarms of its training."""
    scores = _scores(warehouse, report.run)
    reached: dict[str, tuple[Reached, Reached]] = dict(report.branches)
    if report.best is not None and report.last is not None:
        reached["RL"] = (report.best, report.last)
    start = next((name for name in STARTS if name in scores), "")
    final = {label: scores.get(last_step(label)) or scores.get(label, {}) for label in reached}
    return ResultCard(
        start=start,
        test_tasks=report.test_tasks,
        horizon=report.horizon,
        rows=tuple(_rows(report, warehouse, scores, reached, start)),
        outcomes=tuple(
            CardOutcome(branch=ending.branch, outcome=ending.word, sentence=ending.sentence())
            for ending in sorted(endings(warehouse, report.run).get(report.run, []), key=lambda end: end.branch)
        ),
        between=tuple(
            CardDifference(a=a, b=b, difference=difference, best=_best(scores, a, b))
            for a, b in combinations(report.branches, 2)
            if (difference := _difference(final[a], final[b])) is not None
        ),
        tiers=tuple(_by_tier(_tiers(warehouse, report.run), scores.get(start, {}), final)),
        alarms=tuple(alarms),
        cost=_cost(report, warehouse),
    )


def _best(scores: Mapping[str, ByTask], a: str, b: str) -> Interval | None:
    if not any(last_step(label) in scores for label in (a, b)):
        return None
    return _difference(scores.get(a, {}), scores.get(b, {}))


def _rows(
    report: RunReport,
    warehouse: Warehouse,
    scores: Mapping[str, ByTask],
    reached: Mapping[str, tuple[Reached, Reached]],
    start: str,
) -> Iterator[CardRow]:
    baseline = scores.get(start, {})

    def row(name: str, policy: str, step: int | None = None, validation: float | None = None) -> CardRow:
        gain = None if policy in (*STARTS, "demonstrator") else _difference(baseline, scores.get(policy, {}))
        return CardRow(policy=name, step=step, validation=validation, score=_score(scores.get(policy, {})), gain=gain)

    yielded = set()
    for policy in scores:
        if policy.startswith("scripted"):
            yield row("demonstrator", policy)
            yielded.add(policy)
    at_start = _start_validation(warehouse, report.run)
    for name in STARTS[::-1]:
        if name in scores:
            trained = bool(reached) and name == start
            yield row(NAMES[name], name, 0 if trained else None, at_start if trained else None)
            yielded.add(name)
    for label, (best, last) in reached.items():
        if best.step == last.step:
            yield row(f"{label}, best and last", label, best.step, best.validation)
        else:
            yield row(f"{label}, best", label, best.step, best.validation)
            yield row(f"{label}, last", last_step(label), last.step, last.validation)
        yielded |= {label, last_step(label)}
    for policy in scores:
        if policy not in yielded:
            yield row(policy, policy)


def _scores(warehouse: Warehouse, run: str) -> dict[str, dict[str, Sequence[float]]]:
    """Return the held-out scores by policy and task."""
    text = "SELECT policy, concat_ws('/', gym, task_id, task_version), scores FROM task_scores(run := $run)"
    scores: dict[str, dict[str, Sequence[float]]] = {}
    for policy, task, attempts in warehouse.sql(text, run=run).fetchall():
        scores.setdefault(policy, {})[task] = attempts
    return scores


def _tiers(warehouse: Warehouse, run: str) -> dict[str, list[str]]:
    """Return the held-out tasks of each tier. Tiers of fewer than `TIER_TASKS` tasks are left out."""
    text = """SELECT gym || ' ' || tier, list(DISTINCT concat_ws('/', gym, task_id, task_version)) FROM task_scores(run := $run)
              WHERE tier <> '' GROUP BY ALL ORDER BY ALL"""
    return {tier: tasks for tier, tasks in warehouse.sql(text, run=run).fetchall() if len(tasks) >= TIER_TASKS}


def _by_tier(tiers: Mapping[str, Sequence[str]], start: ByTask, final: Mapping[str, ByTask]) -> Iterator[CardTiers]:
    for label, scores in final.items():
        changes: dict[str, Interval] = {}
        for tier, tasks in tiers.items():
            played = start.keys() & scores.keys() & set(tasks)
            change = _difference({task: start[task] for task in played}, {task: scores[task] for task in played})
            if change is not None:
                changes[tier] = change
        if len(changes) > 1:
            best, worst = (choose(changes, key=lambda tier: changes[tier].estimate) for choose in (max, min))
            yield CardTiers(
                policy=label, tiers=len(changes), best=best, gained=changes[best], worst=worst, lost=changes[worst]
            )


def _score(scores: ByTask) -> Interval | None:
    return mean_score([scores[task] for task in sorted(scores)]) if scores else None


def _difference(a: ByTask, b: ByTask) -> Interval | None:
    tasks = sorted(a.keys() & b.keys())
    return difference_interval([a[task] for task in tasks], [b[task] for task in tasks]) if tasks else None


def _start_validation(warehouse: Warehouse, run: str) -> float | None:
    text = "SELECT avg(score) FROM trajectories WHERE run_id = $run AND phase = 'validate' AND admitted AND step = 0"
    value: float | None = warehouse.sql(text, run=run).fetchall()[0][0]
    return value


def _cost(report: RunReport, warehouse: Warehouse) -> CardCost:
    tokens = """SELECT coalesce(sum(completion_tokens), 0) FROM trajectories_all
                WHERE run_id = $run AND phase IN ('train', 'baseline')"""
    calls = "SELECT sum(dollars), sum(unpriced_calls) FROM cost(run := $run)"
    dollars, unpriced = warehouse.sql(calls, run=report.run).fetchall()[0]
    return CardCost(
        seconds=sum(report.seconds.values()),
        cpu_seconds=sum(report.cpu_seconds.values()),
        tokens=int(warehouse.sql(tokens, run=report.run).fetchall()[0][0]),
        dollars=dollars,
        unpriced_calls=int(unpriced or 0),
    )


def _earlier_alarms(report: RunReport, warehouse: Warehouse) -> Iterator[CardAlarm]:
    """Yield the alarms of a report that an earlier version wrote as sentences, whose wording differs between versions."""
    logged = branches_of_alarms(warehouse, report.run)
    for sentence in report.alarms:
        name = next((name for name in RULES if sentence.startswith(f"Alarm {name} at step ")), "")
        branches = [
            branch
            for (alarm, step), branch in logged.items()
            if alarm == name and sentence.startswith(f"Alarm {name} at step {step}:")
        ]
        branches += [branch for branch in report.branches if f" of {branch}:" in sentence]
        yield CardAlarm(sentence=sentence, branch=branches[0] if branches else "", remedy=remedy(name))


def branches_of_alarms(warehouse: Warehouse, run: str) -> dict[tuple[str, int], str]:
    """Return the branch of each logged alarm, by its name and step."""
    text = "SELECT fields->>'alarm' AS alarm, step, stage FROM events WHERE kind = 'alarm' AND run_id = $run"
    return {(row["alarm"], row["step"]): branch_of(row["stage"] or "") for row in warehouse.rows(text, run=run)}
