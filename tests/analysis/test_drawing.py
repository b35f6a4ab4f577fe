"""One style for every picture: its colours in light and dark, and names that do not overlap."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from matplotlib.figure import Figure

from analysis.drawing import COLORS, DARK, drawing, in_both, name_lines
from userrl.reports.figures import matrix

GROUNDS = ("#ffffff", "#1f242b")


def luminance(color: str) -> float:
    parts = [int(color[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("ground", GROUNDS)
def test_every_line_stands_out_from_a_light_and_a_dark_ground(ground: str) -> None:
    assert min(contrast(color, ground) for color in COLORS) > 3.3


def test_words_stand_out_in_dark() -> None:
    assert DARK["#ffffff"] == GROUNDS[1]
    assert contrast(DARK["#1c2128"], GROUNDS[1]) > 7
    assert contrast(DARK["#57606a"], GROUNDS[1]) > 4.5


def test_a_drawing_has_the_colours_of_the_style_and_chooses_dark_ones_itself() -> None:
    with drawing():
        figure = Figure()
        axes = figure.add_subplot()
        lines = [axes.plot([0, 1], [n, n])[0] for n in range(len(COLORS))]
    assert tuple(line.get_color() for line in lines) == COLORS
    svg = in_both('<svg viewBox="0 0 1 1"><path style="fill: #ffffff"/></svg>')
    assert re.match(r'<svg viewBox="0 0 1 1"><style>@media \(prefers-color-scheme: dark\) \{', svg)
    assert 'svg [style*="fill: #ffffff"],path[style*="fill: #ffffff"]{fill:#1f242b!important}' in svg


def test_numbers_on_the_cells_of_a_matrix_stand_out_in_light_and_dark() -> None:
    values = [n / 10 for n in range(-10, 11)]
    svg = matrix(["a"], [f"c{n}" for n in range(21)], [[(value, f"v{n}") for n, value in enumerate(values)]], title="t")
    cells = re.findall(r'<path d="[^"]*" clip-path="[^"]*" style="fill: (#[0-9a-f]{6})(.*?)"', svg)
    texts = [re.findall(rf'fill: (#[0-9a-f]{{6}})"[^>]*>v{n}<', svg)[0] for n in range(21)]
    assert len(cells) == 21
    for color, (cell, more) in zip(texts, cells, strict=True):
        assert not {color, cell} & set(DARK)
        assert "opacity" not in more  # the ground would show through
        assert contrast(color, cell) > 4.5


def test_names_of_lines_with_equal_ends_do_not_overlap_and_long_ones_are_cut() -> None:
    with drawing():
        axes = Figure(figsize=(6, 3)).add_subplot()
        axes.set_ylim(0, 1)
        name_lines(axes, [(f"line {n}", 0.5, COLORS[n]) for n in range(5)] + [("word " * 60, 0.5, COLORS[5])])
    heights = sorted(text.xy[1] for text in axes.texts)
    assert min(high - low for low, high in pairwise(heights)) > 0.06
    assert max(text.get_text().count("\n") for text in axes.texts) == 2
