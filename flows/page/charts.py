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
    if lines and marks:
        lines[0]["markLine"] = {
            "symbol": "none",
            "silent": True,
            "label": {
                "formatter": "{b}",
                "position": "end",
                "rotate": 0,
                "fontSize": 11,
                "lineHeight": 14,
                "distance": 10,
            },
            "data": [
                {
                    "name": mark.text,
                    "xAxis": mark.step,
                    "lineStyle": {"color": ALARM if mark.kind == "alarm" else QUIET, "type": "dashed"},
                    "label": {
                        "color": ALARM if mark.kind == "alarm" else QUIET,
                        **({} if mark.labelled else {"show": False}),
                    },
                }
                for mark in marks
            ],
        }
    return {
        "animation": False,
        "grid": {"left": 44, "right": 28, "top": 56, "bottom": 64},
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
        # Side by side on a telephone the labels would cover one another; the text below the chart says the same.
        "media": [{"query": {"maxWidth": 560}, "option": {"series": [{"markLine": {"label": {"show": False}}}]}}],
    }


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
