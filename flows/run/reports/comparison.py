"""What a comparison finds. Two questions that are never mixed.

*Do these checkpoints differ?* asks about one run of each side: tasks are the unit, paired, attempts kept whole. *Do these
recipes differ?* asks about many seeds of each: seeds are the unit, paired. One run of each says nothing about the recipes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from scipy import stats

from flows.machine.home import runs_dir
from flows.run.collapse import ERRORS, LEAST
from flows.run.reports.sides import Side
from userrl_core.json_files import read_json
from userrl_core.measure.checkpoints import Consistency, Resolution, consistency, difference, mean_score, resolution
from userrl_core.measure.interval import Interval, share_interval, t_interval
from userrl_core.measure.recipes import contrast, crossed, deviation_limit, holm, seeds_needed
from userrl_core.records import branch_of
from warehouse import Warehouse

ALL = "all tasks"
WHICH = ("best", "last")
"""The checkpoint that validation chose, and the last step."""
EQUAL = 0.05
"""Two recipes are called equal when they differ by less."""
SIGNS = 6
"""Fewest seeds with which a two-sided test of signs can come below .05."""
DELTA = 0.02
"""The difference between checkpoints that a reader is told the price of."""


@dataclass(frozen=True, slots=True)
class Score:
    """One side's mean score. interval: over tasks for one run, over seeds for many."""

    side: str
    which: str
    row: str
    interval: Interval


@dataclass(frozen=True, slots=True)
class Paired:
    """B less A.

    p: exact over tasks, Student's t over seeds, nan where there is none; adjusted for several sides (Holm). signs: p of the exact
    test that flips the signs of seed differences. deviation: of those. left_out: tasks, or seeds, that only one of the two has.
    """

    a: str
    b: str
    which: str
    row: str
    interval: Interval
    p: float
    left_out: int = 0
    deviation: float = math.nan
    signs: float = math.nan


@dataclass(frozen=True, slots=True)
class Collapse:
    """The seeds that did not hold what they had reached: by seed, held-out scores of the best checkpoint and the last step.

    p: Fisher's exact test beside the first side; nan for the first.
    """

    side: str
    share: Interval
    seeds: Mapping[int, tuple[float, float]]
    p: float = math.nan


@dataclass(frozen=True, slots=True)
class Agreement:
    """How alike a side's attempts at one task are."""

    side: str
    attempts: int
    consistency: Consistency


@dataclass(frozen=True, slots=True)
class Spent:
    """What training one run took, in the mean over a side's runs.

    cpu_seconds: of all its stages, None where a run's report is gone. dollars: by role, of calls whose price is known.
    """

    side: str
    trajectories: float
    tokens_sampled: float
    tokens_read: float
    cpu_seconds: float | None
    dollars: Mapping[str, float]
    unpriced_calls: int


