"""The data of a comparison: task scores (which `analysis.measure.comparison` compares), curves, costs and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from analysis.measure.comparison import WHICH, ComparedSide, Comparison, compared
from analysis.measure.interval import Interval, finite
from userrl.machine.home import runs_dir
from userrl.reports.curves import RunCurve, side_curves
from userrl.run.fingerprint import differing
from userrl_core.json_files import read_json
from userrl_core.records import leads_to
from warehouse import Warehouse
from warehouse.query.unscored import unscored


@dataclass(frozen=True, slots=True)
class TrainingCost:
    """The cost of training one run, as a mean over a side's runs. A branch counts with the stages before the split.

    steps: the last training step. cpu_seconds: all stages, None if a run's report is gone. dollars: by role, of RL's calls whose
    price is known.
    """

    side: str
    steps: float
    trajectories: float
    tokens_sampled: float
    tokens_read: float
    cpu_seconds: float | None
    dollars: Mapping[str, float]
    unpriced_calls: int


@dataclass(frozen=True, slots=True)
class ComparisonReport:
    """A comparison with its data, as shown on a page and by ``--json``. settings: evaluation settings of each side, by gym.
    unscored: conversations of each side without a score, by reason. protocols: rows of all sides' protocols, by gym.
    """

    sides: tuple[ComparedSide, ...]
    comparison: Comparison
    costs: tuple[TrainingCost, ...]
    curves: tuple[RunCurve, ...]
    settings: pl.DataFrame
    unscored: Mapping[str, Mapping[str, int]]
    protocols: Mapping[str, Sequence[Mapping[str, Any]]]


def comparison_report(warehouse: Warehouse, sides: Sequence[ComparedSide]) -> ComparisonReport:
    """Compare every other side with the first one. Published rows take no part. `withheld_gyms` are not subtracted."""
    played, protocols = _settings(warehouse, sides), _protocols(warehouse, sides)
    return ComparisonReport(
        tuple(sides),
        compared(task_scores(warehouse, sides), sides, _withheld(played, protocols)),
        tuple(_cost(warehouse, side) for side in sides),
        tuple(curve for side in sides for curve in side_curves(warehouse, side)),
        played,
        {
            side.name: unscored(warehouse, {(run.run_id, name) for run in side.runs for name in (run.best, run.last)})
            for side in sides
        },
        protocols,
    )


OF_TASKS = ("data", "task versions")
COVERED = ("tasks", "task_versions", "user_model", "horizon", "attempts")
"""Settings that the table of evaluation settings shows already."""


def _protocols(warehouse: Warehouse, sides: Sequence[ComparedSide]) -> dict[str, list[dict[str, Any]]]:
    by_gym: dict[str, list[dict[str, Any]]] = {}
    policies = {(run.run_id, run.best) for side in sides for run in side.runs}
    runs = sorted({run for run, _ in policies})
    for row in warehouse.rows("FROM evaluation_protocols() WHERE run_id IN (SELECT unnest($runs))", runs=runs):
        if (row["run_id"], row["policy"]) in policies:
            by_gym.setdefault(row["gym"], []).append(row)
    return by_gym


def side_policies(sides: Sequence[ComparedSide]) -> pl.DataFrame:
    """Return one row per side, checkpoint (best, last) and run: side, which, run_id, seed and the evaluated policy."""
    return pl.DataFrame(
        [
            {"side": side.name, "which": which, "run_id": run.run_id, "seed": run.seed, "policy": policy}
            for side in sides
            for run in side.runs
            for which, policy in zip(WHICH, (run.best, run.last), strict=True)
        ]
    )


def task_scores(warehouse: Warehouse, sides: Sequence[ComparedSide]) -> pl.DataFrame:
    """Return the table that `analysis.measure.comparison` describes, one row per side, checkpoint, run and task.

    If no task was played by every side, all of them count as shared.
    """
    policies = side_policies(sides)
    runs = policies["run_id"].unique().to_list()
    played = warehouse.sql("FROM task_scores() WHERE run_id IN (SELECT unnest($runs))", runs=runs).pl()
    table = policies.join(played, on=["run_id", "policy"]).with_columns(
        task=pl.concat_str("gym", "task_id", "task_version", separator="/"),
        tier=pl.concat_str("gym", "tier", separator=" "),
    )
    everybody = pl.col("side").n_unique().over("task") == table["side"].n_unique()
    return table.with_columns(shared=everybody | ~everybody.any())


def _cost(warehouse: Warehouse, side: ComparedSide) -> TrainingCost:
    runs, branches = [run.run_id for run in side.runs], {run.run_id: run.branch or "" for run in side.runs}
    text = """SELECT run_id, stage, count(*), coalesce(sum(completion_tokens), 0), coalesce(sum(prompt_tokens), 0), max(step)
              FROM trajectories_all WHERE phase IN ('train', 'baseline') AND run_id IN (SELECT unnest($runs)) GROUP BY ALL"""
    played = [row for row in warehouse.sql(text, runs=runs).fetchall() if _along(row[1], branches[row[0]])]
    text = """SELECT run_id, stage, role, coalesce(sum(price), 0), count(*) FILTER (price IS NULL) FROM model_calls_all
              WHERE phase IN ('train', 'baseline') AND run_id IN (SELECT unnest($runs)) GROUP BY ALL ORDER BY role"""
    calls = [row for row in warehouse.sql(text, runs=runs).fetchall() if _along(row[1], branches[row[0]])]
    trajectories, sampled, read = (sum(float(row[column]) for row in played) / len(runs) for column in (2, 3, 4))
    last_steps = {run: max((row[5] or 0 for row in played if row[0] == run), default=0) for run in runs}
    dollars: dict[str, float] = {}
    for _, _, role, spent, _ in calls:
        dollars[role] = dollars.get(role, 0.0) + float(spent) / len(runs)
    steps, unpriced = sum(last_steps.values()) / len(runs), sum(row[4] for row in calls)
    seconds = mean_cpu_seconds(runs, branches)
    return TrainingCost(side.name, steps, trajectories, sampled, read, seconds, dollars, unpriced)


def _along(stage: str | None, branch: str) -> bool:
    """Return whether a stage belongs to the branch or comes before the split. Everything belongs to a run without branches."""
    return not branch or leads_to(stage or "", branch)


def mean_cpu_seconds(runs: Sequence[str], branches: Mapping[str, str] | None = None) -> float | None:
    """Return the mean CPU-seconds per run over all stages, or None if a run's report is gone.

    branches: by run, the branch whose stages count, with those before the split.
    """
    reports = {run: read_json(runs_dir() / run / "report.json") or {} for run in runs}
    seconds = [
        sum(spent for stage, spent in report["cpu_seconds"].items() if _along(stage, (branches or {}).get(run, "")))
        for run, report in reports.items()
        if report.get("cpu_seconds")
    ]
    return sum(seconds) / len(seconds) if len(seconds) == len(runs) else None


def _settings(warehouse: Warehouse, sides: Sequence[ComparedSide]) -> pl.DataFrame:
    """Return one row per side, gym and evaluation setting. Several settings of one gym are a warning to the reader."""
    policies = side_policies(sides).filter(which="best").select("side", "run_id", "policy")
    runs = policies["run_id"].unique().to_list()
    settings = warehouse.sql("FROM evaluation_setting() WHERE run_id IN (SELECT unnest($runs))", runs=runs).pl()
    setting_columns = [
        "gym",
        "data",
        "split",
        "user_model",
        "horizon",
        "attempts",
        "tasks",
        "benchmark_version",
        "profile",
    ]
    return (
        policies.join(settings, on=["run_id", "policy"], maintain_order="left")
        .group_by("side", *setting_columns, maintain_order=True)
        .agg(runs=pl.len())
    )


def different_settings(report: ComparisonReport) -> dict[str, tuple[str, ...]]:
    """Return the settings that differ between sides, by gym: data, user, horizon, task versions, and those of the protocols.

    A setting that a side did not record is not counted, nor the sampling that a scripted agent does not have.
    """
    return _different(report.settings, report.protocols)


def withheld_gyms(report: ComparisonReport) -> dict[str, tuple[str, ...]]:
    """Return the gyms with a setting that is known to differ, so that their scores may not be subtracted, and the settings.

    Tasks and their number do not count: only tasks that both sides played are paired. Attempts do not: a task's mean counts.
    """
    return _withheld(report.settings, report.protocols)


def settings_by_gym(gyms: Mapping[str, Sequence[str]]) -> str:
    """Return gyms with their settings as a part of a sentence."""
    return "; ".join(f"{gym}: {', '.join(names)}" for gym, names in gyms.items())


_Protocols = Mapping[str, Sequence[Mapping[str, Any]]]


def _different(played: pl.DataFrame, protocols: _Protocols) -> dict[str, tuple[str, ...]]:
    names = {"data": "data", "user_model": "user", "horizon": "horizon", "benchmark_version": "task versions"}
    counts = played.group_by("gym").agg(pl.col(*names).drop_nulls().n_unique())
    by_gym = {row["gym"]: [names[key] for key in names if row[key] > 1] for row in counts.iter_rows(named=True)}
    for gym, rows in protocols.items():
        for setting in differing(rows):
            if setting not in COVERED:
                by_gym.setdefault(gym, []).append(setting.replace("_", " "))
    return {gym: tuple(different) for gym, different in sorted(by_gym.items()) if different}


def _withheld(played: pl.DataFrame, protocols: _Protocols) -> dict[str, tuple[str, ...]]:
    by_gym = {
        gym: tuple(name for name in names if name not in OF_TASKS)
        for gym, names in _different(played, protocols).items()
    }
    return {gym: names for gym, names in by_gym.items() if names}


def as_json(report: ComparisonReport, sentences: Sequence[str]) -> dict[str, Any]:
    """Return everything but the curves' points, for programs. Infinite limits are null."""
    comparison = report.comparison
    return {
        "question": comparison.question,
        "sides": {side.name: [run.run_id for run in side.runs] for side in report.sides},
        "collapsed": [
            {
                "side": item.side,
                "seeds": {seed: {"best": best, "last": last} for seed, (best, last) in item.seeds.items()},
                **_numbers(item.share),
                "p": finite(item.p),
            }
            for item in comparison.collapses
        ],
        "scores": [
            {"side": item.side, "checkpoint": item.which, "on": item.row, **_numbers(item.interval)}
            for item in comparison.scores
        ],
        "differences": [
            {
                "a": item.a,
                "b": item.b,
                "checkpoint": item.which,
                "on": item.row,
                **_numbers(item.interval),
                "p": finite(item.p),
                "p_signs": finite(item.signs),
                "left_out": item.left_out,
            }
            for item in comparison.paired
        ],
        "agreement": [
            {
                "side": item.side,
                "attempts": item.attempts,
                "flip_rate": item.consistency.flips,
                "icc": item.consistency.icc,
                "design_effect": item.consistency.design_effect,
            }
            for item in comparison.agreement
        ],
        "withheld": {gym: list(names) for gym, names in withheld_gyms(report).items()},
        "unscored": {name: dict(reasons) for name, reasons in report.unscored.items()},
        "sentences": list(sentences),
        "spent": [
            {
                "side": item.side,
                "steps": item.steps,
                "trajectories": item.trajectories,
                "tokens_sampled": item.tokens_sampled,
                "tokens_read": item.tokens_read,
                "cpu_seconds": item.cpu_seconds,
                "dollars": dict(item.dollars),
            }
            for item in report.costs
        ],
        "played": report.settings.to_dicts(),
    }


def _numbers(interval: Interval) -> dict[str, Any]:
    return {**interval.as_json(), "units": interval.units, "method": interval.method}
