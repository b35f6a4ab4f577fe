"""A page in its two forms: what foreign text says is shown and never obeyed."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from userrl.reports.document import Code, Document, Figure, Heading, Items, Link, TableBlock, Text
from userrl.reports.figures import Line, Panel, panels, smoothed

HOSTILE = "<script>alert(1)</script> ![x](http://evil.test/x.png) [a](javascript:alert(1)) $\\frac{ \u202eabc\x1b[31m"


def hostile_page() -> Document:
    drawn = panels([Panel(HOSTILE, [Line(HOSTILE, [(1, 0.5), (2, 0.7)], smooth=True), Line("b", [(1, 0.1)])])])
    table = TableBlock(("who", HOSTILE), ((HOSTILE, "0.5"),), HOSTILE)
    return Document(
        HOSTILE,
        (Heading(HOSTILE), Text(HOSTILE, strong=True), Items((HOSTILE,)), table, Figure(lambda: drawn, HOSTILE)),
    )


def test_foreign_text_is_escaped_in_html_and_in_drawings() -> None:
    page = hostile_page().html()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", page)


def test_a_page_loads_nothing() -> None:
    page = hostile_page().html()
    assert """content="default-src 'none'; style-src 'unsafe-inline'">""" in page
    outside = re.compile(
        r"""<(?:img|script|link|iframe|object)\b|url\(\s*['"]?(?!#)|(?:src|xlink:href)\s*=\s*["'](?!#)"""
    )
    assert outside.findall(page) == []


def test_foreign_text_is_escaped_in_markdown() -> None:
    text = hostile_page().markdown(["a.svg"])
    assert "<script" not in text.replace("\\<script", "")
    assert not re.search(r"(?<!\\)!\[x(?<!\\)\]|(?<!\\)\[a\]", text)


def test_a_markdown_page_has_its_drawings_beside_it(tmp_path: Path) -> None:
    written = hostile_page().write(tmp_path / "page.md")
    assert [path.name for path in written] == ["page.md", "page-1.svg"]
    assert "](page-1.svg)" in written[0].read_text()
    assert ElementTree.fromstring(written[1].read_text()).tag == "{http://www.w3.org/2000/svg}svg"


def test_names_paths_and_addresses_are_marked_in_each_form_and_hold_what_they_hold() -> None:
    where = ("See ", Code("/a_b/`x`|y"), " and ", Link("the *page*", "http://127.0.0.1:1/run/a"), ".")
    page = Document("", (Text(where), TableBlock(("at",), ((where,),))))
    assert page.text().splitlines()[0] == "See /a_b/`x`|y and the *page*."
    assert page.markdown().splitlines()[0] == "See `` /a_b/`x`|y `` and [the \\*page\\*](http://127.0.0.1:1/run/a)."
    assert (
        page.markdown().splitlines()[4] == "| See `` /a_b/`x`\\|y `` and [the \\*page\\*](http://127.0.0.1:1/run/a). |"
    )
    link = '<a href="http://127.0.0.1:1/run/a">the *page*</a>'
    assert page.html().count(f"See <code>/a_b/`x`|y</code> and {link}.") == 2


def test_figures_within_text_are_readable_in_markdown_and_foreign_markup_is_not_obeyed() -> None:
    for plain in ("0.812 [0.538, 1.087] (98 %)", "lr: 1 (a) -> 2 (b)", "validation_fell", "q&a", "a < b"):
        assert Document("", (Text(plain),)).markdown() == f"{plain}\n"
    for foreign, shown in (
        ("[a](http://evil.test)", "[a\\](http://evil.test)"),
        ("# x", "\\# x"),
        ("- x", "\\- x"),
        ("&lt;b", "\\&lt;b"),
        ("<b>", "\\<b>"),
        ("_x_", "\\_x\\_"),
    ):
        assert Document("", (Text(foreign),)).markdown() == f"{shown}\n"


def test_a_terminal_shows_a_figure_s_lines_and_draws_nothing() -> None:
    def never() -> str:
        raise AssertionError

    page = Document("", (Figure(never, "a curve", ("train ▁█ 0.1 → 0.9",)),))
    assert page.text() == page.markdown() == "    train ▁█ 0.1 → 0.9\n"


def test_a_smoothed_curve_keeps_a_constant_and_halves_a_step() -> None:
    assert smoothed([0.25] * 9) == pytest.approx([0.25] * 9)  # the last digit depends on the processor
    step = smoothed([0.0] * 20 + [1.0] * 20)
    assert step[19] + step[20] == 1.0
    assert 0.40 < step[19] < 0.42  # the Gaussian's share beyond a quarter of its deviation
