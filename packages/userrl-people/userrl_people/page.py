"""Pages for a person who takes the part of the user or the agent: consent, one conversation, a rating.

Several people can play at once. A conversation runs in its own thread and waits for the person's input. The page shows its
lines so far, so that the person can reload it or return after a lost connection.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

from nicegui import ui

from flows.page import frame
from userrl.reports import people_report
from userrl.reports.people_report import PeoplePair
from userrl.reports.wording import other_side
from userrl.run.run import all_runs
from userrl_core.errors import ConfigError
from userrl_core.number_format import with_limits
from userrl_people.others import Checkpoint, Other, Served, Side
from userrl_people.plan import PeoplePlan
from userrl_people.planned import PlannedStudy
from userrl_people.sitting import CONSENT, Sitting, SittingPage
from userrl_people.study import ConversationSetup, Study
from warehouse import Warehouse

KEPT_SECONDS = 6 * 3_600.0
"""Seconds that an ended conversation stays available under its address."""

MOST = 64
"""Maximum number of simultaneous conversations."""

PLAYED = """
SELECT t.gym FROM trajectories t JOIN runs r USING (run_id)
WHERE r.kind IS NULL AND list_contains($gyms, t.gym) GROUP BY t.gym, r.created ORDER BY r.created DESC, count(*) DESC LIMIT 1
"""
"""The gym that the newest of one's own runs plays most."""

CLOSING_SECONDS = 10.0
"""Seconds that a closing page waits for its conversations. Their turns are in the log in any case."""


