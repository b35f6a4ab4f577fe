"""The page of a comparison: collapsed seeds, scores, differences, seeds or tasks needed to decide, curves, costs, settings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import polars as pl

from analysis.measure.collapse import CollapsedSeeds
from analysis.measure.comparison import (
    ALL,
    EQUAL,
    Comparison,
    PairedDifference,
    SeedsToDecide,
    TasksToDecide,
    checkpoints_of,
)
from userrl.comparison.report import ComparisonReport, different_settings, settings_by_gym, withheld_gyms
from userrl.reports.curves import SMOOTHED, curve_panels, curves_figure
from userrl.reports.document import Block, Document, Figure, Heading, Items, TableBlock, Text
from userrl.reports.figures import intervals
from userrl.reports.sides import PublishedRows
from userrl_core.number_format import limits, number, p_value, with_limits
from warehouse.query.unscored import unscored_sentence

SIGNS = 6
"""Fewest seeds for p below .05 in a two-sided sign test."""
CHECKPOINTS = {"best": "best on validation", "last": "last step"}


def comparison_document(report: ComparisonReport, published: Sequence[PublishedRows] = ()) -> Document:
    """Return the whole comparison. Published rows have a separate section and enter no difference."""
    fallen = any(item.seeds for item in report.comparison.collapses)
    blocks: list[Block] = [*_who(report), *_collapses(report)]
    blocks += _curves(report) if fallen else ()  # a collapse is easier to see in the curve than in a table
    blocks += [*_scores(report), *_differences(report)]
    blocks += _curves(report) if not fallen else ()
    blocks += [*_agreement(report), *_costs(report), *_settings(report)]
    blocks += [block for item in published for block in _published(item)]
    return Document("Comparison: " + " with ".join(side.name for side in reversed(report.sides)), tuple(blocks))


def _letters(report: ComparisonReport) -> dict[str, str]:
    return {side.name: chr(ord("A") + index) for index, side in enumerate(report.sides)}


def _who(report: ComparisonReport) -> Iterator[Block]:
    letters = _letters(report)
    yield Items(
        tuple(
            f"{letters[side.name]}: {side.name}"
            + (f", {len(side.runs)} seeds: {', '.join(str(run.seed) for run in side.runs)}" if side.of_recipe else "")
            for side in report.sides
        )
    )


def _collapses(report: ComparisonReport) -> Iterator[Block]:
    if not report.comparison.collapses:
        return
    letters = _letters(report)
    if not any(collapse.seeds for collapse in report.comparison.collapses):
        shares = "; ".join(
            f"{letters[collapse.side]}: 0 of {collapse.share.units}, {limits(collapse.share)}"
            for collapse in report.comparison.collapses
        )
        yield Text(f"No seed collapsed (share with 95 % limits: {shares}).")
        return
    yield Heading("Collapsed seeds")
    for collapse in report.comparison.collapses:
        if collapse.seeds:
            yield Text(
                f"{letters[collapse.side]} {collapse.side}: {len(collapse.seeds)} of {collapse.share.units} seeds did not hold "
                f"their best score: {_falls(collapse)}.",
                strong=True,
            )
    yield TableBlock(
        ("side", "collapsed", "share [95 %]", f"p (compared with {letters[report.comparison.collapses[0].side]})"),
        tuple(
            (
                f"{letters[collapse.side]} {collapse.side}",
                f"{len(collapse.seeds)} of {collapse.share.units}",
                with_limits(collapse.share),
                p_value(collapse.p),
            )
            for collapse in report.comparison.collapses
        ),
        "Collapsed: on the held-out tasks the last step is below the run's own best checkpoint by more than .1 and by more "
        "than three standard errors of the paired difference. Limits: Clopper and Pearson. p: Fisher's exact test.",
    )


def _falls(collapse: CollapsedSeeds) -> str:
    """Describe each seed's fall, or the ranges of best and last scores if there are four or more."""
    if len(collapse.seeds) < 4:
        return "; ".join(
            f"seed {seed} fell from {number(best)} to {number(last)}" for seed, (best, last) in collapse.seeds.items()
        )
    best, last = (sorted(values) for values in zip(*collapse.seeds.values(), strict=True))
    return (
        f"best scores {number(best[0])} to {number(best[-1])}, last-step scores {number(last[0])} to {number(last[-1])}"
    )


