"""A comparison as a page: what collapsed first, then scores, differences, what it would take, curves, cost, what was played."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl

from flows.run.reports.comparison import ALL, WHICH, Collapse, Comparison, Curve, Paired
from flows.run.reports.document import Block, Document, Figure, Heading, Items, Table, Text
from flows.run.reports.figures import Line, Panel, intervals, panels
from flows.run.reports.sides import Published
from flows.run.spark import spark
from userrl_core.measure.interval import Interval, t_interval


def page(found: Comparison, published: Sequence[Published] = ()) -> Document:
    """The whole comparison; the published rows stand in a section of their own and enter no difference."""
    fallen = any(each.seeds for each in found.collapses)
    blocks: list[Block] = [*_who(found), *_collapses(found)]
    blocks += _curves(found) if fallen else ()  # a fall is seen in the curve before it is read in a table
    blocks += [*_scores(found), *_differences(found)]
    blocks += _curves(found) if not fallen else ()
    blocks += [*_agreement(found), *_spent(found), *_settings(found)]
    blocks += [block for each in published for block in _published(each)]
    return Document("Comparison: " + " against ".join(side.name for side in reversed(found.sides)), tuple(blocks))


def _letters(found: Comparison) -> dict[str, str]:
    """A, B, C ... by the side's name."""
    return {side.name: chr(ord("A") + number) for number, side in enumerate(found.sides)}


def _who(found: Comparison) -> Iterator[Block]:
    letters = _letters(found)
    yield Items(
        tuple(
            f"{letters[side.name]}: {side.name}"
            + (f", {len(side.members)} seeds: {', '.join(str(m.seed) for m in side.members)}" if side.of_recipe else "")
            for side in found.sides
        )
    )


def _collapses(found: Comparison) -> Iterator[Block]:
    if not found.collapses:
        return
    letters = _letters(found)
    if not any(each.seeds for each in found.collapses):
        shares = "; ".join(
            f"{letters[each.side]}: 0 of {each.share.units}, {limits(each.share)}" for each in found.collapses
        )
        yield Text(f"No seed collapsed (share and its limits: {shares}).")
        return
    yield Heading("Collapsed seeds")
    for each in found.collapses:
        if each.seeds:
            yield Text(
                f"{letters[each.side]} {each.side}: {len(each.seeds)} of {each.share.units} seeds did not hold what they had "
                f"reached: {_falls(each)}.",
                strong=True,
            )
    yield Table(
        ("side", "collapsed", "share [95 %]", f"p beside {letters[found.collapses[0].side]}"),
        tuple(
            (
                f"{letters[each.side]} {each.side}",
                f"{len(each.seeds)} of {each.share.units}",
                f"{each.share.estimate:.3f} {limits(each.share)}",
                "–" if math.isnan(each.p) else f"{each.p:.2g}",
            )
            for each in found.collapses
        ),
        "Collapsed: on the held-out tasks the last step lies below the run's own best checkpoint by more than .1 and by more "
        "than three standard errors of the paired difference. Limits: Clopper and Pearson. p: Fisher's exact test.",
    )


def _falls(each: Collapse) -> str:
    """Each seed's fall, or what they fell from and to where there are many."""
    if len(each.seeds) < 4:
        return "; ".join(f"seed {seed} fell from {best:.3f} to {last:.3f}" for seed, (best, last) in each.seeds.items())
    best, last = (sorted(values) for values in zip(*each.seeds.values(), strict=True))
    return f"from {best[0]:.3f} to {best[-1]:.3f} at their best, from {last[0]:.3f} to {last[-1]:.3f} at the last step"


def _scores(found: Comparison) -> Iterator[Block]:
    yield Heading("Held-out scores")
    rows = list(dict.fromkeys(score.row for score in found.scores))
    cells = {(score.side, score.which, score.row): str(score.interval) for score in found.scores}
    table = [
        (row, letter, *(cells.get((name, which, row), "–") for which in WHICH), _units(found, name, row))
        for row in rows
        for name, letter in _letters(found).items()
    ]
    yield Table(
        ("on", "side", "best on validation", "last step", "units"),
        tuple(table),
        "Mean of the gyms' metrics with 95 % limits: over tasks for a single run (Wilson for few verdicts, else Student's t), "
        "over seeds for a recipe (Student's t).",
    )


def _units(found: Comparison, side: str, row: str) -> str:
    score = next((each for each in found.scores if (each.side, each.row) == (side, row)), None)
    if score is None:
        return "–"
    many = next(each for each in found.sides if each.name == side).of_recipe
    return f"{score.interval.units} {'seeds' if many else 'tasks'}"


