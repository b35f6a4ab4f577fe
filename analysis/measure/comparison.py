"""Comparison of checkpoints or recipes from one table of task scores. The two questions are kept apart.

*Do these checkpoints differ?* is about one run of each side: tasks are the unit, paired, with attempts unsplit. *Do
these recipes differ?* is about many seeds of each side: seeds are the unit, paired. One run of each says nothing
about the recipes.

The table has a row per side, checkpoint, run and task. Its columns are `side`, `which` (best, last), `run_id`,
`seed`, `gym`, `tier` (with its gym), `task`, `source`, `scores` of the attempts, `score` (their mean), `own_score`
(within the run's training horizon) and `shared` (whether every side played the task).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import polars as pl
import scipy

from analysis.measure.checkpoints import Consistency, Resolution, consistency, difference, mean_score, resolution
from analysis.measure.collapse import CollapsedSeeds, collapsed_seeds, far_below
from analysis.measure.families import families_text
from analysis.measure.interval import Interval, score_interval, seed_difference_interval
from analysis.measure.recipes import contrast, crossed, deviation_limit, holm, seeds_needed

ALL = "all tasks"
WHICH = ("best", "last")
"""The checkpoint that validation chose, and the last step."""
EQUAL = 0.05
"""Difference below which two recipes are called equal."""
DELTA = 0.02
"""The difference between checkpoints for which the needed attempts and tasks are computed."""

Question = Literal["checkpoints", "recipes", "none"]


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """One run of a side.

    best, last: the policies with these names in its evaluation; the same policy if the last step was best. The table has
    no row of a last step that was not evaluated. branch: the run's branch with these policies, "" for a run without
    branches, None for a policy that RL did not train.
    """

    run_id: str
    recipe: str
    seed: int
    best: str
    last: str
    branch: str | None


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """The runs that are compared under one name. runs: one run, or one per seed. left_out: sentences on excluded runs."""

    name: str
    runs: tuple[ComparedRun, ...]
    left_out: tuple[str, ...] = ()

    @property
    def of_recipe(self) -> bool:
        """Return whether the side represents a recipe: it has more than one seed."""
        return len(self.runs) > 1


@dataclass(frozen=True, slots=True)
class SideScore:
    """One side's mean score. interval: over tasks for one run, over seeds for many."""

    side: str
    which: str
    row: str
    interval: Interval


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """B minus A.

    p: exact over tasks, Student's t over seeds, or nan without a test; adjusted for several sides (Holm). signs: p of
    the exact test that flips the signs of seed differences. deviation: of the seed differences. left_out: tasks or
    seeds that only one side has.
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
class AttemptAgreement:
    """The consistency of a side's attempts at one task."""

    side: str
    attempts: int
    consistency: Consistency


@dataclass(frozen=True, slots=True)
class SeedsToDecide:
    """The number of seeds that would decide whether two recipes differ at their last step.

    decided: the answer of the present seeds, "" if undecided. to_differ: seeds that would show a difference of the
    observed size; None if that size is 0. to_equal: seeds that would show a difference of `EQUAL`. Each is a pair: at
    the observed deviation and at its upper 80 % limit. Both are None once decided.
    """

    a: str
    b: str
    seeds: int
    deviation: float
    effect: float
    decided: Literal["differ", "equal", ""]
    to_differ: tuple[int, int] | None = None
    to_equal: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class TasksToDecide:
    """The attempts or tasks that would show a difference of `DELTA` between two checkpoints.

    tasks: number that both played. attempts: the smallest number at one of these tasks. resolution: None with fewer
    than two tasks or two attempts.
    """

    a: str
    b: str
    tasks: int
    attempts: int
    resolution: Resolution | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """All intervals and tests of one comparison.

    question: ``none`` if one side is a run and another a recipe; then nothing is paired. shared_gyms: gyms of the
    tasks that count in "all tasks". unshared_gyms: by side, gyms of the tasks that it played and another side did not.
    families: the families that the ids of the shared tasks suggest, in words; "" if none.
    """

    question: Question
    scores: tuple[SideScore, ...]
    paired: tuple[PairedDifference, ...]
    collapses: tuple[CollapsedSeeds, ...]
    agreement: tuple[AttemptAgreement, ...]
    to_decide: tuple[SeedsToDecide | TasksToDecide, ...]
    shared_gyms: tuple[str, ...]
    unshared_gyms: Mapping[str, tuple[str, ...]]
    families: str


