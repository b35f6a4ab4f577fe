"""The web application: its addresses and pages, drawn by NiceGUI behind the front door of all our servers."""

from __future__ import annotations

import os
from collections.abc import Callable

# NiceGUI's folder for stored page state. Our pages store none, and no folder should appear in the working directory.
os.environ.setdefault("NICEGUI_STORAGE_PATH", os.devnull)

from fastapi import FastAPI, Request
from nicegui import ui

from flows.page import frame
from flows.page.ask import Question
from flows.page.conversation.replay import show_replay
from flows.page.group import show_group
from flows.page.published import show_published
from flows.page.runs import show_run, show_runs
from flows.page.trajectories import show_trajectories
from userrl.machine.separate import part
from warehouse import Warehouse


def without_people() -> None:
    """Add the page People of an installation without the package of people."""

    @ui.page("/people")
    def people() -> None:
        with frame.frame("People", current_page="People"):
            part("userrl-people", "page")  # refuses, with the command that installs the package


def app_of(warehouse: Warehouse, add_people: Callable[[], None] = without_people) -> FastAPI:
    """Return the pages over a warehouse. Once per process, because NiceGUI has one set of pages.

    add_people: adds the pages of the package of people.
    """

    @ui.page("/", response_timeout=frame.RESPONSE_SECONDS)
    async def runs() -> None:
        with frame.frame("Runs", current_page="Runs"):
            await show_runs(warehouse)

    @ui.page("/run/{run_id}", response_timeout=frame.RESPONSE_SECONDS)
    async def run(run_id: str, beside: str = "") -> None:
        with frame.frame(run_id, current_page="Runs"):
            await show_run(warehouse, run_id, beside)

    @ui.page("/cross-play/{name}", response_timeout=frame.RESPONSE_SECONDS)
    async def cross_play(name: str) -> None:
        with frame.frame(f"Cross-play {name}", current_page="Runs"):
            await part("userrl-crossplay", "page").show_cross_play(warehouse, name)

    @ui.page("/trajectories", response_timeout=frame.RESPONSE_SECONDS)
    async def trajectories(request: Request) -> None:
        with frame.frame("Trajectories", current_page="Trajectories"):
            await show_trajectories(warehouse, request.query_params)

    @ui.page("/trajectory/{traj_id}", response_timeout=frame.RESPONSE_SECONDS)
    async def trajectory(traj_id: int, request: Request) -> None:
        with frame.frame(f"Trajectory {traj_id}", current_page="Trajectories"):
            await show_replay(warehouse, traj_id, request.query_params)

    @ui.page("/group/{traj_id}", response_timeout=frame.RESPONSE_SECONDS)
    async def group(traj_id: int) -> None:
        with frame.frame(f"Group of {traj_id}", current_page="Trajectories"):
            await show_group(warehouse, traj_id)

    @ui.page("/ask", response_timeout=frame.RESPONSE_SECONDS)
    async def ask(q: str = "") -> None:
        with frame.frame("SQL", current_page="SQL"):
            await Question(warehouse, q).build()

    @ui.page("/published", response_timeout=frame.RESPONSE_SECONDS)
    async def published(run: str = "") -> None:
        with frame.frame("Published", current_page="Published"):
            await show_published(warehouse, run)

    add_people()
    app = FastAPI(title="userrl view", docs_url=None, redoc_url=None, openapi_url=None)
    ui.run_with(app, title="userrl", dark=None, language="en-US", show_welcome_message=False, favicon="💬")
    return app
