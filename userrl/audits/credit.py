"""The agreement of each credit rule with the true advantage of turns under a frozen policy.

The result is stored in the warehouse as a separate run: a metric per rule and measure, and an event with the settings.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, get_args

from analysis.credit.agreement import RANKED_FROM, Measures
from analysis.credit.audit import GOALS, Audit, audit, ranked
from analysis.credit.rules import Aggregation
from analysis.credit.told_apart import TASKS_FROM, BestRule, told_apart
from analysis.measure.interval import Interval
from userrl.evaluation.frozen import Frozen, frozen, setting_of
from userrl.machine.foreign_text import plain
from userrl.machine.home import quiet_process, warehouse_dir
from userrl.machine.notebook import Printed, Tabular
from userrl.run.progress import ProgressLine
from userrl.run.run import run_fields
from userrl.run.tasks import sample, tasks_of
from userrl_core.errors import ConfigError
from userrl_core.number_format import NULL, number, with_limits
from userrl_core.seeding import content_hash, derive_seed
from warehouse import TurnLog


@dataclass(frozen=True, slots=True)
class CreditAudit(Printed, Tabular):
    """The audit of one checkpoint. run: the run that stores it. settings: gym, horizon, sizes, seed and seconds."""

    checkpoint: str
    label: str
    run: str
    settings: dict[str, Any]
    audit: Audit

    def as_json(self) -> dict[str, Any]:
        """Return every number of the audit as JSON."""
        return {
            "checkpoint": self.checkpoint,
            "stored_as": self.run,
            **self.settings,
            "trajectories": self.audit.trajectories,
            "turns": self.audit.turns,
            "continuations": self.audit.continuations,
            "identity": self.audit.identity,
            "reliability": {
                goal: value if math.isfinite(value) else None for goal, value in self.audit.reliability.items()
            },
            "refused": self.audit.refused,
            "worth": {goal: _by_kind(kinds) for goal, kinds in self.audit.kinds.items()},
            "rules": {
                goal: {row.rule.name: _numbers(row) for row in rows} for goal, rows in self.audit.measures.items()
            },
            "told_apart": {
                goal: {loss: _comparison(self.told_apart(goal, loss)) for loss in get_args(Aggregation)}
                for goal in self.audit.measures
            },
        }

    def told_apart(self, goal: str = "sum", loss: str = "trajectory_mean") -> BestRule | None:
        """Return the rules that differ from the one of the highest cosine, and those that cannot be told apart from it.

        Returns None if the utilities are too noisy or the tasks too few for a comparison.
        """
        check_table(goal, loss)
        if not self.audit.reliability[goal] >= RANKED_FROM:
            return None
        return told_apart([row for row in self.audit.measures[goal] if row.rule.aggregation == loss])

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return the measures, one row per goal and rule. An undefined measure is null."""
        return [
            {"checkpoint": self.checkpoint, "goal": goal, "rule": row.rule.name, **_numbers(row)}
            for goal, measures in self.audit.measures.items()
            for row in measures
        ]

    def table(self, goal: str = "sum", loss: str = "trajectory_mean") -> str:
        """Return the rules of one goal and loss aggregation as text. Raises ConfigError for an unknown goal or loss."""
        check_table(goal, loss)
        return "\n".join(_lines(self, goal, loss))

    def __str__(self) -> str:
        return self.table()


def check_table(goal: str, loss: str) -> None:
    """Raise ConfigError for a goal or loss aggregation that an audit does not have."""
    if goal not in GOALS:
        raise ConfigError("argument.unknown_value", f"--goal must be one of {', '.join(GOALS)}, not '{goal}'.")
    if loss not in get_args(Aggregation):
        raise ConfigError(
            "argument.unknown_value", f"--loss must be {' or '.join(get_args(Aggregation))}, not '{loss}'."
        )


def audit_credit(
    who: str,
    *,
    gym: str | None = None,
    groups: int = 40,
    group: int = 8,
    k: int = 8,
    horizon: int | None = None,
    seed: int = 0,
    progress: bool = True,
) -> CreditAudit:
    """Compare every credit rule with the true advantage of turns, estimated from continuations of real conversations.

    who: a run, or a checkpoint's folder in one. gym: by default its only training gym. groups: number of training tasks, each
    with a group of trajectories. k: continuations of each prefix in each half; more groups reduce the error more than more
    continuations. horizon: maximum number of agent turns, by default the recipe's last horizon.

    The result is stored in the warehouse as a separate run. Raises ConfigError or CheckpointError with one sentence.
    """
    quiet_process()
    checkpoint = frozen(who)
    where, turns = _gym(checkpoint, gym), horizon or checkpoint.horizon
    began, cpu = time.perf_counter(), time.process_time()
    audited = asyncio.run(_audit(checkpoint, where, turns, groups, group, k, seed, _shown() if progress else None))
    spent = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
    settings = {"gym": where, "horizon": turns, "groups": groups, "group": group, "k": k, "seed": seed, **spent}
    return CreditAudit(checkpoint.id, checkpoint.label, _store(checkpoint, audited, settings), settings, audited)


