"""Chart options: plain data for ECharts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.drawing import COLORS

QUIET = "#7b8490"
ALARM = "#d4524a"
LINE = "rgba(128,136,148,.25)"
GOOD, BAD = COLORS[2], COLORS[6]
LABELS = {"reward": "Reward", "shaped": "Shaped credit", "advantage": "Advantage", "score": "Score"}
"""Series names of the bars per turn or attempt."""

LABEL_LINE, LETTER = 14, 6.5
"""Pixels: the height of a label's line, and the approximate width of a letter."""
WIDE, NARROW = 680.0, 280.0
"""Width in pixels of the narrowest chart on a desktop and on a phone. Labels that fit there also fit in a wider chart."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line at a step. text: its label. kind: stage or alarm. note: the text in the sentence below the chart, if it
    says more than the label.
    """

    step: float
    text: str
    kind: str
    note: str = ""


def bare(name: str) -> str:
    """Return a curve's name without its phase."""
    return name.removesuffix(" (training)").removesuffix(" (validation)")


def colors(series: Iterable[str]) -> dict[str, str]:
    """Assign a colour to each name. The two phases of a curve share one colour."""
    return {name: COLORS[n % len(COLORS)] for n, name in enumerate(dict.fromkeys(map(bare, series)))}


def curves(
    series: Mapping[str, Sequence[tuple[float, float | None]]], marks: Sequence[Mark], *, from_0_to_1: bool = False
) -> dict[str, Any]:
    """Return a chart of lines over steps.

    series: points by name; a name that ends in ``(training)`` is drawn thin. from_0_to_1: fix the value axis to [0, 1] if
    all values are inside.
    """
    lines: list[dict[str, Any]] = []
    color = colors(series)
    for name, points in series.items():
        thin = name.endswith("(training)")
        lines.append(
            {
                "name": name,
                "type": "line",
                "data": [list(point) for point in points],
                "symbolSize": 4 if thin else 7,
                "showSymbol": len(points) < 200,
                "lineStyle": {"width": 1.25 if thin else 2.5, "type": [4, 3] if thin else "solid"},
                "itemStyle": {"color": color[bare(name)]},
                "connectNulls": True,
            }
        )
    steps = [step for points in series.values() for step, _ in points]
    values = [value for points in series.values() for _, value in points if value is not None]
    fixed: dict[str, Any] = (
        {"min": 0, "max": 1} if from_0_to_1 and all(0 <= value <= 1 for value in values) else {"scale": True}
    )
    ends = min(steps, default=0.0), max(steps, default=0.0)
    wide, top = _mark_lines(marks, *ends, WIDE)
    narrow, top_of_narrow = _mark_lines(marks, *ends, NARROW)
    if lines and marks:
        lines[0]["markLine"] = wide
    return {
        **_over_steps(top),
        "yAxis": {"type": "value", **fixed, **_axis()},
        "series": lines,
        "media": [
            {
                "query": {"maxWidth": 760},
                "option": {"grid": {"top": top_of_narrow}, "series": [{"markLine": narrow}] if lines and marks else []},
            }
        ],
    }


def _mark_lines(marks: Sequence[Mark], low: float, high: float, across: float) -> tuple[dict[str, Any], int]:
    """Return the labelled lines for a chart of this width, and the pixels needed above its curves."""
    placed = _placed(marks, low, high, across)
    lines = {
        "symbol": "none",
        "silent": True,
        "label": {"formatter": "{b}", "position": "end", "rotate": 0, "fontSize": 11, "lineHeight": LABEL_LINE},
        "data": [
            {
                "name": mark.text,
                "xAxis": mark.step,
                "lineStyle": {"color": ALARM if mark.kind == "alarm" else QUIET, "type": "dashed"},
                "label": {
                    "color": ALARM if mark.kind == "alarm" else QUIET,
                    "distance": height + 6,
                    "align": align,
                },
            }
            for mark, height, align in placed
        ],
    }
    return lines, max((height + _height(mark) for mark, height, _ in placed), default=0) + 22


def _placed(marks: Sequence[Mark], low: float, high: float, across: float) -> list[tuple[Mark, int, str]]:
    """Place each mark's label: its height in pixels above the chart, and its alignment to the line.

    Labels that would overlap are stacked, and no label crosses the edge of the chart.
    """
    placed: list[tuple[Mark, int, str]] = []
    occupied: list[tuple[float, float, int, int]] = []
    for mark in sorted(marks, key=lambda mark: (mark.step, mark.kind != "stage")):
        at = across * (mark.step - low) / (high - low) if high > low else 0.0
        width = LETTER * max(map(len, mark.text.split("\n")))
        left = min(max(at - width / 2, 0.0), across - width)
        align = "left" if left == 0.0 else "center" if left == at - width / 2 else "right"
        left = {"left": at, "center": left, "right": at - width}[align]
        height = 0
        for begins, ends, low_edge, top_edge in sorted(occupied, key=lambda label: label[2]):
            if left < ends and begins < left + width and height < top_edge and low_edge < height + _height(mark):
                height = top_edge
        placed.append((mark, height, align))
        occupied.append((left, left + width, height, height + _height(mark)))
    return placed


def _height(mark: Mark) -> int:
    return LABEL_LINE * (mark.text.count("\n") + 1)


def _over_steps(top: int) -> dict[str, Any]:
    """Return the frame of a chart over steps. top: pixels above its curves."""
    return {
        "animation": False,
        "grid": {"left": 44, "right": 28, "top": top, "bottom": 44},
        "legend": {"show": False},
        "tooltip": {"trigger": "axis", "confine": True},
        "xAxis": {
            "type": "value",
            "name": "Step",
            "nameLocation": "middle",
            "nameGap": 24,
            "min": "dataMin",
            "max": "dataMax",
            **_axis(),
        },
    }