def compared(table: pl.DataFrame, sides: Sequence[ComparedSide], withheld: Collection[str] = ()) -> Comparison:
    """Compare every other side with the first one.

    withheld: gyms whose scores may not be subtracted. Their scores are shown. "All tasks" has those of the other gyms, and of
    all gyms if none remains.
    """
    question, rows = question_of(sides), _rows(table)
    unshared = table.filter(~pl.col("shared"))
    apart = pl.col("gym").is_in(list(withheld))
    no_pair = {*withheld, *table.filter(apart)["tier"]}
    if table.filter(pl.col("shared") & ~apart).is_empty():
        no_pair.update(rows)
    else:
        table = table.with_columns(shared=pl.col("shared") & ~apart)
    scores, paired = scores_and_differences(table, sides, rows)
    paired = [difference for difference in paired if difference.row not in no_pair]
    return Comparison(
        question,
        tuple(scores),
        tuple(paired),
        tuple(_collapses(table, sides)),
        tuple(_agreement(table, sides)),
        tuple(_to_decide(table, sides, question, paired)),
        tuple(sorted(set(table.filter("shared")["gym"]))),
        {side.name: tuple(sorted(set(unshared.filter(pl.col("side") == side.name)["gym"]))) for side in sides},
        families_text(dict(table.filter("shared").group_by("gym").agg("task_id").sort("gym").iter_rows())),
    )


def question_of(sides: Sequence[ComparedSide]) -> Question:
    """Return what a comparison of these sides can answer."""
    many = [side.of_recipe for side in sides]
    return "recipes" if all(many) else "none" if any(many) else "checkpoints"


def checkpoints_of(sides: Sequence[ComparedSide]) -> tuple[str, ...]:
    """Return the compared checkpoints: best alone if no side was trained by RL, since there is no last step."""
    runs = [run for side in sides for run in side.runs]
    return WHICH if any(run.branch is not None or run.last != run.best for run in runs) else WHICH[:1]


def scores_and_differences(
    table: pl.DataFrame, sides: Sequence[ComparedSide], rows: Sequence[str] = (ALL,)
) -> tuple[list[SideScore], list[PairedDifference]]:
    """Return each side's mean scores, and the differences from the first side, for these rows of the comparison."""
    scores = [
        SideScore(side.name, which, row, _score(side_scores, side))
        for side in sides
        for which in checkpoints_of(sides)
        for row in rows
        if not (side_scores := scores_of(table, side, which, row)).is_empty()
    ]
    pair = {"recipes": _pair_recipes, "checkpoints": _pair_checkpoints}.get(question_of(sides))
    paired = [
        diff
        for which in checkpoints_of(sides)
        for row in rows
        for diff in _adjusted([pair(table, sides[0], b, which, row) for b in sides[1:]] if pair else [])
    ]
    return scores, paired


def _rows(table: pl.DataFrame) -> list[str]:
    """Return the rows of the comparison: all tasks, each gym if there are several, each tier if a gym has several."""
    gyms = table.group_by("gym").agg(pl.col("tier").unique()).sort("gym")
    tiers = [tier for gym in gyms["tier"].to_list() if len(gym) > 1 for tier in sorted(gym)]
    return [ALL, *(gyms["gym"].to_list() if len(gyms) > 1 else []), *tiers]


