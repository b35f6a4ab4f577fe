"""A run's report as parts of a page: its headings, sentences, lists and tables, each text as text.

What is read is the `report.md` that the run wrote, or what is known so far of a run without one. No markup of it is handed on: a
line that is nothing else is a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from nicegui import ui

from flows.page import frame
from flows.run.reports import of_people, so_far
from flows.run.reports.document import Block, Figure, Heading, Items, Table, Text
from flows.run.run import Run
from warehouse import Warehouse

_MARKUP = re.compile(r"\*\*|`")
_PICTURE = re.compile(r"!\[[^\]]*\]\([^)]*\)")


async def show_report(run: Run, warehouse: Warehouse) -> None:
    """The report, folded; of a run that has none yet, what it has reached, open where it will not go on by itself."""
    path = run.folder / "report.md"
    if path.is_file():
        with ui.expansion("Report").classes("panel"):
            if met := await frame.asked(lambda: [*of_people.beside_simulated(warehouse, run.id)]):
                _draw([Heading(of_people.TITLE), *met, Heading("As it was written")])
            _draw([*parts(run.report_text)])
            ui.label(f"With intervals, drawings and cost: userrl report {run.id} --html report.html").classes(
                "quiet text-sm"
            )
        return
    base = ui.context.client.request.base_url  # the address and the port that this reader has the page under
    address = str(base).rstrip("/") + frame.address("/trajectories", run=run.id)
    found = await frame.asked(lambda: so_far.page(run, warehouse, shown_at=address))
    with ui.expansion("No report yet: so far, and what next", value=run.status.state != "running").classes("panel"):
        _draw(found.blocks)


def parts(markdown: str) -> Iterator[Block]:
    """What a report consists of; its title and its picture, which the page has as curves, are left out."""
    for paragraph in re.split(r"\n\s*\n", markdown):
        lines = [
            line
            for line in paragraph.splitlines()
            if line and not line.startswith("# ") and not _PICTURE.fullmatch(line)
        ]
        while lines:
            kind = _kind(lines[0])
            end = next((n for n, line in enumerate(lines) if _kind(line) != kind), len(lines))
            own, lines = lines[:end], lines[end:]
            if kind == "|":
                head, *rows = (
                    tuple(_MARKUP.sub("", cell).strip() for cell in line.strip("|").split("|")) for line in own
                )
                yield Table(head, tuple(row for row in rows[1:] if len(row) == len(head)))
            elif kind == "-":
                yield Items(tuple(_MARKUP.sub("", line[2:]) for line in own))
            elif kind == "#":
                yield from (Heading(line.lstrip("# ")) for line in own)
            else:
                yield from (Text(_MARKUP.sub("", line), strong=line.startswith("**")) for line in own)


def _kind(line: str) -> str:
    return next((sign for sign, start in (("|", "|"), ("-", "- "), ("#", "##")) if line.startswith(start)), "")


def _draw(blocks: Sequence[Block]) -> None:
    for block in blocks:
        match block:
            case Heading(text):
                frame.heading(text, level=2)
            case Text(text, strong):
                frame.said(text, *(("mark",) if strong else ()))
            case Items(items):
                with ui.element("ul").classes("list-disc pl-5"):
                    for item in items:
                        with ui.element("li"):
                            frame.said(item)
            case Table(head, rows, note):
                columns = {f"c{n}": name for n, name in enumerate(head)}
                shown = [{"id": n, **{f"c{m}": cell for m, cell in enumerate(row)}} for n, row in enumerate(rows)]
                with ui.element("div").classes("overflow-x-auto w-full"):
                    frame.table(shown, columns, cards=len(head) > 6)
                if note:
                    ui.label(note).classes("quiet text-sm")
            case Figure(lines=lines):
                for line in lines:
                    frame.said(line, "font-mono", "text-sm")
