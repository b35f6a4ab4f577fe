"""A run's report on the page: headings, sentences, lists and tables as plain text."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from flows.page import frame
from userrl.reports import people_report
from userrl.reports.card import with_card
from userrl.reports.document import Block, Figure, Folded, Heading, Items, TableBlock, Text, TurnBlock, unmarked
from userrl.reports.run_report import has_report, read_report
from userrl.reports.run_so_far import run_so_far
from userrl.reports.run_summary import card, run_details
from userrl.run.run import Run
from warehouse import Warehouse


async def show_card(run: Run, warehouse: Warehouse) -> bool:
    """Draw the run's result card. Return False for a run without a report, which has none."""
    if not has_report(run):
        return False
    report = await frame.asked(lambda: with_card(read_report(run), warehouse))
    with ui.element("div").classes("panel flex flex-col gap-2"):
        draw([*card(report)])
    return True


async def show_report(run: Run, warehouse: Warehouse) -> None:
    """Draw the run's report, folded. Without a report, draw its progress, open if the run will not continue by itself.

    The report's card and curves are left out, because the page has them already.
    """
    if has_report(run):
        with ui.expansion("Report").classes("panel"):
            if met := await frame.asked(lambda: [*people_report.beside_simulated(warehouse, run.id)]):
                draw([Heading(people_report.TITLE), *met, Heading("Report as written")])
            draw([*run_details(read_report(run))])
            ui.label(
                f"Full report with intervals, figures and cost: userrl report {run.id} --html report.html"
            ).classes("quiet text-sm")
        return
    base = ui.context.client.request.base_url  # the address and port by which this reader reaches the page
    address = str(base).rstrip("/") + frame.address("/trajectories", run=run.id)
    document = await frame.asked(lambda: run_so_far(run, warehouse, shown_at=address))
    with ui.expansion("No report yet: progress and next steps", value=run.status.state != "running").classes("panel"):
        draw(document.blocks)


async def show_users(warehouse: Warehouse, run_id: str) -> None:
    """Draw the stored audits of a run's users, or how to make one."""
    from userrl.reports.users.users_section import users_of

    draw(await frame.asked(lambda: [*users_of(warehouse, run_id)]))


def draw(blocks: Sequence[Block]) -> None:
    """Draw the blocks of a document. A figure is drawn as its text lines."""
    for block in blocks:
        match block:
            case Heading(text):
                frame.heading(text, level=2)
            case Text(text, strong, alarm):
                frame.said(unmarked(text), *(("alarm",) if alarm else ("font-semibold",) if strong else ()))
            case Items(items):
                with ui.element("ul").classes("list-disc pl-5"):
                    for item in items:
                        with ui.element("li"):
                            frame.said(unmarked(item))
            case TableBlock(head, rows, note):
                columns = {f"c{n}": name for n, name in enumerate(head)}
                table_rows = [
                    {"id": n, **{f"c{m}": unmarked(cell) for m, cell in enumerate(row)}} for n, row in enumerate(rows)
                ]
                with ui.element("div").classes("overflow-x-auto w-full"):
                    frame.table(table_rows, columns, cards=len(head) > 6)
                if note:
                    ui.label(note).classes("quiet text-sm")
            case TurnBlock(title=title, agent=agent, reply=reply, thought=thought):
                frame.said(title, "font-semibold")
                for text in filter(None, (thought, agent, reply)):
                    frame.said(text, "px-3")
            case Folded(summary, folded, is_open):
                with ui.expansion(summary, value=is_open).classes("w-full"):
                    draw(folded)
            case Figure(lines=lines):
                for line in lines:
                    frame.said(line, "font-mono", "text-sm")
