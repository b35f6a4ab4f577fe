"""The SQL page. It uses the same process, limits and refusals as ``userrl sql``, and shows a table and a chart."""

from __future__ import annotations

import contextlib
import csv
import io
from typing import Any, Literal

import duckdb
from nicegui import ui

from flows.page import charts, frame
from userrl.machine.foreign_text import plain
from userrl_core.errors import UserRLError
from userrl_core.json_files import json_text
from warehouse import Warehouse, views
from warehouse.query.sandbox import Answer, ask

ROWS, SECONDS = 1_000, 30.0
LIGHT: Literal["vscodeLight"] = "vscodeLight"
DARK: Literal["vscodeDark"] = "vscodeDark"
"""Editor themes with readable colours: keywords have a contrast of at least 4.5 to 1."""
NAME_EDITOR = """
let tries = 100;
const name = () => {
  const box = document.querySelector('.cm-content');
  if (box) box.setAttribute('aria-label', 'SQL statement');
  else if (tries-- > 0) setTimeout(name, 50);
};
name();
"""
"""Script that names the editor for screen readers as soon as it is drawn."""
START = "SELECT gym, phase, count(*) AS n, avg(score) AS score FROM trajectories GROUP BY ALL ORDER BY ALL"


class Question:
    """The SQL page. text: the statement in the address, which fills the editor and is not run."""

    def __init__(self, warehouse: Warehouse, text: str) -> None:
        self._warehouse, self._text = warehouse, text
        self._answer: Answer | None = None

    async def build(self) -> None:
        """Draw the editor, the examples and the place of the answer."""
        frame.heading("SQL")
        with ui.element("div").classes("panel flex flex-col gap-2"):
            self._box = ui.codemirror(self._text or START, language="SQL", theme=LIGHT, line_wrapping=True).classes(
                "w-full"
            )
            self._box.style("height: 9rem")
            self._box.on("keydown.ctrl.enter.capture.prevent.stop", self._ask, args=[])
            self._box.on("keydown.meta.enter.capture.prevent.stop", self._ask, args=[])
            ui.timer(0.0, self._choose_theme, once=True)
            with ui.row().classes("items-center gap-3"):
                ui.button("Run", on_click=self._ask).props('no-caps title="Ctrl+Enter"')
                ui.button("Copy SQL", on_click=lambda: ui.clipboard.write(self._box.value)).props("no-caps outline")
                ui.label(f"Ctrl+Enter runs. One read-only statement; at most {ROWS:,} rows and {SECONDS:g} s.").classes(
                    "quiet text-sm"
                )
        # A statement in the address only fills the editor: a page of another site can make a browser open any address.
        self._place = ui.column().classes("w-full gap-4")
        with ui.element("div").classes("panel flex flex-col gap-1"):
            frame.heading("Named queries", level=2)
            ui.label("A click runs the query and shows its rows above this list.").classes("text-sm quiet")
            for name, query in views.queries().items():
                with ui.row().classes("items-baseline gap-2 flex-nowrap"):
                    ui.button(name, on_click=lambda name=name: self._use(name)).props("flat dense no-caps")
                    ui.label(query.doc).classes("text-sm quiet")

    async def _choose_theme(self) -> None:
        """Choose the dark editor theme if the browser is dark, and name the editor. Only the browser can do both."""
        ui.run_javascript(NAME_EDITOR)
        with contextlib.suppress(TimeoutError):  # the reader has left the page, or the machine is busy
            if await ui.run_javascript("document.body.classList.contains('body--dark')", timeout=10.0):
                self._box.set_theme(DARK)

    async def _use(self, name: str) -> None:
        """Run a named query. Editor and answer may be a screen above the list, and are brought into view."""
        query = views.queries()[name]
        needed = [f"{key} := {_example(key)}" for key, default in query.params.items() if default is None]
        self._box.set_value(f"FROM {name}({', '.join(needed)})")
        ui.run_javascript(f"getHtmlElement({self._box.id}).scrollIntoView({{block: 'center'}})")
        await self._ask()

    async def _ask(self) -> None:
        text = str(self._box.value)
        self._place.clear()
        with self._place:
            waiting = ui.label("Asking …").classes("quiet").props('role="status"')
        try:
            answer: Answer | Exception = await frame.asked(
                lambda: ask(self._warehouse.root, text, limit=ROWS, seconds=SECONDS)
            )
        except (UserRLError, duckdb.Error) as error:
            answer = error
        if waiting.is_deleted:  # by a later question, whose answer this place gets
            return
        waiting.delete()
        with self._place:
            if isinstance(answer, Exception):
                frame.sentence(str(answer))
                return
            self._answer = answer
            self._show(answer, text)

    def _show(self, answer: Answer, text: str) -> None:
        for note in answer.notes:
            frame.sentence(note)
        more = "; there are more" if answer.truncated else ""
        with ui.row().classes("items-center gap-3"):
            ui.label(f"{frame.many(len(answer.rows), 'row')}{more}").classes("quiet")
            ui.link("Link to this query", frame.address("/ask", q=text))
            ui.button("Copy CSV", on_click=lambda: ui.clipboard.write(as_csv(answer))).props("no-caps outline size=sm")
        if not answer.rows:
            return
        chart = _Chart(answer)
        if chart.possible:
            chart.build()
        columns = {f"c{n}": name for n, name in enumerate(answer.columns)}
        rows = [{"id": n, **{f"c{m}": _cell(v) for m, v in enumerate(row)}} for n, row in enumerate(answer.rows)]
        with ui.element("div").classes("panel overflow-x-auto"):
            frame.table(rows, columns).props(remove=":rows-per-page-options hide-pagination").props("rows-per-page=50")