def _scores(report: ComparisonReport) -> Iterator[Block]:
    yield Heading("Held-out scores")
    rows = list(dict.fromkeys(score.row for score in report.comparison.scores))
    cells = {(score.side, score.which, score.row): with_limits(score.interval) for score in report.comparison.scores}
    compared = checkpoints_of(report.sides)
    titles = [CHECKPOINTS[which] for which in compared] if len(compared) > 1 else ["mean score"]
    table = [
        (row, letter, *(cells.get((name, which, row), "–") for which in compared), _units(report, name, row))
        for row in rows
        for name, letter in _letters(report).items()
    ]
    yield TableBlock(
        ("gyms", "side", *titles, "units"),
        tuple(table),
        "Mean of the gyms' metrics with 95 % limits: over tasks for a single run (Wilson for few 0/1 scores, else Student's t), "
        "over seeds for a recipe (Student's t).",
    )


def _units(report: ComparisonReport, side: str, row: str) -> str:
    score = next((item for item in report.comparison.scores if (item.side, item.row) == (side, row)), None)
    if score is None:
        return "–"
    many = next(item for item in report.sides if item.name == side).of_recipe
    return f"{score.interval.units} {'seeds' if many else 'tasks'}"


def _differences(report: ComparisonReport) -> Iterator[Block]:
    comparison = report.comparison
    if comparison.paired:
        recipes = comparison.question == "recipes"
        trained = any(run.recipe for side in report.sides for run in side.runs)
        compared = "recipes" if recipes else "checkpoints" if trained else "agents"
        yield Heading(f"Do these {compared} differ?")
        yield _pairs(report, "seeds" if recipes else "tasks")
        overall = [difference for difference in comparison.paired if difference.row == ALL]
        if all(math.isfinite(difference.interval.low) for difference in overall):
            letters, is_single = _letters(report), len(checkpoints_of(report.sides)) == 1
            drawn = [
                (
                    f"{letters[difference.b]} − {letters[difference.a]}"
                    + ("" if is_single else f", {'best' if difference.which == 'best' else 'last step'}"),
                    difference.interval.estimate,
                    difference.interval.low,
                    difference.interval.high,
                )
                for difference in overall
            ]
            yield Figure(
                partial(intervals, drawn, x="difference of mean score, 95 %", zero=True),
                f"Over {'seeds' if recipes else 'tasks'}, {ALL}.",
            )
    if sentences := comparison_sentences(report):
        yield Items(tuple(sentences))


def _pairs(report: ComparisonReport, over: str) -> TableBlock:
    """Return the table of differences, in the order of the scores. over: the unit."""
    letters, paired = _letters(report), _in_rows(report.comparison.paired)
    which = ("checkpoint",) if len(checkpoints_of(report.sides)) > 1 else ()
    signs: tuple[str, ...]
    if over == "seeds":
        signs, test = (
            ("p (signs)",),
            "Student's t over paired seed differences; p (signs): exact test with flipped signs",
        )
    else:
        signs, test = (), "permutation of the two sides within tasks (exact for 0/1 scores)"
    rows = [
        (
            difference.row,
            f"{letters[difference.b]} − {letters[difference.a]}",
            *(CHECKPOINTS[difference.which] for _ in which),
            with_limits(difference.interval, sign=True),
            p_value(difference.p),
            *(p_value(difference.signs) for _ in signs),
            str(difference.interval.units),
            str(difference.left_out),
        )
        for difference in paired
    ]
    methods = ", ".join(dict.fromkeys(difference.interval.method for difference in paired))
    adjusted = "; adjusted by Holm" if len(report.sides) > 2 else ""
    return TableBlock(
        ("gyms", "difference", *which, "estimate [95 %]", "p", *signs, over, "left out"),
        tuple(rows),
        f"The unit is the {over[:-1]}. Limits: {methods}. p: {test}{adjusted}. Left out: {over} that only one side has.",
    )


def _in_rows(paired: Sequence[PairedDifference]) -> list[PairedDifference]:
    rows = list(dict.fromkeys(difference.row for difference in paired))
    return sorted(paired, key=lambda difference: rows.index(difference.row))


def _curves(report: ComparisonReport) -> Iterator[Block]:
    if not report.curves:
        return
    yield Heading("Learning curves")
    many = report.comparison.question != "checkpoints"
    yield curves_figure(
        curve_panels(report.curves, {name: f"{letter} {name}" for name, letter in _letters(report).items()}),
        f"{SMOOTHED} Vertical lines mark the start of each stage, with its horizon."
        + (" Thin lines: single seeds; band: 95 % limits of the mean over seeds (Student's t)." if many else ""),
    )