def scores_of(table: pl.DataFrame, side: ComparedSide, which: str, row: str) -> pl.DataFrame:
    """Return one side's rows of a checkpoint and a row of the comparison."""
    side_scores = played_by(table, side, which, row)
    return side_scores.filter("shared") if row == ALL else side_scores


def played_by(table: pl.DataFrame, side: ComparedSide, which: str, row: str) -> pl.DataFrame:
    """Return one side's rows as `scores_of` does, with the tasks that another side did not play."""
    side_scores = table.filter(pl.col("side") == side.name, pl.col("which") == which)
    return side_scores if row == ALL else side_scores.filter((pl.col("gym") == row) | (pl.col("tier") == row))


def mean_by_seed(side_scores: pl.DataFrame) -> dict[int, float]:
    """Return each seed's mean over tasks, with equal weights."""
    return dict(side_scores.group_by("seed").agg(pl.col("score").mean()).sort("seed").iter_rows())


def _score(side_scores: pl.DataFrame, side: ComparedSide) -> Interval:
    if side.of_recipe:
        return score_interval(np.array(list(mean_by_seed(side_scores).values())))
    return mean_score(side_scores["scores"].to_list())


def _pair_checkpoints(
    table: pl.DataFrame, a: ComparedSide, b: ComparedSide, which: str, row: str
) -> PairedDifference | None:
    a_scores, b_scores = (scores_of(table, side, which, row) for side in (a, b))
    both = a_scores.join(b_scores, on="task").sort("task")
    if both.is_empty():
        return None
    less = difference(both["scores"].to_list(), both["scores_right"].to_list())
    a_tasks, b_tasks = (set(played_by(table, side, which, row)["task"]) for side in (a, b))
    left_out = len(a_tasks ^ b_tasks)
    return PairedDifference(a.name, b.name, which, row, less.interval, less.p, left_out)


def _pair_recipes(
    table: pl.DataFrame, a: ComparedSide, b: ComparedSide, which: str, row: str
) -> PairedDifference | None:
    a_scores, b_scores = (scores_of(table, side, which, row) for side in (a, b))
    a_scores, b_scores = (
        a_scores.join(b_scores, on=["seed", "task"], how="semi"),
        b_scores.join(a_scores, on=["seed", "task"], how="semi"),
    )
    by_seed = [mean_by_seed(scores) for scores in (a_scores, b_scores)]
    common = sorted(set(by_seed[0]) & set(by_seed[1]))
    if len(common) < 2:
        return None
    less = contrast(by_seed[0], by_seed[1])
    differences = np.array([by_seed[1][seed] - by_seed[0][seed] for seed in common])
    interval = seed_difference_interval(differences)
    tested = not interval.values and differences.std() > 0
    p = float(scipy.stats.ttest_1samp(differences, 0).pvalue) if tested else math.nan
    if not interval.values and a_scores["source"].str.starts_with("published").all():
        interval = _over_tasks_too(a_scores, b_scores, common) or interval
    left_out = len(set(by_seed[0]) ^ set(by_seed[1]))
    if interval.values:
        return PairedDifference(a.name, b.name, which, row, interval, p, left_out, less.deviation)
    flipped = scipy.stats.permutation_test((differences,), np.mean, permutation_type="samples", vectorized=False)
    return PairedDifference(a.name, b.name, which, row, interval, p, left_out, less.deviation, float(flipped.pvalue))


def _over_tasks_too(a: pl.DataFrame, b: pl.DataFrame, seeds: Sequence[int]) -> Interval | None:
    """Resample the published tasks as well, because they are also a sample. Returns None unless every seed played every task."""
    tables = [side_scores.pivot("task", index="seed", values="score").sort("seed") for side_scores in (a, b)]
    tasks = sorted(set(tables[0].columns) & set(tables[1].columns) - {"seed"})
    values = [table.filter(pl.col("seed").is_in(seeds)).select(tasks).to_numpy() for table in tables]
    return None if any(np.isnan(matrix).any() for matrix in values) else crossed(values[0], values[1])