@dataclass(frozen=True, slots=True)
class Curve:
    """Mean score by step of one run, in training or in validation. stages: name, horizon and first step of each."""

    side: str
    seed: int
    phase: str
    points: tuple[tuple[int, float], ...]
    stages: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that is found; what a page shows and ``--json`` prints."""

    sides: tuple[Side, ...]
    question: str
    """``checkpoints``, ``recipes``, or ``none`` where one side is a run and another a recipe."""
    scores: tuple[Score, ...]
    paired: tuple[Paired, ...]
    collapses: tuple[Collapse, ...]
    agreement: tuple[Agreement, ...]
    sentences: tuple[str, ...]
    """What it would take to know more, and what this cannot say."""
    spent: tuple[Spent, ...]
    curves: tuple[Curve, ...]
    settings: pl.DataFrame
    """What each side was played on, by gym."""


def compare(warehouse: Warehouse, sides: Sequence[Side]) -> Comparison:
    """Everything but the published rows, which are shown apart."""
    frame = task_scores(warehouse, sides)
    many = [side.of_recipe for side in sides]
    question = "recipes" if all(many) else "none" if any(many) else "checkpoints"
    rows = _rows(frame)
    scores = [
        Score(side.name, which, row, _score(_of(frame, side, which, row), side))
        for side in sides
        for which in WHICH
        for row in rows
        if not _of(frame, side, which, row).is_empty()
    ]
    pair = {"recipes": _pair_recipes, "checkpoints": _pair_checkpoints}.get(question)
    paired = [
        found
        for which in WHICH
        for row in rows
        for found in _adjusted([pair(frame, sides[0], b, which, row) for b in sides[1:]] if pair else [])
    ]
    collapses = _collapses(frame, sides)
    return Comparison(
        tuple(sides),
        question,
        tuple(scores),
        tuple(paired),
        tuple(collapses),
        tuple(_agreement(frame, sides)),
        tuple(_sentences(frame, sides, question, paired)),
        tuple(_spent(warehouse, side) for side in sides),
        tuple(curve for side in sides for curve in curves(warehouse, side)),
        _settings(warehouse, sides),
    )


def task_scores(warehouse: Warehouse, sides: Sequence[Side]) -> pl.DataFrame:
    """A row per side, checkpoint (best, last), run and task: the scores of its attempts.

    shared: whether every side played the task; true of all where there is no such task.
    """
    asked = pl.DataFrame(
        [
            {"side": side.name, "which": which, "run_id": member.run_id, "seed": member.seed, "policy": policy}
            for side in sides
            for member in side.members
            for which, policy in zip(WHICH, (member.best, member.last), strict=True)
        ]
    )
    runs = asked["run_id"].unique().to_list()
    played = warehouse.sql("FROM task_scores() WHERE run_id IN (SELECT unnest($runs))", runs=runs).pl()
    frame = asked.join(played, on=["run_id", "policy"]).with_columns(
        task=pl.concat_str("gym", "task_id", "task_version", separator="/"),
        tier=pl.concat_str("gym", "tier", separator=" "),
    )
    everybody = pl.col("side").n_unique().over("task") == frame["side"].n_unique()
    return frame.with_columns(shared=everybody | ~everybody.any())


def _rows(frame: pl.DataFrame) -> list[str]:
    """All tasks, each gym where there are several, each tier of a gym that has several."""
    gyms = frame.group_by("gym").agg(pl.col("tier").unique()).sort("gym")
    tiers = [tier for gym in gyms["tier"].to_list() if len(gym) > 1 for tier in sorted(gym)]
    return [ALL, *(gyms["gym"].to_list() if len(gyms) > 1 else []), *tiers]


def _of(frame: pl.DataFrame, side: Side, which: str, row: str) -> pl.DataFrame:
    own = frame.filter(pl.col("side") == side.name, pl.col("which") == which)
    return own.filter("shared") if row == ALL else own.filter((pl.col("gym") == row) | (pl.col("tier") == row))


def _by_seed(own: pl.DataFrame) -> dict[int, float]:
    """Mean over tasks, each weighing the same, by seed."""
    return dict(own.group_by("seed").agg(pl.col("score").mean()).sort("seed").iter_rows())


def _score(own: pl.DataFrame, side: Side) -> Interval:
    if side.of_recipe:
        return t_interval(np.array(list(_by_seed(own).values())))
    return mean_score(own["scores"].to_list())


def _pair_checkpoints(frame: pl.DataFrame, a: Side, b: Side, which: str, row: str) -> Paired | None:
    one, other = (_of(frame, side, which, row) for side in (a, b))
    both = one.join(other, on="task").sort("task")
    if both.is_empty():
        return None
    found = difference(both["scores"].to_list(), both["scores_right"].to_list())
    left_out = len(one) + len(other) - 2 * len(both)
    return Paired(a.name, b.name, which, row, found.interval, found.p, left_out)


def _pair_recipes(frame: pl.DataFrame, a: Side, b: Side, which: str, row: str) -> Paired | None:
    one, other = (_of(frame, side, which, row) for side in (a, b))
    one, other = one.join(other, on="task", how="semi"), other.join(one, on="task", how="semi")
    by_seed = [_by_seed(own) for own in (one, other)]
    common = sorted(set(by_seed[0]) & set(by_seed[1]))
    if len(common) < 2:
        return None
    found = contrast(by_seed[0], by_seed[1])
    differences = np.array([by_seed[1][seed] - by_seed[0][seed] for seed in common])
    p = float(stats.ttest_1samp(differences, 0).pvalue) if differences.std() > 0 else math.nan
    interval = found.interval
    if one["source"].str.starts_with("published").all():
        interval = _over_tasks_too(one, other, common) or interval
    left_out = len(set(by_seed[0]) ^ set(by_seed[1]))
    flipped = stats.permutation_test((differences,), np.mean, permutation_type="samples", vectorized=False)
    return Paired(a.name, b.name, which, row, interval, p, left_out, found.deviation, float(flipped.pvalue))


def _over_tasks_too(a: pl.DataFrame, b: pl.DataFrame, seeds: Sequence[int]) -> Interval | None:
    """On published tasks, which are a sample as well; None unless every seed played every task."""
    tables = [own.pivot("task", index="seed", values="score").sort("seed") for own in (a, b)]
    tasks = sorted(set(tables[0].columns) & set(tables[1].columns) - {"seed"})
    values = [table.filter(pl.col("seed").is_in(seeds)).select(tasks).to_numpy() for table in tables]
    return None if any(np.isnan(each).any() for each in values) else crossed(values[0], values[1])


def _adjusted(found: Sequence[Paired | None]) -> list[Paired]:
    """With Holm's p where several sides are held against the first."""
    there = [each for each in found if each is not None]
    with_p = [each for each in there if not math.isnan(each.p)]
    adjusted = dict(zip(map(id, with_p), holm([each.p for each in with_p]), strict=True))
    return [replace(each, p=adjusted.get(id(each), math.nan)) for each in there]