def _agreement(report: ComparisonReport) -> Iterator[Block]:
    if not report.comparison.agreement:
        return
    yield Heading("Agreement between attempts at one task")
    rows = [
        (
            _letters(report)[agreement.side],
            str(agreement.attempts),
            number(agreement.consistency.flips),
            number(agreement.consistency.icc),
            number(agreement.consistency.design_effect, 2),
        )
        for agreement in report.comparison.agreement
    ]
    yield TableBlock(
        ("side", "attempts", "flip rate", "ICC(1)", "design effect"),
        tuple(rows),
        "Flip rate: the probability that two attempts at a task disagree. ICC(1): the share of the variance between tasks. Design "
        "effect: the number of attempts that are worth one independent score.",
    )


def _costs(report: ComparisonReport) -> Iterator[Block]:
    if not any(cost.trajectories for cost in report.costs):
        return
    yield Heading("Training cost per run")
    roles = sorted({role for cost in report.costs for role in cost.dollars})
    rows = [
        (
            _letters(report)[cost.side],
            f"{cost.steps:,.0f}",
            f"{cost.trajectories:,.0f}",
            f"{cost.tokens_sampled:,.0f}",
            f"{cost.tokens_read:,.0f}",
            "–" if cost.cpu_seconds is None else f"{cost.cpu_seconds:,.0f}",
            *(f"${cost.dollars.get(role, 0.0):,.2f}" for role in roles),
        )
        for cost in report.costs
    ]
    unpriced = sum(cost.unpriced_calls for cost in report.costs)
    yield TableBlock(
        ("side", "steps", "trajectories", "tokens sampled", "tokens read", "CPU seconds", *roles),
        tuple(rows),
        "Mean over the side's runs; a branch with the stages before the split. Tokens and dollars: RL only, including superseded "
        "steps (they were paid for). CPU seconds: all stages."
        + (f" {unpriced} calls have no known price and are counted as free." if unpriced else ""),
    )


def _settings(report: ComparisonReport) -> Iterator[Block]:
    yield Heading("Evaluation settings")
    columns = {
        "side": "side",
        "gym": "gym",
        "data": "data",
        "split": "split",
        "user_model": "user",
        "horizon": "horizon",
        "attempts": "attempts",
        "tasks": "tasks",
        "benchmark_version": "version",
        "profile": "profile",
        "runs": "runs",
    }
    filled_columns = [
        name
        for name in columns
        if report.settings.select(pl.col(name).cast(pl.String).fill_null("") != "").to_series().any()
    ]
    rows = [(_letters(report)[side], *row) for side, *row in report.settings.select(*filled_columns).rows()]
    yield TableBlock(
        tuple(columns[name] for name in filled_columns),
        tuple(tuple("–" if cell in (None, "") else str(cell) for cell in row) for row in rows),
    )
    if different := different_settings(report):
        yield Text(f"Settings differ: {settings_by_gym(different)}.", strong=True)
    notes = [
        *(sentence for side in report.sides for sentence in side.left_out),
        *(
            f"{_letters(report)[side.name]}: {', '.join(run.run_id for run in side.runs)}"
            for side in report.sides
            if side.of_recipe or side.runs[0].run_id not in side.name
        ),
    ]
    if notes:
        yield Items(tuple(notes))


def _published(published_rows: PublishedRows) -> Iterator[Block]:
    yield Heading(f"Published: {published_rows.name.partition(':')[2]}")
    rows = published_rows.rows.with_columns(pl.col("turn_shaping", "trajectory_score").fill_null("–"))
    wide = rows.pivot("gym", index=["model", "section", "turn_shaping", "trajectory_score"], values="score")
    yield TableBlock(
        tuple(name.replace("_", " ") for name in wide.columns),
        tuple(
            tuple(number(cell, 4) if isinstance(cell, float) else str(cell or "–") for cell in row)
            for row in wide.rows()
        ),
        "As printed in UserRL table 3: published tasks, user GPT-4o, 16 turns, one attempt. With other tasks, users or horizons "
        "it is another benchmark, so nothing is subtracted here; `userrl sql \"from beside_published(run := '...')\"` shows which "
        "settings agree.",
    )


