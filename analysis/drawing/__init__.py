"""The look of every picture: one style file of matplotlib, its colours in dark, and names at the ends of lines."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STYLE = Path(__file__).with_name("userrl.mplstyle")
COLORS = ("#3b82c4", "#c8741c", "#2e8b6a", "#b4609b", "#94743c", "#7276d8", "#d0504a", "#4a8fa8")
"""Colours of lines, in the order of use: those of the style file, in light and in dark."""
TEXT, QUIET, RULE = "#1c2128", "#57606a", "#b0b8c1"
"""Colours of words, of side notes, and of vertical lines at a step."""
DARK = {
    "#ffffff": "#1f242b",
    TEXT: "#e6e9ed",
    QUIET: "#a3acb8",
    RULE: "#565f6b",
    "#8a939e": "#7b8490",
    "#eceff2": "#323942",
}
"""The dark colour of each colour that is not a line's."""


@contextmanager
def drawing() -> Iterator[None]:
    """Apply the style while pictures are drawn. Optuna's pictures, which choose ggplot, get it too."""
    import matplotlib
    from matplotlib import rc_params_from_file, style

    ours = rc_params_from_file(STYLE, use_default_template=False)
    ggplot = style.library["ggplot"]
    with matplotlib.rc_context():
        matplotlib.rcParams.update(ours)
        style.library["ggplot"] = ours
        try:
            yield
        finally:
            style.library["ggplot"] = ggplot


def in_both(svg: str) -> str:
    """Let an SVG choose its colours by the reader's setting. Matplotlib writes colours as inline styles.

    The path of a marker is drawn by ``use``, where it has no ``svg`` around it.
    """
    rules = "".join(
        f'svg [style*="{kind}: {light}"],path[style*="{kind}: {light}"]{{{kind}:{dark}!important}}'
        for light, dark in DARK.items()
        for kind in ("fill", "stroke")
    )
    return re.sub(r"(<svg[^>]*>)", rf"\1<style>@media (prefers-color-scheme: dark) {{{rules}}}</style>", svg, count=1)


def name_lines(axes: Any, names: Sequence[tuple[str, float, str]]) -> None:
    """Write names beside the right ends of lines, moved apart where they would overlap. names: text, value, colour."""
    low, high = axes.get_ylim()
    points = axes.figure.get_size_inches()[1] * 72 * axes.get_position().height
    line_height = (high - low) * LINE_POINTS / points
    top = -float("inf")  # of the name below
    for text, value, color in sorted(names, key=lambda name: name[1]):
        label = textwrap.fill(text, LETTERS, max_lines=3, placeholder=" …")
        half = line_height * (label.count("\n") + 1) / 2
        middle = max(value, top + half)
        top = middle + half
        axes.annotate(
            label,
            (1, middle),
            xycoords=("axes fraction", "data"),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            color=color,
            fontweight="bold",
            annotation_clip=False,
        )


LINE_POINTS, LETTERS = 12.0, 24
"""Height of a line of a name with its space, in points; the most letters in it. A name has at most three lines."""