def _collapses(frame: pl.DataFrame, sides: Sequence[Side]) -> list[Collapse]:
    """Share of the trained seeds whose last step lies far below their own best checkpoint, task by task."""
    found: list[Collapse] = []
    for side in sides:
        trained = [member for member in side.members if member.branch is not None]
        fallen = {}
        for member in trained:
            own = frame.filter(pl.col("side") == side.name, pl.col("run_id") == member.run_id)
            best, last = (own.filter(pl.col("which") == which) for which in WHICH)
            if fall := collapsed(best, last):
                fallen[member.seed] = fall
        if trained:
            share = share_interval(len(fallen), len(trained))
            p = math.nan
            if found:
                counts = [
                    [len(each.seeds), each.share.units - len(each.seeds)]
                    for each in (found[0], Collapse("", share, fallen))
                ]
                p = float(stats.fisher_exact(counts).pvalue)
            found.append(Collapse(side.name, share, fallen, p))
    return found


def collapsed(best: pl.DataFrame, last: pl.DataFrame) -> tuple[float, float] | None:
    """Scores of both where the last step lies far below the best checkpoint on the tasks of both, else None.

    Far: by more than .1 and by more than three standard errors of the paired difference.
    """
    both = best.join(last, on=["gym", "task_id", "task_version"])
    best_M, last_M = both["score"].to_numpy(), both["score_right"].to_numpy()
    if len(both) < 2:
        return None
    fall_M = best_M - last_M
    far = max(LEAST, ERRORS * fall_M.std(ddof=1) / math.sqrt(len(fall_M)))
    return (float(best_M.mean()), float(last_M.mean())) if fall_M.mean() > far else None


def _agreement(frame: pl.DataFrame, sides: Sequence[Side]) -> list[Agreement]:
    """Of single runs that tried each task at least twice."""
    found = []
    for side in sides:
        scores = _of(frame, side, "best", ALL)["scores"].to_list() if not side.of_recipe else []
        attempts = min((len(row) for row in scores), default=0)
        if attempts > 1 and len(scores) > 1:
            found.append(Agreement(side.name, attempts, consistency([row[:attempts] for row in scores])))
    return found


def _sentences(frame: pl.DataFrame, sides: Sequence[Side], question: str, paired: Sequence[Paired]) -> list[str]:
    if question == "none":
        return [
            "One side is a single run, another a recipe over several seeds: nothing is paired. Compare runs with runs, or "
            "recipes with recipes."
        ]
    if question == "recipes":
        return [
            *_not_shared(frame, sides),
            *(_would_take(each) for each in paired if (each.which, each.row) == ("last", ALL)),
        ]
    said = [*_not_shared(frame, sides)]
    said += [_resolution(frame, sides[0], other) for other in sides[1:] if any(each.b == other.name for each in paired)]
    if len({member.recipe for side in sides for member in side.members}) > 1:
        said.append("One run each: nothing about the recipes. Seeds are their unit: compare 'recipe=...,seed=*'.")
    else:
        said.append("One run each: this tells checkpoints apart, and nothing about the recipe or its seeds.")
    return said


def _not_shared(frame: pl.DataFrame, sides: Sequence[Side]) -> list[str]:
    """What a side played and another did not: it counts in no comparison."""
    if frame["shared"].all():
        return []
    shared = sorted(set(frame.filter("shared")["gym"]))
    alone = {side.name: set(frame.filter(~pl.col("shared"), pl.col("side") == side.name)["gym"]) for side in sides}
    who = "; ".join(f"{name}: of {', '.join(sorted(own))}" for name, own in alone.items() if own)
    return [f"'{ALL}' are those that every side played, of {', '.join(shared)}. Left out of it: {who}."]


def _resolution(frame: pl.DataFrame, a: Side, b: Side) -> str:
    both = _of(frame, a, "best", ALL).join(_of(frame, b, "best", ALL), on="task")
    scores = both["scores"].to_list(), both["scores_right"].to_list()
    if len(both) < 2:
        return f"{a.name} and {b.name} share fewer than two tasks."
    if min(len(row) for side in scores for row in side) < 2:
        return (
            f"{b.name} against {a.name}: with one attempt at each task, what lies in the tasks and what is luck cannot be "
            "told apart; evaluate with --attempts 4 to see how many attempts or tasks a smaller difference needs."
        )
    found: Resolution = resolution(*scores, DELTA)
    return f"{b.name} against {a.name}: {str(found)[0].lower()}{str(found)[1:]}"


