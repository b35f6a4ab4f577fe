"""Figures as SVG text inside a page, without network or script. Letters stay letters.

Curves are lists of (step, value); a band is a list of (step, low, high).
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from analysis.drawing import COLORS, QUIET, RULE, drawing, in_both, name_lines
from userrl.machine.foreign_text import plain
from userrl_core.replaced_file import replacing

SIGMA = 2.0
"""Sigma of the Gaussian that smooths training curves, in logged steps (UserRL appendix F)."""
DOTS_PER_INCH = 160
LETTERS = 70
"""Letters of a stage's name that fit across a panel."""
FORMATS: Mapping[str, dict[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""The formats of a drawing's file by suffix, with metadata that is left out so that equal drawings are equal files."""


@dataclass(frozen=True, slots=True)
class Line:
    """One curve. single: curves of its seeds, drawn thin. band: limits around it. smooth: draw a smoothed curve over
    the raw one.
    """

    label: str
    points: Sequence[tuple[float, float]]
    single: Sequence[Sequence[tuple[float, float]]] = ()
    band: Sequence[tuple[float, float, float]] = ()
    smooth: bool = False
    markers: bool = False
    names: Sequence[str] = ()
    """A short text beside each point; none by default."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves over the same steps. marks: labels of steps, such as the start of a stage."""

    title: str
    lines: Sequence[Line]
    x: str = "training step"
    marks: Sequence[tuple[float, str]] = ()
    level: Mapping[str, float] = field(default_factory=dict)
    """Values drawn as dotted horizontal lines, by label."""


def smoothed(values: Sequence[float]) -> list[float]:
    """Smooth with a Gaussian of sigma 2. The end values are repeated."""
    smooth = scipy.ndimage.gaussian_filter1d(np.asarray(values, dtype=float), SIGMA, mode="nearest")
    return [float(value) for value in smooth]


def panels(drawn: Sequence[Panel], *, columns: int = 2, height: float = 2.9, path: Path | None = None) -> str:
    """Draw panels in a grid. Where a panel has several curves, each has its name at its right end.

    path: a file to write as well. Its suffix chooses the format, which must be one of `FORMATS`.
    """
    from matplotlib.figure import Figure

    rows = -(-len(drawn) // columns)
    across = min(columns, len(drawn))
    with drawing():
        figure = Figure(figsize=(9.4 if across > 1 else 7.2, height * rows + 0.3), layout="constrained")
        grid = figure.subplots(rows, across, squeeze=False)
        for axes, panel in zip(grid.flat, drawn, strict=False):
            _panel(axes, panel)
        for axes in list(grid.flat)[len(drawn) :]:
            axes.set_axis_off()
        if path is not None:
            picture, suffix = io.BytesIO(), path.suffix.lower()
            figure.savefig(picture, format=suffix[1:], dpi=DOTS_PER_INCH, metadata=FORMATS[suffix])
            content = picture.getvalue()
            with replacing(path) as file:
                file.write(in_both(content.decode()).encode() if suffix == ".svg" else content)
        return _svg(figure)


def _panel(axes: Any, panel: Panel) -> None:
    for number, line in enumerate(panel.lines):
        color = COLORS[number % len(COLORS)]
        if not line.points:
            axes.plot([], [], color=color, label=plain(line.label))
            continue
        steps, values = zip(*line.points, strict=True)
        for seed_curve in line.single:
            axes.plot(*zip(*seed_curve, strict=True), color=color, lw=0.8, alpha=0.35)
        if line.band:
            at, low, high = zip(*line.band, strict=True)
            if line.smooth:
                low, high = tuple(smoothed(low)), tuple(smoothed(high))
            axes.fill_between(at, low, high, color=color, alpha=0.15, lw=0)
        if line.smooth and len(values) > 2:
            axes.plot(steps, values, color=color, lw=0.8, alpha=0.3)
            values = tuple(smoothed(values))
        axes.plot(
            steps,
            values,
            color=color,
            lw=1.8,
            label=plain(line.label),
            marker="o" if line.markers else None,
            markersize=3.5,
        )
        for at, value, name in zip(steps, values, line.names, strict=False):
            axes.annotate(
                plain(name), (at, value), xytext=(5, -10), textcoords="offset points", fontsize=7.5, color=color
            )
    if len(panel.lines) > 1:
        ends = [(number, line) for number, line in enumerate(panel.lines) if line.points]
        name_lines(
            axes,
            [
                (
                    plain(line.label),
                    smoothed([y for _, y in line.points])[-1] if line.smooth else line.points[-1][1],
                    COLORS[number % len(COLORS)],
                )
                for number, line in ends
            ],
        )
    for number, (name, value) in enumerate(panel.level.items()):
        axes.axhline(value, color=QUIET, lw=0.9, ls=(0, (1, 1 + number)))
        axes.annotate(
            plain(name),
            (1, value),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="bottom",
            fontsize=7.5,
            color=QUIET,
        )
    low, high = axes.get_ylim()
    name_rows = _mark_rows(panel.marks, axes.get_xlim())
    rows = max(name_rows, default=-1) + 1
    axes.set_ylim(low, high + (high - low) * 0.08 * rows)  # leave room for stage names above the curves
    for (step, name), row in zip(panel.marks, name_rows, strict=True):
        axes.axvline(step, color=RULE, lw=0.9, zorder=0.5)
        axes.annotate(
            plain(name),
            (step, 1 - 0.07 * row),
            xycoords=("data", "axes fraction"),
            xytext=(3, -1),
            textcoords="offset points",
            va="top",
            fontsize=7.5,
            color=QUIET,
        )
    axes.set_title(plain(panel.title))
    axes.set(xlabel=panel.x)


def _mark_rows(marks: Sequence[tuple[float, str]], limits: tuple[float, float]) -> list[int]:
    """Return the row of each mark's name: the first one in which it covers no other name."""
    letter = (limits[1] - limits[0]) / LETTERS
    ends: list[float] = []  # of the last name in each row
    name_rows = []
    for step, name in marks:
        row = next((row for row, end in enumerate(ends) if end <= step), len(ends))
        ends[row : row + 1] = [step + letter * (len(name) + 1)]
        name_rows.append(row)
    return name_rows


def intervals(rows: Sequence[tuple[str, float, float, float]], *, x: str, zero: bool = False) -> str:
    """Draw estimates with their limits, one per line. rows: label, estimate, low, high. zero: draw a line at zero."""
    from matplotlib.figure import Figure

    with drawing():
        figure = Figure(figsize=(7.2, 0.7 + 0.3 * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        for index, (_, estimate, low, high) in enumerate(rows):
            axes.plot([low, high], [index, index], color=COLORS[0], lw=2, solid_capstyle="butt", alpha=0.55)
            axes.plot([estimate], [index], "o", color=COLORS[0], markersize=5)
        axes.set_yticks(range(len(rows)), [plain(label) for label, *_ in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        if zero:
            axes.axvline(0, color=QUIET, lw=1, zorder=0.5)
        axes.set(xlabel=x)
        return _svg(figure)


ON_STRONG, ON_WEAK = "#fefefe", "#010101"
"""Colours of the text on a cell, which stay in dark. Both have a contrast of at least 4.5 at a luminance of .178."""


def matrix(
    rows: Sequence[str], columns: Sequence[str], cells: Sequence[Sequence[tuple[float, str]]], *, title: str
) -> str:
    """Draw a table of values as colours, blue above zero and red below. cells: value and text of each, row by row."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    values = np.array([[value for value, _ in row] for row in cells])
    largest = float(np.nanmax(np.abs(values), initial=0.01))
    with drawing():
        figure = Figure(figsize=(2.2 + 1.45 * len(columns), 1.0 + 0.55 * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        # Vector cells: the page's security policy blocks the embedded image that imshow draws.
        # Opaque, so that they are the same in dark.
        colors_RC3 = 0.25 + 0.75 * colormaps["RdBu"](0.5 + values / (2 * largest))[..., :3]
        axes.pcolormesh(colors_RC3)
        axes.invert_yaxis()
        axes.grid(visible=False)
        axes.set_xticks(
            [column_index + 0.5 for column_index in range(len(columns))], [plain(column) for column in columns]
        )
        axes.set_yticks([row_index + 0.5 for row_index in range(len(rows))], [plain(row) for row in rows])
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        for row_index, row in enumerate(cells):
            for at, (_, text) in enumerate(row):
                axes.text(
                    at + 0.5,
                    row_index + 0.5,
                    plain(text),
                    ha="center",
                    va="center",
                    fontsize=8,
                    color=ON_STRONG if _luminance(colors_RC3[row_index, at]) < 0.178 else ON_WEAK,
                )
        axes.set_xlabel(plain(title))
        return _svg(figure)


def _luminance(rgb: np.ndarray) -> float:
    """Return the relative luminance of a colour (WCAG 2.1)."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


def _svg(figure: Any) -> str:
    """Return the SVG element without the XML header of a separate file."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    drawn = text.getvalue()
    return in_both(re.sub(r"<metadata>.*?</metadata>", "", drawn[drawn.index("<svg") :], flags=re.DOTALL).strip())
