"""Cross-play studies on the page: the list of a home, and one study with its progress, matrix and pictures."""

from __future__ import annotations

import threading
from base64 import b64encode

from nicegui import ui

from flows.page import frame
from flows.page.report import draw
from userrl.reports.document import Block, Figure
from userrl_core.errors import ConfigError
from userrl_crossplay.stored import StoredStudy, stored_studies, stored_study
from warehouse import Warehouse

FOLLOW_SECONDS = 5.0

_DRAWING = threading.Lock()
"""Held while figures are drawn, because matplotlib's settings belong to the process."""


async def list_studies(warehouse: Warehouse) -> None:
    """Draw the cross-play studies of the home. Draw nothing without one."""
    studies = await frame.asked(lambda: stored_studies(warehouse))
    if not studies:
        return
    rows = [
        {
            "id": study.name,
            "name": study.name,
            "href_name": f"/cross-play/{study.name}",
            "state": "results" if study.finished else "in progress",
            "progress": study.progress,
            "text": study.stored.get("text", ""),
        }
        for study in studies
    ]
    columns = {"name": "Study", "state": "State", "progress": "Progress", "text": "Question"}
    with ui.element("div").classes("panel"):
        frame.heading("Cross-play studies", level=2)
        frame.table(rows, columns, links=("name",), wide=("text",))


async def show_cross_play(warehouse: Warehouse, name: str) -> None:
    """Draw one study: its progress, and its results once there are any. Raises ConfigError for an unknown study."""
    study = await frame.asked(lambda: stored_study(warehouse, name))
    frame.heading(f"Cross-play {study.name}")
    with ui.element("div").classes("panel flex flex-col gap-2"):
        _progress(warehouse, study)
    try:
        drawn = await frame.asked(lambda: _drawn(study))
    except ConfigError as error:
        frame.sentence(str(error))
        return
    with ui.element("div").classes("panel flex flex-col gap-3"):
        if not drawn:
            frame.said(str(study.stored.get("text", "")))
            ui.label("There are no results yet. They are measured once all runs have been evaluated.").classes("quiet")
        for block, svg in drawn:
            if isinstance(block, Figure) and svg:
                _picture(svg, block.caption)
            else:
                draw([block])


def _progress(warehouse: Warehouse, study: StoredStudy) -> None:
    """Draw how far the study has come, and follow it until it is finished."""
    label = ui.label().classes("said")

    def say(now: StoredStudy) -> None:
        label.set_text(
            f"{now.progress}." if now.finished else f"In progress: {now.progress}. Reload the page for results."
        )
        if now.finished:
            timer.deactivate()

    async def follow() -> None:
        say(await frame.asked(lambda: stored_study(warehouse, study.name)))

    timer = ui.timer(FOLLOW_SECONDS, follow, immediate=False)
    say(study)


def _drawn(study: StoredStudy) -> list[tuple[Block, str]]:
    """Return the blocks of the study's results, figures with their SVG; [] without results."""
    from userrl_crossplay.document import cross_play_document  # imported here: scipy and matplotlib

    report = study.report()
    if report is None:
        return []
    with _DRAWING:
        return [(block, block.svg if isinstance(block, Figure) else "") for block in cross_play_document(report).blocks]


def _picture(svg: str, caption: str) -> None:
    """Draw an SVG as an image, so that neither its styles nor its names are part of the page."""
    with ui.element("div").classes("figure").props('tabindex=0 role="group" aria-label="Figure"'):
        image = ui.element("img")
        image.props["src"] = f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"
        image.props["alt"] = f"{caption} The tables have the same numbers."