class People:
    """The pages for people, and the conversations in progress.

    served: fields of `ChatServer` for a model that is offered as the other side. plan: a study that people can take part in.
    """

    def __init__(
        self, warehouse: Warehouse, served: dict[str, Any] | None = None, plan: PeoplePlan | None = None
    ) -> None:
        self._warehouse = warehouse
        self._study = Study(warehouse.root)
        self._served = served
        self._sittings: dict[str, Sitting] = {}
        self._beginning = threading.Lock()
        self.planned = None if plan is None else PlannedStudy(plan, self._study, self.other, self.sit)

    def add_pages(self) -> None:
        """Add the pages to NiceGUI's. Once per process."""
        seconds = frame.RESPONSE_SECONDS

        @ui.page("/people", response_timeout=seconds)
        async def all_people() -> None:
            with frame.frame("People", current_page="People"):
                await self.show()

        @ui.page("/people/{token}", response_timeout=seconds, reconnect_timeout=60.0)
        async def sitting(token: str) -> None:
            with frame.frame("Conversation", current_page="People"):
                await self.show_sitting(token)

        @ui.page("/study/{code}", response_timeout=seconds, reconnect_timeout=60.0)
        async def study(code: str) -> None:
            with frame.frame("Study", current_page="People"):
                await self.show_study(code)

    def close(self) -> None:
        """End every conversation, wait until its last turns are logged, and seal the log."""
        for sitting in self._sittings.values():
            sitting.console.put(None)
        self._study.stop()
        deadline = time.monotonic() + CLOSING_SECONDS
        for sitting in self._sittings.values():
            sitting.join(max(0.0, deadline - time.monotonic()))
        self._study.close()

    async def show(self) -> None:
        """Draw the consent, the choice of a conversation, and the results so far."""
        frame.heading("People")
        if self.planned is not None:
            self.planned.invite()
        with ui.element("div").classes("panel flex flex-col gap-3 max-w-2xl"):
            ui.label("Take part in a conversation. It is stored turn by turn, like any other.")
            person = ui.input("Pseudonym (not your own name)").classes("w-full")
            with ui.row().classes("gap-4 items-end w-full"):
                side = ui.select({"user": "the user", "agent": "the agent"}, value="user", label="You play").classes(
                    "min-w-28"
                )
                gyms = list(Other().gyms("user"))
                played = await frame.asked(lambda: self._warehouse.rows(PLAYED, gyms=gyms))
                own = played[0]["gym"] if played else "turtle"
                gym = ui.select(gyms, value=own, label="Gym").classes("min-w-28")
                other = ui.select(self._others("user"), value="rules", label="Other side").classes("min-w-40")
                split = ui.select(["test", "train"], value="test", label="Task split").classes("min-w-28")

            def meet() -> None:
                try:
                    gyms = list(self.other(other.value).gyms(side.value))
                except ConfigError as error:
                    ui.notify(str(error), type="negative", multi_line=True)
                    return
                gym.set_options(gyms, value=gym.value if gym.value in gyms else gyms[0])

            def follow() -> None:
                other.set_options(self._others(side.value), value="rules")
                meet()

            side.on_value_change(follow)
            other.on_value_change(meet)
            consent = ui.checkbox(CONSENT).classes("text-sm")

            async def begin() -> None:
                if not consent.value:
                    ui.notify("Please tick the consent first. Nothing is stored without it.")
                    return
                choices = str(person.value or ""), side.value, gym.value, other.value, split.value
                await frame.go(lambda: f"/people/{self._begin(*choices)}")

            ui.button("Begin", on_click=begin).props("no-caps").classes("self-start")
        await self._results()

    async def show_sitting(self, token: str) -> None:
        """Draw one conversation with its current question, and the rating at the end."""
        sitting = self._sittings.get(token)
        if sitting is None:
            raise ConfigError(
                "people.conversation_over",
                "This conversation is over, or was never begun. Begin another one under People.",
            )
        setup = sitting.setup
        frame.heading(f"{setup.task.gym}: you are the {setup.side}")
        with ui.row().classes("gap-2"):
            frame.chip(f"with {other_side(setup.other_name)}")
            frame.chip(f"at most {setup.turns} turns")
        SittingPage(sitting).build()

    async def show_study(self, code: str) -> None:
        """Draw a person's page of the planned study."""
        if self.planned is None:
            raise ConfigError("people.unknown_code", "No study is held here. Start `userrl view` with --study FILE.")
        await self.planned.show(code)

    def _others(self, side: Side) -> dict[str, str]:
        if side == "agent":
            offered = {"rules": "the rule user"}
        else:
            offered = {"rules": "the demonstrator"}
            for run in all_runs():
                with contextlib.suppress(ConfigError):  # a recipe of another version, which cannot be played
                    if run.checkpoint is not None and Checkpoint(run).gyms(side):
                        offered[f"run:{run.id}"] = f"checkpoint of {run.id}"
        return offered | ({"served": f"served {self._served.get('model', 'model')}"} if self._served else {})

    def _begin(self, person: str, side: Side, gym: str, other: str, split: str) -> str:
        person = person.strip()[:80]
        chosen = self.other(other)

        def begun() -> Sitting:
            task = self._study.hand_out(gym, side, chosen, split=split, person=person)
            return Sitting(self._study, ConversationSetup(task, side, chosen, seed=secrets.randbelow(2**31)), person)

        self._study.note("consent", person=person, text=CONSENT)
        return self.sit(begun)

    def sit(self, start: Callable[[], Sitting]) -> str:
        """Begin a conversation and return its address. Raises ConfigError if too many are in progress."""
        token = secrets.token_urlsafe(12)
        with self._beginning:
            now = time.monotonic()
            for old_token, sitting in list(self._sittings.items()):
                if sitting.ended is not None and now - sitting.ended > KEPT_SECONDS:
                    del self._sittings[old_token]
            if sum(sitting.ended is None for sitting in self._sittings.values()) >= MOST:
                raise ConfigError("server.full", f"{MOST} conversations are in progress. Come back later.")
            self._sittings[token] = start()
        return token

    def other(self, name: str) -> Other:
        """Return the other side of this name: rules, served or run:ID. Raises ConfigError for an unknown run."""
        if name == "served" and self._served:
            return Served(self._served)
        if name.startswith("run:"):
            run = next((run for run in all_runs() if run.id == name.removeprefix("run:")), None)
            if run is None:
                raise ConfigError("run.no_such_run", "This run no longer exists. Choose another side.")
            return Checkpoint(run)
        return Other()

    async def _results(self) -> None:
        pairs = await frame.asked(lambda: people_report.paired(self._warehouse))
        talks = await frame.asked(lambda: self._warehouse.rows("FROM people ORDER BY started_at DESC LIMIT 20"))
        if pairs:
            with ui.element("div").classes("panel overflow-x-auto"):
                frame.heading(people_report.TITLE, level=2)
                columns = {
                    "gym": "Gym", "part": "Part", "other_side": "Other side", "simulated": "Simulated by", "tasks": "Tasks",
                    "conversations": "Conversations", "people": "People", "simulated_score": "Simulated",
                    "difference": "People − simulated",
                }  # fmt: skip
                frame.table([_paired(n, pair) for n, pair in enumerate(pairs)], columns, cards=True)
                ui.label(people_report.NOTE).classes("quiet text-sm")
                for sentence in people_report.unseen(pairs):
                    ui.label(sentence).classes("quiet text-sm")
                if caution := people_report.few(pairs):
                    ui.label(caution).classes("mark text-sm")
        if talks:
            with ui.element("div").classes("panel overflow-x-auto"):
                frame.heading("Conversations so far", level=2)
                columns = {
                    "traj": "Trajectory", "gym": "Gym", "part": "Part", "other_side": "Other side", "score": "Score",
                    "turns": "Turns", "seconds": "Seconds", "rating": "Rating", "person": "Person",
                }  # fmt: skip
                frame.table(
                    [_talk(row) for row in talks], columns, links=("traj",), wide=("turns", "seconds", "person")
                )


def _paired(n: int, pair: PeoplePair) -> dict[str, Any]:
    return {
        "id": n,
        "gym": pair.gym,
        "part": pair.part,
        "other_side": other_side(pair.other_side),
        "simulated": other_side(pair.simulated),
        "tasks": pair.tasks,
        "conversations": pair.conversations,
        "people": with_limits(pair.people_score),
        "simulated_score": with_limits(pair.simulated_score),
        "difference": with_limits(pair.difference, sign=True),
    }


def _talk(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **row,
        "id": str(row["traj_id"]),
        "traj": str(row["traj_id"]),
        "href_traj": f"/trajectory/{row['traj_id']}",
        "other_side": other_side(row["other_side"]),
        "score": frame.number(row["score"]),
        "seconds": round(row["person_seconds"] or 0),
        "rating": "★" * (row["rating"] or 0),
    }