def _shown() -> Callable[[int, int], None]:
    """Return a function that shows the number of finished prefixes on a progress line, with the time that is left."""
    line, began = ProgressLine(at_once=True), time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal began
        if not done:
            began = time.monotonic()
        left = {"left_seconds": (time.monotonic() - began) / done * (total - done)} if done else {}
        line("continued prefixes", {"step": done, "total": total, **left})

    return show


def _gym(frozen: Frozen, gym: str | None) -> str:
    trained = tuple(frozen.recipe.training_gyms)
    if gym is None and len(trained) != 1:
        raise ConfigError(
            "argument.missing", f"{frozen.run} was trained on {', '.join(trained)}. Choose one with --gym."
        )
    return gym or trained[0]


async def _audit(
    frozen: Frozen,
    gym: str,
    horizon: int,
    groups: int,
    n: int,
    k: int,
    seed: int,
    progress: Callable[[int, int], None] | None,
) -> Audit:
    credit = frozen.recipe.credit
    tasks = sample(tasks_of(frozen.recipe, gym, "train"), groups, "audit", seed)
    return await audit(
        tasks,
        frozen.policy(derive_seed("audit", seed)),
        setting_of(frozen.recipe, (gym,), "train"),
        horizon=horizon,
        n=n,
        k=k,
        gamma=credit.gamma,
        curvature=credit.k,
        seed=derive_seed("audit", seed),
        progress=progress,
    )


def _store(frozen: Frozen, audit_result: Audit, settings: dict[str, Any]) -> str:
    stable_settings = {key: value for key, value in settings.items() if not key.endswith("seconds")}
    label = f"audit-credit-{content_hash([frozen.id, stable_settings])[:10]}"
    run_id = f"{frozen.run}-{label}"
    fields = run_fields(frozen.recipe, seed=frozen.seed, backend="local", parent=frozen.run)
    numbers = {f"audit/{goal}/reliability": value for goal, value in audit_result.reliability.items()}
    for goal, rows in audit_result.measures.items():
        for row in rows:
            rule = row.rule.name.replace("/", ".").replace(" ", ".")
            numbers |= {f"audit/{goal}.{rule}/{key}": value for key, value in _numbers(row).items()}
        numbers |= {f"audit/{goal}.worth/{key}": value for key, value in _by_kind(audit_result.kinds[goal]).items()}
    with TurnLog.open(warehouse_dir(), run_id, run_fields={**fields, "name": label}) as log:
        log.event("rewind", stage="audit")  # a repeated command replaces its earlier result
        log.event("credit_audit", stage="audit", checkpoint=frozen.id, identity=audit_result.identity, **settings)
        log.metrics(numbers, stage="audit", step=0)
    return run_id


def _numbers(row: Measures) -> dict[str, float]:
    """Return one number per measure and limit. Undefined ones are left out."""
    numbers = {"silent": row.silent, "gap": row.gap, "true_gap": row.true_gap, "mean": row.mean, "rms": row.rms}
    numbers |= {"corrected": row.corrected, "median": row.median}
    numbers |= {"reliability": row.reliability, "significant": float(row.significant)}
    numbers |= {"push": row.push.group, "push_turn": row.push.turn, "silent_below": row.push.silent}
    for name in ("cosine", "within", "between", "wrong"):
        numbers |= _with_limits(name, getattr(row, name))
    return {key: value for key, value in numbers.items() if math.isfinite(value)} | _by_kind(row.kinds)


def _by_kind(kinds: dict[str, Interval]) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for kind, interval in kinds.items():
        numbers |= _with_limits(f"kind_{kind.replace(' ', '_')}", interval)
    return {key: value for key, value in numbers.items() if math.isfinite(value)}


def _comparison(comparison: BestRule | None) -> dict[str, Any] | None:
    if comparison is None:
        return None
    lower, open_ = (
        {name: _with_limits("difference", interval) for name, interval in rows}
        for rows in (comparison.lower, comparison.open)
    )
    return {
        "best": comparison.best,
        "lower": lower,
        "open": open_,
        "pairs": comparison.pairs,
        "differ": comparison.differ,
    }