def _differences(found: Comparison) -> Iterator[Block]:
    if found.paired:
        over = "seeds" if found.question == "recipes" else "tasks"
        yield Heading("Do these recipes differ?" if found.question == "recipes" else "Do these checkpoints differ?")
        several, letters = len(found.sides) > 2, _letters(found)
        rows = [
            (
                each.row,
                f"{letters[each.b]} − {letters[each.a]}",
                {"best": "best on validation", "last": "last step"}[each.which],
                signed(each.interval),
                "–" if math.isnan(each.p) else f"{each.p:.2g}",
                *(["–" if math.isnan(each.signs) else f"{each.signs:.2g}"] if over == "seeds" else []),
                str(each.interval.units),
                str(each.left_out),
            )
            for each in _in_rows(found.paired)
        ]
        test = (
            "Student's t over paired seed differences; p, signs: exact, their signs flipped"
            if over == "seeds"
            else "swapping the two within tasks (exact for verdicts)"
        )
        methods = ", ".join(dict.fromkeys(each.interval.method for each in found.paired))
        yield Table(
            (
                "on",
                "difference",
                "checkpoint",
                "estimate [95 %]",
                "p",
                *(["p, signs"] if over == "seeds" else []),
                over,
                "left out",
            ),
            tuple(rows),
            f"The unit is the {over[:-1]}. Limits: {methods}. p: {test}{'; adjusted by Holm' if several else ''}. Left out: "
            f"{over} that only one of the two has.",
        )
        overall = [each for each in found.paired if each.row == ALL]
        if all(math.isfinite(each.interval.low) for each in overall):
            drawn = [
                (
                    f"{letters[each.b]} − {letters[each.a]}, {'best' if each.which == 'best' else 'last step'}",
                    each.interval.estimate,
                    each.interval.low,
                    each.interval.high,
                )
                for each in overall
            ]
            yield Figure(intervals(drawn, x="difference of mean score, 95 %", zero=True), f"Over {over}, {ALL}.")
    if found.sentences:
        yield Items(found.sentences)


def _in_rows(paired: Sequence[Paired]) -> list[Paired]:
    rows = list(dict.fromkeys(each.row for each in paired))
    return sorted(paired, key=lambda each: rows.index(each.row))


def _curves(found: Comparison) -> Iterator[Block]:
    if not found.curves:
        return
    yield Heading("Learning curves")
    drawn = []
    for phase, title in (("train", "training, mean score of a step"), ("validate", "validation, mean score")):
        lines = [
            line(f"{letter} {name}", [c for c in found.curves if (c.side, c.phase) == (name, phase)])
            for name, letter in _letters(found).items()
        ]
        drawn.append(Panel(title, lines, marks=marks(found.curves)))
    many = found.question != "checkpoints"
    yield Figure(
        panels(drawn),
        "Training: raw values behind a Gaussian of sigma 2 steps. Stages and their horizons are marked where they begin."
        + (" Thin: single seeds; band: 95 % limits of the mean over seeds (Student's t)." if many else ""),
        tuple(
            f"{panel.title.partition(',')[0]:10} {spark(values)} {values[0]:.3f} → {values[-1]:.3f}  {each.label}"
            for panel in drawn
            for each in panel.lines
            if (values := [value for _, value in each.points])
        ),
    )


def line(label: str, curves: Sequence[Curve]) -> Line:
    """The mean over seeds at every step that all have, with single seeds and a band where there are several."""
    if not curves:
        return Line(label, ())
    training = curves[0].phase == "train"
    if len(curves) == 1:
        return Line(label, curves[0].points, smooth=training, markers=not training)
    by_step = [dict(curve.points) for curve in curves]
    steps = sorted(set.intersection(*map(set, by_step)))
    values_TS = np.array([[each[step] for each in by_step] for step in steps])
    limits = [t_interval(values_S) for values_S in values_TS]
    return Line(
        label,
        [(step, limit.estimate) for step, limit in zip(steps, limits, strict=True)],
        single=() if training else [curve.points for curve in curves],
        band=[(step, max(0.0, limit.low), min(1.0, limit.high)) for step, limit in zip(steps, limits, strict=True)],
        smooth=training,
        markers=not training,
    )


def marks(curves: Sequence[Curve]) -> list[tuple[float, str]]:
    """Where stages begin, with their horizons; stages that begin together share a line."""
    stages = dict.fromkeys(stage for curve in curves for stage in curve.stages)
    first: dict[int, list[str]] = {}
    for name, horizon, step in stages:
        text = f"{name}: {horizon} turns"
        if text not in first.setdefault(step, []):
            first[step].append(text)
    return [(step, text) for step in sorted(first) for text in first[step]]


def _agreement(found: Comparison) -> Iterator[Block]:
    if not found.agreement:
        return
    yield Heading("How alike the attempts at one task are")
    rows = [
        (
            _letters(found)[each.side],
            str(each.attempts),
            f"{each.consistency.flips:.3f}",
            f"{each.consistency.icc:.3f}",
            f"{each.consistency.design_effect:.2f}",
        )
        for each in found.agreement
    ]
    yield Table(
        ("side", "attempts", "flip rate", "ICC(1)", "design effect"),
        tuple(rows),
        "Flip rate: the chance that two attempts at a task disagree. ICC(1): the share of the variance between tasks. Design "
        "effect: how many attempts count as one independent verdict.",
    )