def shares(steps: Sequence[int], parts: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return a chart of stacked shares over steps. parts: one share per step, by name."""
    return {
        **_over_steps(16),
        "yAxis": {"type": "value", "min": 0, "max": 100, **_axis()},
        "series": [
            {
                "name": name,
                "type": "line",
                "stack": "all",
                "data": [[step, round(100 * share, 1)] for step, share in zip(steps, values, strict=True)],
                "symbolSize": 5,
                "areaStyle": {"opacity": 0.55},
                "lineStyle": {"width": 1},
                "itemStyle": {"color": color},
            }
            for (name, values), color in zip(parts.items(), colors(parts).values(), strict=True)
        ],
    }


def turn_bars(turns: Sequence[int], values: Mapping[str, Sequence[float | None]]) -> dict[str, Any]:
    """Return a chart of bars per turn, with one series per name. Advantages have an axis of their own, on the right.

    Each axis ends at its largest value, so that rewards of 1/16 are seen beside advantages of 2.
    """
    own = {name: name == "advantage" and len(values) > 1 for name in values}
    signed = any(value is not None and value < 0 for data in values.values() for value in data)
    axes = [
        _value_axis([values[name] for name in values if own[name] is right], signed=signed, right=right)
        for right in dict.fromkeys((False, *own.values()))
    ]
    return {
        "animation": False,
        "grid": {"left": 48, "right": 48 if len(axes) > 1 else 16, "top": 28, "bottom": 28},
        "legend": {"top": 0, "textStyle": {"color": QUIET}},
        "tooltip": {"trigger": "axis", "confine": True},
        "xAxis": {"type": "category", "data": list(turns), **_axis()},
        "yAxis": axes,
        "series": [
            bars | {"yAxisIndex": int(own[name])} for name, data in values.items() for bars in _bars(name, data)
        ],
        # The names need up to three lines there.
        "media": [
            {"query": {"maxWidth": 480}, "option": {"grid": {"top": 68}}},
            {"option": {"grid": {"top": 28}}},
        ],
    }


def _value_axis(data: Sequence[Sequence[float | None]], *, signed: bool, right: bool) -> dict[str, Any]:
    """Return an axis from 0 to the largest value, rounded up to two digits. signed: it goes as far below 0, so that zeros agree."""
    largest = _rounded_up(
        max((abs(value) for values in data for value in values if value is not None), default=0.0) or 1.0
    )
    split = {} if not right else {"splitLine": {"show": False}}
    return {
        "type": "value",
        "min": -largest if signed else 0,
        "max": largest,
        "interval": round(largest / 2, 10),
        "position": "right" if right else "left",
        **_axis(),
        **split,
    }


def _rounded_up(value: float) -> float:
    """Round a positive value up to two significant digits, which an axis can show."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return round(math.ceil(round(value / unit, 6)) * unit, 10)


def _bars(name: str, data: Sequence[float | None]) -> list[dict[str, Any]]:
    """Return the series of bars with this name. Positive and negative advantages are two series, so that the legend has
    both colours as drawn.
    """
    label = LABELS.get(name, name)
    if name != "advantage":
        color = COLORS[1] if name == "shaped" else COLORS[0]
        return [{"name": label, "type": "bar", "data": list(data), "itemStyle": {"color": color}}]
    signs = {
        f"{label}, positive": (GOOD, [v if v is not None and v >= 0 else None for v in data]),
        f"{label}, negative": (BAD, [v if v is not None and v < 0 else None for v in data]),
    }
    return [
        {"name": sign, "type": "bar", "stack": name, "data": part, "itemStyle": {"color": color}}
        for sign, (color, part) in signs.items()
        if any(v is not None for v in part)
    ]


def of_columns(rows: Sequence[Sequence[Any]], x: int, y: int, kind: str, names: Sequence[str]) -> dict[str, Any]:
    """Return a chart of one column over another. kind: line, bar or scatter."""
    numeric = all(isinstance(row[x], (int, float)) and not isinstance(row[x], bool) for row in rows)
    points = [[row[x], row[y]] if numeric else row[y] for row in rows]
    axis: dict[str, Any] = {"type": "value", "scale": True} if numeric and kind != "bar" else {"type": "category"}
    if axis["type"] == "category":
        axis |= {"data": [str(row[x]) for row in rows]}
        points = [row[y] for row in rows]
    return {
        "animation": False,
        "grid": {"left": 56, "right": 16, "top": 24, "bottom": 48},
        "tooltip": {"trigger": "item" if kind == "scatter" else "axis", "confine": True},
        "xAxis": {**axis, "name": names[x], "nameLocation": "middle", "nameGap": 28, **_axis()},
        "yAxis": {"type": "value", "name": names[y], "scale": kind != "bar", **_axis()},
        "series": [{"type": kind, "name": names[y], "data": points, "itemStyle": {"color": COLORS[0]}}],
    }


def spark_points(values: Sequence[float]) -> str:
    """Return the points of a sparkline in a box of 100 by 24."""
    if len(values) < 2:
        return ""
    low, high = min(values), max(values)
    scale = 20 / (high - low) if high > low else 0.0
    return " ".join(f"{100 * n / (len(values) - 1):.1f},{22 - (v - low) * scale:.1f}" for n, v in enumerate(values))


def _axis() -> dict[str, Any]:
    return {
        "axisLabel": {"color": QUIET},
        "nameTextStyle": {"color": QUIET},
        "axisLine": {"lineStyle": {"color": QUIET}},
        "splitLine": {"lineStyle": {"color": LINE}},
    }