def _adjusted(differences: Sequence[PairedDifference | None]) -> list[PairedDifference]:
    """Adjust p by Holm's method if several sides are compared with the first."""
    diffs = [diff for diff in differences if diff is not None]
    return [replace(diff, p=p) for diff, p in zip(diffs, holm([diff.p for diff in diffs]), strict=True)]


def _collapses(table: pl.DataFrame, sides: Sequence[ComparedSide]) -> list[CollapsedSeeds]:
    """Return the collapsed seeds of each side that RL trained, of the runs whose last step was evaluated."""
    collapses: list[CollapsedSeeds] = []
    for side in sides:
        with_last = set(played_by(table, side, "last", ALL)["run_id"])
        falls = {
            run.seed: _fall(table, side, run) for run in side.runs if run.branch is not None and run.run_id in with_last
        }
        if falls:
            collapses.append(collapsed_seeds(side.name, falls, collapses[0] if collapses else None))
    return collapses


def _fall(table: pl.DataFrame, side: ComparedSide, run: ComparedRun) -> tuple[float, float] | None:
    run_scores = table.filter(pl.col("side") == side.name, pl.col("run_id") == run.run_id)
    best, last = (run_scores.filter(pl.col("which") == which) for which in WHICH)
    both = best.join(last, on="task")
    return far_below(both["own_score"].to_numpy(), both["own_score_right"].to_numpy())


def _agreement(table: pl.DataFrame, sides: Sequence[ComparedSide]) -> list[AttemptAgreement]:
    """Return the agreement of single runs that tried each task at least twice."""
    agreement = []
    for side in sides:
        scores = scores_of(table, side, "best", ALL)["scores"].to_list() if not side.of_recipe else []
        attempts = min((len(row) for row in scores), default=0)
        if attempts > 1 and len(scores) > 1:
            alike = consistency([row[:attempts] for row in scores])
            agreement.append(AttemptAgreement(side.name, attempts, alike))
    return agreement


def _to_decide(
    table: pl.DataFrame, sides: Sequence[ComparedSide], question: Question, paired: Sequence[PairedDifference]
) -> list[SeedsToDecide | TasksToDecide]:
    if question == "recipes":
        newest = checkpoints_of(sides)[-1]
        return [_seeds_to_decide(diff) for diff in paired if (diff.which, diff.row) == (newest, ALL)]
    paired_names = {diff.b for diff in paired}
    return [_tasks_to_decide(table, sides[0], other) for other in sides[1:] if other.name in paired_names]


def _seeds_to_decide(less: PairedDifference) -> SeedsToDecide:
    interval, effect = less.interval, abs(less.interval.estimate)
    undecided = SeedsToDecide(less.a, less.b, interval.units, less.deviation, effect, "")
    if interval.low > 0 or interval.high < 0:
        return replace(undecided, decided="differ")
    if interval.low > -EQUAL and interval.high < EQUAL:
        return replace(undecided, decided="equal")
    high = deviation_limit(less.deviation, interval.units)
    both = (less.deviation, high)
    to_differ = (seeds_needed(both[0], effect), seeds_needed(both[1], effect)) if effect > 0 else None
    return replace(
        undecided, to_differ=to_differ, to_equal=(seeds_needed(both[0], EQUAL), seeds_needed(both[1], EQUAL))
    )


def _tasks_to_decide(table: pl.DataFrame, a: ComparedSide, b: ComparedSide) -> TasksToDecide:
    both = scores_of(table, a, "best", ALL).join(scores_of(table, b, "best", ALL), on="task")
    scores = both["scores"].to_list(), both["scores_right"].to_list()
    attempts = min((len(row) for side in scores for row in side), default=0)
    enough = len(both) > 1 and attempts > 1
    return TasksToDecide(a.name, b.name, len(both), attempts, resolution(*scores, DELTA) if enough else None)