def _would_take(found: Paired) -> str:
    """How many seeds would show the difference that was seen, and equality, at the deviation seen and at its upper limit."""
    seeds, seen = found.interval.units, abs(found.interval.estimate)
    high = deviation_limit(found.deviation, seeds)
    said = f"{found.b} against {found.a}, last step: seed differences deviate by {found.deviation:.3f}; "
    if found.interval.low > 0 or found.interval.high < 0:
        few = "" if seeds >= SIGNS else f"; signs alone, without a normal distribution assumed, need {SIGNS}"
        return said + f"{seeds} seeds show that the two differ (Student's t{few})."
    if found.interval.low > -EQUAL and found.interval.high < EQUAL:
        return said + f"{seeds} seeds show that the two differ by less than {EQUAL}."
    if seen > 0:
        said += (
            f"a true difference of {seen:.3f} would be seen with {seeds_needed(found.deviation, seen):,} seeds (up to "
            f"{seeds_needed(high, seen):,} at the deviation's upper 80 % limit), "
        )
    return said + f"one of {EQUAL} with {seeds_needed(found.deviation, EQUAL):,} (up to {seeds_needed(high, EQUAL):,})."


def _spent(warehouse: Warehouse, side: Side) -> Spent:
    runs = [member.run_id for member in side.members]
    own = "run_id IN (SELECT unnest($runs))"
    played = warehouse.sql(
        f"""SELECT count(*), coalesce(sum(completion_tokens), 0), coalesce(sum(prompt_tokens), 0) FROM trajectories_all
            WHERE phase = 'train' AND {own}""",
        runs=runs,
    ).fetchall()[0]
    calls = warehouse.sql(
        f"SELECT role, coalesce(sum(dollars), 0), sum(unpriced_calls) FROM cost() WHERE {own} GROUP BY role ORDER BY role",
        runs=runs,
    ).fetchall()
    trajectories, sampled, read = (float(value) / len(runs) for value in played)
    reports = [read_json(runs_dir() / run / "report.json") or {} for run in runs]
    cpu = [sum(report["cpu_seconds"].values()) for report in reports if report.get("cpu_seconds")]
    seconds = sum(cpu) / len(cpu) if len(cpu) == len(runs) else None
    dollars = {role: float(spent) / len(runs) for role, spent, _ in calls}
    return Spent(side.name, trajectories, sampled, read, seconds, dollars, int(sum(row[2] for row in calls)))


def curves(warehouse: Warehouse, side: Side) -> list[Curve]:
    """Mean scores in training and in validation along what led to the side's policy."""
    found = []
    for member in side.members:
        if member.branch is None:
            continue
        text = """SELECT phase, stage, step, avg(score), max(horizon) FROM trajectories
                  WHERE run_id = $run AND phase IN ('train', 'validate') AND admitted GROUP BY ALL ORDER BY step, stage"""
        rows = warehouse.sql(text, run=member.run_id).fetchall()
        own = [row for row in rows if branch_of(row[1]) in ("", member.branch)]
        for phase in ("train", "validate"):
            points = tuple({step: score for of, _, step, score, _ in own if of == phase}.items())
            if points:
                found.append(Curve(side.name, member.seed, phase, points, stages_of(own)))
    return found


def stages_of(rows: Sequence[tuple[str, str, int, float, int]]) -> tuple[tuple[str, int, int], ...]:
    """Name, horizon and first training step of each stage. rows: phase, stage, step, score, horizon, in the order of steps."""
    first: dict[str, tuple[int, int]] = {}
    for phase, stage, step, _, horizon in rows:
        if phase == "train":
            first.setdefault(stage, (horizon, step))
    return tuple((stage, horizon, step) for stage, (horizon, step) in first.items())


def _settings(warehouse: Warehouse, sides: Sequence[Side]) -> pl.DataFrame:
    """A row per side, gym and way in which its runs were evaluated; more than one way is a warning to the reader."""
    asked = pl.DataFrame(
        [
            {"side": side.name, "run_id": member.run_id, "policy": member.best}
            for side in sides
            for member in side.members
        ]
    )
    runs = asked["run_id"].unique().to_list()
    found = warehouse.sql("FROM evaluation_setting() WHERE run_id IN (SELECT unnest($runs))", runs=runs).pl()
    ways = ["gym", "data", "split", "user_model", "horizon", "attempts", "tasks", "benchmark_version", "profile"]
    return (
        asked.join(found, on=["run_id", "policy"], maintain_order="left")
        .group_by("side", *ways, maintain_order=True)
        .agg(runs=pl.len())
    )