def comparison_sentences(report: ComparisonReport) -> list[str]:
    """Say what the comparison cannot tell, and how many seeds or tasks it would take."""
    comparison = report.comparison
    without = [unscored_sentence(name, reasons) for name, reasons in report.unscored.items() if reasons]
    if comparison.question == "none":
        return [
            *without,
            "One side is a single run, another a recipe over several seeds, so nothing is paired. Compare runs with runs, or "
            "recipes with recipes.",
        ]
    newest = "" if len(checkpoints_of(report.sides)) == 1 else ", last step"
    withheld = withheld_gyms(report)
    if withheld and not set(comparison.shared_gyms) - withheld.keys():
        return [*without, *_withheld(withheld, comparison)]
    sentences = [
        *without,
        *_withheld(withheld, comparison),
        *_not_shared(comparison),
        *(_would_decide(needed, newest) for needed in comparison.to_decide),
    ]
    if comparison.question == "recipes":
        return sentences
    if comparison.families:
        sentences.append(
            f"{comparison.families}. Variants of one task are no independent tasks, so these limits are too narrow. The policy "
            "of a gate may name their cluster."
        )
    if not comparison.paired:
        sentences.append(
            "The sides share no task, so nothing is paired. A shared task has the same gym, id and content."
        )
    if not any(run.recipe for side in report.sides for run in side.runs):
        return sentences
    if len({run.recipe for side in report.sides for run in side.runs}) > 1:
        return [
            *sentences,
            "Each recipe has one run, so this says nothing about the recipes. Their unit is the seed: compare 'recipe=...,seed=*'.",
        ]
    return [
        *sentences,
        "Each side has one run: this compares checkpoints, and says nothing about the recipe or its seeds.",
    ]


def _withheld(withheld: Mapping[str, Sequence[str]], comparison: Comparison) -> list[str]:
    """Name the gyms that are not subtracted, with the settings that differ."""
    if not withheld:
        return []
    rest = [gym for gym in comparison.shared_gyms if gym not in withheld]
    what = f"Scores of {', '.join(withheld)} are not subtracted" if rest else "Nothing is subtracted"
    covers = f"'{ALL}' covers {', '.join(rest)} alone. " if rest else ""
    return [
        f"{what}, because the protocols differ ({settings_by_gym(withheld)}). {covers}Play both sides with one protocol; "
        "userrl protocol A --against B has the values."
    ]


def _not_shared(comparison: Comparison) -> list[str]:
    """Name the gyms with tasks that not every side played. These tasks count in no comparison."""
    unshared_gyms = {name: gyms for name, gyms in comparison.unshared_gyms.items() if gyms}
    if not unshared_gyms:
        return []
    unshared = "; ".join(f"{', '.join(gyms)} ({name})" for name, gyms in unshared_gyms.items())
    shared = ", ".join(comparison.shared_gyms)
    return [f"'{ALL}' covers the tasks that every side played, from {shared}. Left out: tasks of {unshared}."]


def _would_decide(needed: SeedsToDecide | TasksToDecide, newest: str) -> str:
    return _more_seeds(needed, newest) if isinstance(needed, SeedsToDecide) else _more_tasks(needed)


def _more_tasks(needed: TasksToDecide) -> str:
    if needed.tasks < 2:
        return f"{needed.a} and {needed.b} share fewer than two tasks."
    if needed.resolution is None:
        return (
            f"{needed.b} compared with {needed.a}: with one attempt per task, task difficulty and chance cannot be "
            "separated; evaluate with --attempts 4 to see how many attempts or tasks a smaller difference needs."
        )
    sentence = str(needed.resolution)
    return f"{needed.b} compared with {needed.a}: {sentence[0].lower()}{sentence[1:]}"


def _more_seeds(needed: SeedsToDecide, newest: str) -> str:
    """Say how many seeds would show the observed difference, and how many equality.

    Both are given at the observed standard deviation and at its upper limit. newest: names the checkpoint.
    """
    text = f"{needed.b} compared with {needed.a}{newest}: the standard deviation over seeds is {number(needed.deviation)}; "
    if needed.decided == "differ":
        few = "" if needed.seeds >= SIGNS else f"; a sign test, which assumes no normal distribution, needs {SIGNS}"
        return text + f"{needed.seeds} seeds show that the two differ (Student's t{few})."
    if needed.decided == "equal" or needed.to_equal is None:
        return text + f"{needed.seeds} seeds show that the two differ by less than {EQUAL}."
    if needed.to_differ is not None:
        text += (
            f"detecting a true difference of {number(needed.effect)} takes {needed.to_differ[0]:,} seeds (up to "
            f"{needed.to_differ[1]:,} at the upper 80 % limit of the standard deviation), "
        )
    return text + f"a difference of {EQUAL} takes {needed.to_equal[0]:,} (up to {needed.to_equal[1]:,})."