def _with_limits(name: str, interval: Interval) -> dict[str, float]:
    return {name: interval.estimate, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _lines(report: CreditAudit, goal: str, loss: str) -> Iterator[str]:
    result, settings = report.audit, report.settings
    yield (
        f"{plain(report.label)}, checkpoint {plain(report.checkpoint)}, at {settings['gym']}, horizon {settings['horizon']}: "
        f"{result.tasks} tasks x {settings['group']}, "
        f"{result.turns} turns, {result.continuations} continuations, {settings['cpu_seconds']:.0f} CPU seconds; "
        f"the sum identity holds within {result.identity:.0e}"
    )
    reliabilities = ", ".join(f"{name} {number(value, 2)}" for name, value in result.reliability.items())
    yield f"split-half reliability of true advantages, with {settings['k']} continuations: {reliabilities}"
    rows = ranked(result, goal, loss)
    if not result.reliability[goal] >= RANKED_FROM:
        yield (f"  too low to rank rules ({RANKED_FROM} is needed), so rules are not ordered; use more --groups or --k")
        rows = [row for row in result.measures[goal] if row.rule.aggregation == loss]
    yield (
        f"{goal}, {loss}".ljust(26)
        + "cosine [95 %]          reliab.  corrected  median  "
        + "within  between  wrong no-grad  on-stop (true)    mean    rms  bias (turn)"
    )
    for row in rows:
        estimates = (row.reliability, row.within.estimate, row.between.estimate, row.wrong.estimate, row.silent)
        reliability, within, between, wrong, silent = (number(value, 2) for value in estimates)
        gap, true_gap, push, push_turn = (
            number(value, 2) for value in (row.gap, row.true_gap, row.push.group, row.push.turn)
        )
        yield (
            f"{row.rule.name.rpartition(' ')[0]:26}{with_limits(row.cosine, 2):22}{reliability:>8}"
            f"{number(row.corrected, 2):>11}{number(row.median, 2):>8}{within:>8}{between:>9}"
            f"{wrong:>7}{silent:>8}{gap:>9} ({true_gap}){number(row.mean):>9}{number(row.rms):>7}{push:>6} ({push_turn})"
        )
    kinds = result.kinds[goal]
    if len(kinds) > 1:
        titles = "".join(f"{kind:>22}" for kind in kinds)
        yield (
            f"RMS by kind of turn{titles}\n{'true advantage':26}{''.join(f'{with_limits(kinds[kind], 2):>22}' for kind in kinds)}"
        )
        for row in rows:
            cells = "".join(f"{with_limits(row.kinds[kind], 2):>22}" for kind in kinds)
            yield f"{row.rule.name.rpartition(' ')[0]:26}{cells}"
    for name, why in result.refused.items():
        if name.endswith(loss):
            yield f"{name.rpartition(' ')[0]}: not possible here ({plain(why)})"
    significant = max((row.significant for row in rows), default=0)
    yield (
        f"wrong, no-grad: shares of the {significant} turns whose true advantage exceeds two standard errors; intervals over tasks"
    )
    yield from _sentences(report, goal, loss)
    yield f"all values: userrl sql \"select name, value from metrics where run_id = '{report.run}'\""


def _sentences(report: CreditAudit, goal: str, loss: str) -> Iterator[str]:
    """Say which rules differ from the one of the highest cosine, and from which it cannot be told apart."""
    comparison = report.told_apart(goal, loss)
    if comparison is None:
        yield (
            f"No rule can be told apart from another: that takes {TASKS_FROM} tasks, a reliability of {RANKED_FROM} and two "
            "rules with a cosine. Use more --groups or --k."
        )
        return
    best = comparison.best.rpartition(" ")[0]
    yield (
        f"{best} has the highest cosine. {_count(comparison.lower, 'rule is', 'rules are')} lower: {_rule_list(comparison.lower)}. "
        f"{_count(comparison.open, 'rule', 'rules')} cannot be told apart from it: {_rule_list(comparison.open)}."
    )
    yield (
        f"Of all {comparison.pairs} pairs of rules {comparison.differ} differ. Two rules differ if the limits of their cosines' "
        "difference exclude 0 with and without the correction for noise. The limits hold jointly for all pairs "
        "(95 %, tasks resampled)."
    )


def _count(rows: tuple[tuple[str, Interval], ...], singular: str, plural: str) -> str:
    return f"{len(rows) or 'No'} {singular if len(rows) == 1 else plural}"


def _rule_list(rows: tuple[tuple[str, Interval], ...]) -> str:
    """Return the rules with the difference to the best one."""
    differences = (f"{name.rpartition(' ')[0]} by {with_limits(interval, 2)}" for name, interval in rows)
    return ", ".join(differences) or NULL