def _spent(found: Comparison) -> Iterator[Block]:
    if not any(each.trajectories for each in found.spent):
        return
    yield Heading("What training one run took")
    roles = sorted({role for each in found.spent for role in each.dollars})
    rows = [
        (
            _letters(found)[each.side],
            f"{each.trajectories:,.0f}",
            f"{each.tokens_sampled:,.0f}",
            f"{each.tokens_read:,.0f}",
            "–" if each.cpu_seconds is None else f"{each.cpu_seconds:,.0f}",
            *(f"${each.dollars.get(role, 0.0):,.2f}" for role in roles),
        )
        for each in found.spent
    ]
    unpriced = sum(each.unpriced_calls for each in found.spent)
    yield Table(
        ("side", "trajectories", "tokens sampled", "tokens read", "CPU seconds", *roles),
        tuple(rows),
        "Mean over the side's runs. Tokens: of RL, superseded steps included (they were paid for). CPU seconds: of all stages."
        + (f" {unpriced} calls have no known price and count nothing." if unpriced else ""),
    )


def _settings(found: Comparison) -> Iterator[Block]:
    yield Heading("What was played")
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
    rows = [(_letters(found)[side], *row) for side, *row in found.settings.select(*columns).rows()]
    yield Table(tuple(columns.values()), tuple(tuple(map(str, row)) for row in rows))
    ways = found.settings.group_by("gym").agg(
        pl.struct("data", "user_model", "horizon", "benchmark_version").n_unique()
    )
    if different := sorted(gym for gym, count in ways.iter_rows() if count > 1):
        yield Text(
            f"Not alike: {', '.join(different)} was played with different data, users, horizons or versions of the tasks; "
            "what differs above may be that.",
            strong=True,
        )
    notes = [
        *(sentence for side in found.sides for sentence in side.left_out),
        *(
            f"{_letters(found)[side.name]}: {', '.join(member.run_id for member in side.members)}"
            for side in found.sides
            if side.of_recipe or side.members[0].run_id not in side.name
        ),
    ]
    if notes:
        yield Items(tuple(notes))


def _published(each: Published) -> Iterator[Block]:
    yield Heading(f"Published: {each.name.partition(':')[2]}")
    rows = each.rows.with_columns(pl.col("turn_shaping", "trajectory_score").fill_null("–"))
    wide = rows.pivot("gym", index=["model", "section", "turn_shaping", "trajectory_score"], values="score")
    yield Table(
        tuple(name.replace("_", " ") for name in wide.columns),
        tuple(
            tuple(f"{cell:.4f}" if isinstance(cell, float) else str(cell or "–") for cell in row) for row in wide.rows()
        ),
        "As printed in UserRL table 3: published tasks, user GPT-4o, 16 turns, one attempt. Other tasks, users or horizons are "
        "another benchmark, so nothing is subtracted here; `userrl sql \"from beside_published(run := '...')\"` says what "
        "agrees.",
    )


def signed(interval: Interval) -> str:
    """A difference with its limits."""
    return f"{interval.estimate:+.3f} {limits(interval)}".replace("-", "−")


def limits(interval: Interval) -> str:
    """The limits alone: of a share without signs, of a difference with them."""
    sign = "+" if interval.method != "Clopper-Pearson" else ""
    return f"[{interval.low:{sign}.3f}, {interval.high:{sign}.3f}]"


def as_json(found: Comparison) -> dict[str, Any]:
    """For programs: everything but the curves' points; limits that are infinite are null."""
    return {
        "question": found.question,
        "sides": {side.name: [member.run_id for member in side.members] for side in found.sides},
        "collapsed": [
            {
                "side": each.side,
                "seeds": {seed: {"best": best, "last": last} for seed, (best, last) in each.seeds.items()},
                **_numbers(each.share),
                "p": _finite(each.p),
            }
            for each in found.collapses
        ],
        "scores": [
            {"side": each.side, "checkpoint": each.which, "on": each.row, **_numbers(each.interval)}
            for each in found.scores
        ],
        "differences": [
            {
                "a": each.a,
                "b": each.b,
                "checkpoint": each.which,
                "on": each.row,
                **_numbers(each.interval),
                "p": _finite(each.p),
                "p_signs": _finite(each.signs),
                "left_out": each.left_out,
            }
            for each in found.paired
        ],
        "agreement": [
            {
                "side": each.side,
                "attempts": each.attempts,
                "flip_rate": each.consistency.flips,
                "icc": each.consistency.icc,
                "design_effect": each.consistency.design_effect,
            }
            for each in found.agreement
        ],
        "sentences": list(found.sentences),
        "spent": [
            {
                "side": each.side,
                "trajectories": each.trajectories,
                "tokens_sampled": each.tokens_sampled,
                "tokens_read": each.tokens_read,
                "cpu_seconds": each.cpu_seconds,
                "dollars": dict(each.dollars),
            }
            for each in found.spent
        ],
        "played": found.settings.to_dicts(),
    }


def _numbers(interval: Interval) -> dict[str, Any]:
    return {
        "estimate": interval.estimate,
        "low": _finite(interval.low),
        "high": _finite(interval.high),
        "units": interval.units,
        "method": interval.method,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
