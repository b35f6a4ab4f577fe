"""The web application: its addresses and pages, drawn by NiceGUI behind the front door of all our servers."""

from __future__ import annotations

import os

# NiceGUI's folder for stored page state. Our pages store none, and no folder should appear in the working directory.
os.environ.setdefault("NICEGUI_STORAGE_PATH", os.devnull)

from fastapi import FastAPI, Request
from nicegui import ui

from flows.page import frame
from flows.page.ask import Question
from flows.page.conversation.replay import show_replay
from flows.page.cross_play import show_cross_play
from flows.page.group import show_group
from flows.page.people import People
from flows.page.published import show_published
from flows.page.runs import show_run, show_runs
from flows.page.trajectories import show_trajectories
from warehouse import Warehouse

RESPONSE_SECONDS = 60.0
"""Seconds that a page's queries may take before the browser shows a failure."""


def app_of(warehouse: Warehouse, people: People) -> FastAPI:
    """Return the pages over a warehouse. Once per process, because NiceGUI has one set of pages."""

    @ui.page("/", response_timeout=RESPONSE_SECONDS)
    async def runs() -> None:
        with frame.frame("Runs", current_page="Runs"):
            await show_runs(warehouse)

    @ui.page("/run/{run_id}", response_timeout=RESPONSE_SECONDS)
    async def run(run_id: str, beside: str = "") -> None:
        with frame.frame(run_id, current_page="Runs"):
            await show_run(warehouse, run_id, beside)

    @ui.page("/cross-play/{name}", response_timeout=RESPONSE_SECONDS)
    async def cross_play(name: str) -> None:
        with frame.frame(f"Cross-play {name}", current_page="Runs"):
            await show_cross_play(warehouse, name)

    @ui.page("/trajectories", response_timeout=RESPONSE_SECONDS)
    async def trajectories(request: Request) -> None:
        with frame.frame("Trajectories", current_page="Trajectories"):
            await show_trajectories(warehouse, request.query_params)

    @ui.page("/trajectory/{traj_id}", response_timeout=RESPONSE_SECONDS)
    async def trajectory(traj_id: int, request: Request) -> None:
        with frame.frame(f"Trajectory {traj_id}", current_page="Trajectories"):
            await show_replay(warehouse, traj_id, request.query_params)

    @ui.page("/group/{traj_id}", response_timeout=RESPONSE_SECONDS)
    async def group(traj_id: int) -> None:
        with frame.frame(f"Group of {traj_id}", current_page="Trajectories"):
            await show_group(warehouse, traj_id)

    @ui.page("/ask", response_timeout=RESPONSE_SECONDS)
    async def ask(q: str = "") -> None:
        with frame.frame("SQL", current_page="SQL"):
            await Question(warehouse, q).build()

    @ui.page("/published", response_timeout=RESPONSE_SECONDS)
    async def published(run: str = "") -> None:
        with frame.frame("Published", current_page="Published"):
            await show_published(warehouse, run)

    @ui.page("/people", response_timeout=RESPONSE_SECONDS)
    async def all_people() -> None:
        with frame.frame("People", current_page="People"):
            await people.show()

    @ui.page("/people/{token}", response_timeout=RESPONSE_SECONDS, reconnect_timeout=60.0)
    async def sitting(token: str) -> None:
        with frame.frame("Conversation", current_page="People"):
            await people.show_sitting(token)

    @ui.page("/study/{code}", response_timeout=RESPONSE_SECONDS, reconnect_timeout=60.0)
    async def study(code: str) -> None:
        with frame.frame("Study", current_page="People"):
            await people.show_study(code)

    app = FastAPI(title="userrl view", docs_url=None, redoc_url=None, openapi_url=None)
    ui.run_with(app, title="userrl", dark=None, language="en-US", show_welcome_message=False, favicon="💬")
    return app
