"""Options of the charts: plain data for ECharts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

COLORS = ("#2f6ca8", "#d07a1f", "#2e8b6a", "#a4508b", "#8a6d3b", "#5b5fc7", "#b3372f", "#4a8fa8")
"""Distinct in both themes, and in the common kinds of colour blindness with the line styles beside them."""
QUIET = "#8a929d"
ALARM = "#c2483f"
LINE = "rgba(128,136,148,.25)"

LABEL_LINE, LETTER = 14, 6.5
"""Pixels: the height of a label's line, and about the width of a letter."""
NARROW = 680.0
"""Pixels across of the narrowest chart that shows labels: where they are apart in it, they are in a wider one."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line at a step. kind: stage or alarm. labelled: whether the chart says its text, as well as the sentence below."""

    step: float
    text: str
    kind: str
    labelled: bool = True


def curves(series: Mapping[str, Sequence[tuple[float, float | None]]], marks: Sequence[Mark]) -> dict[str, Any]:
    """Lines over steps. series: points by name; a name that ends in ``(training)`` is drawn thin."""
    lines: list[dict[str, Any]] = []
    for n, (name, points) in enumerate(series.items()):
        thin = name.endswith("(training)")
        color = COLORS[(n // 2 if any(s.endswith("(training)") for s in series) else n) % len(COLORS)]
        lines.append(
            {
                "name": name,
                "type": "line",
                "data": [list(point) for point in points],
                "symbolSize": 4 if thin else 7,
                "showSymbol": len(points) < 200,
                "lineStyle": {"width": 1 if thin else 2.5, "type": "dotted" if thin else "solid"},
                "itemStyle": {"color": color},
                "connectNulls": True,
            }
        )
    steps = [step for points in series.values() for step, _ in points]
    placed = _placed(marks, min(steps, default=0.0), max(steps, default=0.0))
    if lines and marks:
        lines[0]["markLine"] = {
            "symbol": "none",
            "silent": True,
            "label": {
                "formatter": "{b}",
                "position": "end",
                "rotate": 0,
                "fontSize": 11,
                "lineHeight": LABEL_LINE,
            },
            "data": [
                {
                    "name": mark.text,
                    "xAxis": mark.step,
                    "lineStyle": {"color": ALARM if mark.kind == "alarm" else QUIET, "type": "dashed"},
                    "label": {
                        "color": ALARM if mark.kind == "alarm" else QUIET,
                        "distance": height + 6,
                        "align": align,
                        **({} if mark.labelled else {"show": False}),
                    },
                }
                for mark, height, align in placed
            ],
        }
    return {
        "animation": False,
        "grid": {
            "left": 44,
            "right": 28,
            "top": max((height + _height(mark) for mark, height, _ in placed), default=0) + 22,
            "bottom": 64,
        },
        "legend": {"bottom": 0, "type": "scroll", "textStyle": {"color": QUIET}},
        "tooltip": {"trigger": "axis", "confine": True},
        "xAxis": {
            "type": "value",
            "name": "step",
            "nameLocation": "middle",
            "nameGap": 24,
            "min": "dataMin",
            "max": "dataMax",
            **_axis(),
        },
        "yAxis": {"type": "value", "scale": True, **_axis()},
        "series": lines,
        # Where it is narrower than that the labels would cover one another; the text below the chart says the same.
        "media": [{"query": {"maxWidth": 760}, "option": {"series": [{"markLine": {"label": {"show": False}}}]}}],
    }


def _placed(marks: Sequence[Mark], low: float, high: float) -> list[tuple[Mark, int, str]]:
    """Each mark with the height of its label in pixels above the chart, and which side of its line it lies on: labels that would
    cover one another stand one above the other, and none reaches over the chart's edge."""
    placed: list[tuple[Mark, int, str]] = []
    taken: list[tuple[float, float, int, int]] = []
    for mark in sorted(marks, key=lambda mark: (mark.step, mark.kind != "stage")):
        at = NARROW * (mark.step - low) / (high - low) if high > low else 0.0
        width = LETTER * max(map(len, mark.text.split("\n")))
        left = min(max(at - width / 2, 0.0), NARROW - width)
        align = "left" if left == 0.0 else "center" if left == at - width / 2 else "right"
        left = {"left": at, "center": left, "right": at - width}[align]
        height = 0
        for begins, ends, low_edge, top_edge in sorted(taken, key=lambda label: label[2]):
            if left < ends and begins < left + width and height < top_edge and low_edge < height + _height(mark):
                height = top_edge
        placed.append((mark, height, align))
        if mark.labelled:
            taken.append((left, left + width, height, height + _height(mark)))
    return placed


def _height(mark: Mark) -> int:
    return LABEL_LINE * (mark.text.count("\n") + 1) if mark.labelled else 0


def turn_bars(turns: Sequence[int], values: Mapping[str, Sequence[float | None]]) -> dict[str, Any]:
    """Bars per turn, one series a name."""
    return {
        "animation": False,
        "grid": {"left": 48, "right": 16, "top": 28, "bottom": 28},
        "legend": {"top": 0, "textStyle": {"color": QUIET}},
        "tooltip": {"trigger": "axis", "confine": True},
        "xAxis": {"type": "category", "data": list(turns), **_axis()},
        "yAxis": {"type": "value", **_axis()},
        "series": [
            {"name": name, "type": "bar", "data": list(data), "itemStyle": {"color": COLORS[n]}}
            for n, (name, data) in enumerate(values.items())
        ],
    }


def of_columns(rows: Sequence[Sequence[Any]], x: int, y: int, kind: str, names: Sequence[str]) -> dict[str, Any]:
    """One column of an answer over another. kind: line, bar or scatter."""
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
    """The points of a line in a box of 100 by 24."""
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