class _Chart:
    """A chart of one column over another. The answer must have a numeric column."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        first = answer.rows[0]
        self._numbers = [
            n for n, name in enumerate(answer.columns)
            if any(_is_number(row[n]) for row in answer.rows) and all(_is_number(row[n], null=True) for row in answer.rows)
        ]  # fmt: skip
        self.possible = bool(self._numbers) and len(first) > 1 and len(answer.rows) > 1

    def build(self) -> None:
        """Draw the chart and the choices of its columns and type."""
        names = dict(enumerate(self._answer.columns))
        y = self._numbers[-1]
        varied = [n for n in names if n != y and any(row[n] != self._answer.rows[0][n] for row in self._answer.rows)]
        x = next(iter(varied), 0 if y else 1)
        with ui.expansion("Chart").classes("panel"):
            with ui.row().classes("gap-4"):
                self._x = ui.select(names, value=x, label="X axis", on_change=self._draw)
                self._y = ui.select({n: names[n] for n in self._numbers}, value=y, label="Y axis", on_change=self._draw)
                self._kind = ui.select(
                    ["bar", "line", "scatter"], value="bar", label="Chart type", on_change=self._draw
                )
            self._made = ui.echart({}).classes("w-full").style("height: 20rem")
        self._draw()

    def _draw(self) -> None:
        options = charts.of_columns(
            self._answer.rows, int(self._x.value), int(self._y.value), str(self._kind.value), self._answer.columns
        )
        self._made.options.clear()
        self._made.options.update(options)
        self._made.update()


def as_csv(answer: Answer) -> str:
    """Return the rows as CSV. Texts that a spreadsheet would compute are prefixed with an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(answer.columns)
    writer.writerows([_inert(value) for value in row] for row in answer.rows)
    return out.getvalue()


def _inert(value: Any) -> Any:
    value = _cell(value)
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:z.6g}")
    if isinstance(value, (list, dict)):
        return plain(json_text(value))
    return value[: frame.CUT] if isinstance(value, str) else value


def _is_number(value: object, *, null: bool = False) -> bool:
    return (null and value is None) or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _example(parameter: str) -> str:
    return "'latest'" if parameter == "run" else "0"
