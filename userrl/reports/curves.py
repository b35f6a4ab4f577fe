"""Learning curves of runs, read from the warehouse and drawn with the start of each stage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from analysis.measure.interval import t_interval
from userrl.reports.document import Figure
from userrl.reports.figures import Line, Panel, panels
from userrl_core.number_format import number
from userrl_core.records import branch_of

if TYPE_CHECKING:
    from analysis.measure.comparison import ComparedSide
    from warehouse import Warehouse

PHASES = {"train": "training, mean score of a step", "validate": "validation, mean score"}
SMOOTHED = "Training: raw values, and a Gaussian average with a sigma of 2 steps."

BARS = " ▁▂▃▄▅▆▇█"

POINTS = """
SELECT phase, stage, step, avg(score), max(horizon) FROM trajectories
WHERE run_id = $run AND phase IN ('train', 'validate') AND admitted AND score IS NOT NULL GROUP BY ALL ORDER BY step, stage
"""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The mean score of one step in training or validation, with the step's horizon."""

    phase: str
    stage: str
    step: int
    score: float
    horizon: int

    @property
    def branch(self) -> str:
        """The branch of the step's stage, "" before the run branched."""
        return branch_of(self.stage)


@dataclass(frozen=True, slots=True)
class RunCurve:
    """The mean score by step of one run, in training or validation. stages: name, horizon and first step of each."""

    side: str
    seed: int
    phase: str
    points: tuple[tuple[int, float], ...]
    stages: tuple[tuple[str, int, int], ...]


def curve_points(warehouse: Warehouse, run_id: str) -> list[CurvePoint]:
    """Return the mean score of every step in training and validation."""
    return [CurvePoint(*row) for row in warehouse.sql(POINTS, run=run_id).fetchall()]


def along(points: Sequence[CurvePoint], branch: str) -> list[CurvePoint]:
    """Return the points of a branch and of the stages before the fork."""
    return [point for point in points if point.branch in ("", branch)]


def run_curves(points: Sequence[CurvePoint], side: str, seed: int, branch: str) -> Iterator[RunCurve]:
    """Yield a run's curves in training and validation. A curve without points is left out."""
    branch_points = along(points, branch)
    first: dict[str, tuple[str, int, int]] = {}
    for point in branch_points:
        if point.phase == "train":
            first.setdefault(point.stage, (point.stage, point.horizon, point.step))
    for phase in PHASES:
        if values := tuple({point.step: point.score for point in branch_points if point.phase == phase}.items()):
            yield RunCurve(side, seed, phase, values, tuple(first.values()))


def side_curves(warehouse: Warehouse, side: ComparedSide) -> Iterator[RunCurve]:
    """Yield the curves of a side's runs that RL trained."""
    for run in side.runs:
        if run.branch is not None:
            yield from run_curves(curve_points(warehouse, run.run_id), side.name, run.seed, run.branch)


def mean_line(label: str, curves: Sequence[RunCurve]) -> Line:
    """Return the mean over seeds at every common step. Several seeds are also drawn singly, with a band."""
    if not curves:
        return Line(label, ())
    training = curves[0].phase == "train"
    if len(curves) == 1:
        return Line(label, curves[0].points, smooth=training, markers=not training)
    by_step = [dict(curve.points) for curve in curves]
    steps = sorted(set.intersection(*map(set, by_step)))
    values_TS = np.array([[scores_by_step[step] for scores_by_step in by_step] for step in steps])
    limits = [t_interval(values_S) for values_S in values_TS]
    return Line(
        label,
        [(step, limit.estimate) for step, limit in zip(steps, limits, strict=True)],
        single=() if training else [curve.points for curve in curves],
        band=[(step, max(0.0, limit.low), min(1.0, limit.high)) for step, limit in zip(steps, limits, strict=True)],
        smooth=training,
        markers=not training,
    )


def stage_marks(curves: Sequence[RunCurve]) -> list[tuple[float, str]]:
    """Return the first step and the horizon of each stage. Stages that begin together share a line."""
    stages = dict.fromkeys(stage for curve in curves for stage in curve.stages)
    first: dict[int, list[str]] = {}
    for name, horizon, step in stages:
        text = f"{name}: {horizon} turns"
        if text not in first.setdefault(step, []):
            first[step].append(text)
    return [(step, text) for step in sorted(first) for text in first[step]]


def curve_panels(
    curves: Sequence[RunCurve], labels: Mapping[str, str] | None = None, level: Mapping[str, float] | None = None
) -> list[Panel]:
    """Return the panels of training and validation, with a line for each side.

    labels: the sides with their labels, by default the names of the curves' sides. level: horizontal lines in training.
    """
    labels = labels or {curve.side: curve.side for curve in curves}
    marks = stage_marks(curves)
    return [
        Panel(
            title,
            [
                mean_line(label, [curve for curve in curves if (curve.side, curve.phase) == (side, phase)])
                for side, label in labels.items()
            ],
            marks=marks,
            level=level or {} if phase == "train" else {},
        )
        for phase, title in PHASES.items()
    ]


def curves_figure(drawn: Sequence[Panel], caption: str) -> Figure:
    """Return the figure of the panels, and its lines for a terminal."""
    return Figure(partial(panels, drawn), caption, panel_lines(drawn))


def horizon_note(points: Iterable[tuple[str, int | None]]) -> str:
    """Return a warning if training and validation used different horizons, else "". points: phase and horizon of each step."""
    horizons: dict[str, set[int]] = {phase: set() for phase in PHASES}
    for phase, horizon in points:
        if horizon is not None:
            horizons[phase].add(horizon)
    if not all(horizons.values()) or horizons["train"] == horizons["validate"]:
        return ""
    training, validation = (
        " or ".join(filter(None, (", ".join(map(str, ordered[:-1])), str(ordered[-1]))))
        for ordered in map(sorted, horizons.values())
    )
    return (
        f"Training conversations have at most {training} turns, validation ones {validation}: the two curves are not "
        "comparable."
    )


def panel_lines(drawn: Sequence[Panel]) -> tuple[str, ...]:
    """Return each curve of the panels as one line of text."""
    return tuple(
        curve_line(panel.title.partition(", mean")[0], [value for _, value in line.points], line.label)
        for panel in drawn
        for line in panel.lines
        if line.points
    )


def curve_line(name: str, values: Sequence[float], label: str) -> str:
    """Return a curve as one line of text, with its first and last value."""
    return f"{name:10} {spark(values)} {number(values[0])} → {number(values[-1])}  {label}".rstrip()


def spark(values: Sequence[float]) -> str:
    """Return a curve as one line of text, with at most 60 marks, scaled to the range of its values."""
    step = max(1, -(-len(values) // 60))
    samples = values[::step]
    low, high = min(samples), max(samples)
    scale = (len(BARS) - 2) / (high - low) if high > low else 0.0
    return "".join(BARS[1 + round((value - low) * scale)] for value in samples)
