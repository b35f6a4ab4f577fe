"""Pages of a planned study with people: the invitation with the consent, and each person's own page."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable

from nicegui import ui

from flows.page import frame
from userrl.machine.home import home
from userrl_core.errors import ConfigError
from userrl_core.records import Task, Trajectory
from userrl_people.others import Other, check_side
from userrl_people.plan import Next, PeoplePlan, Seats
from userrl_people.sitting import CONSENT, Sitting
from userrl_people.study import ConversationSetup, Study


class PlannedStudy:
    """A study whose seats people take at this page.

    other: returns the other side of a name. sit: begins a conversation and returns its token.
    """

    def __init__(
        self,
        plan: PeoplePlan,
        study: Study,
        other: Callable[[str], Other],
        sit: Callable[[Callable[[], Sitting]], str],
    ) -> None:
        check_side(plan.gym, plan.side)
        self.plan = plan
        self._study, self._other, self._sit = study, other, sit
        self._seats = Seats(plan, home() / "people" / f"{plan.name}.json")
        ids = [task.id for task in other(plan.others[0]).tasks(plan.gym, plan.split)]
        self._tasks = plan.drawn(ids)
        self._open: dict[str, tuple[str, Sitting]] = {}
        """Each person's last conversation, with its token."""
        self._beginning = threading.Lock()

    def invite(self) -> None:
        """Draw the consent, and the way back for a person who was here before."""
        plan = self.plan
        with ui.element("div").classes("panel flex flex-col gap-3 max-w-2xl"):
            frame.heading(f"Study {plan.name}", level=2)
            ui.label(
                f"You have {frame.many(plan.conversations, 'conversation')} as the {plan.side}, one after the other."
            )
            consent = ui.checkbox(CONSENT).classes("text-sm")

            async def arrive() -> None:
                if not consent.value:
                    ui.notify("Please tick the consent first. Nothing is stored without it.")
                    return
                await frame.go(lambda: f"/study/{self._arrive()}")

            ui.button("Take part", on_click=arrive).props("no-caps").classes("self-start")
            with ui.row().classes("gap-2 items-end"):
                code = ui.input("Your code, if you were here before")
                ui.button(
                    "Come back", on_click=lambda: ui.navigate.to(f"/study/{str(code.value or '').strip()}")
                ).props("no-caps outline")

    async def show(self, code: str) -> None:
        """Draw a person's page: the next conversation, the code to come back with, and the way out."""
        plan = self.plan
        completed = await frame.asked(lambda: self._seats.held(code))
        frame.heading(f"Study {plan.name}")
        with ui.element("div").classes("panel flex flex-col gap-3 max-w-2xl"):
            if completed >= plan.conversations:
                ui.label("You have had all your conversations. Thank you.")
            else:
                ui.label(
                    f"Conversation {completed + 1} of {plan.conversations}. Your code is {code}: with it you can come back."
                )
                ui.button("Begin", on_click=lambda: frame.go(lambda: f"/people/{self.begin(code)}")).props(
                    "no-caps"
                ).classes("self-start")

            async def withdraw() -> None:
                await frame.asked(lambda: self._withdraw(code))
                ui.navigate.to("/people")

            ui.label("If you withdraw your consent, your conversations are in no export.").classes("quiet text-sm")
            ui.button("Withdraw", on_click=withdraw).props("flat no-caps size=sm").classes("self-start")

    def begin(self, code: str) -> str:
        """Begin the person's next conversation and return its token; the one in progress if there is one."""
        with self._beginning:
            at = self._seats.next(code)
            if at is None:
                raise ConfigError("people.conversation_over", "You have had all your conversations.")
            if code in self._open and self._open[code][1].ended is None:
                return self._open[code][0]
            plan, other = self.plan, self._other(self.plan.others[at.other])
            setup = ConversationSetup(self._task(other, at), plan.side, other, seed=secrets.randbelow(2**31))
            event_fields = {"study": plan.name, "seat": at.seat, "place": at.position, "other": plan.others[at.other]}

            def on_stored(trajectory: Trajectory) -> None:
                self._seats.done(code, at, trajectory.traj_id or 0)

            sittings: list[Sitting] = []

            def start() -> Sitting:
                sittings.append(
                    Sitting(
                        self._study, setup, code, event_fields=event_fields, on_stored=on_stored, back=f"/study/{code}"
                    )
                )
                return sittings[0]

            token = self._sit(start)
            self._open[code] = token, sittings[0]
            return token

    def _arrive(self) -> str:
        code, plan = self._seats.arrive(), self.plan
        self._study.note(
            "study", study=plan.name, hash=plan.hash, persons=plan.persons, conversations=plan.conversations
        )
        self._study.note("consent", study=plan.name, person=code, text=CONSENT)
        return code

    def _withdraw(self, code: str) -> None:
        if code in self._open:
            self._open[code][1].console.put(None)
        self._seats.withdraw(code)
        self._study.note("withdrawal", study=self.plan.name, person=code)

    def _task(self, other: Other, at: Next) -> Task:
        task_id = self._tasks[at.task]
        for task in other.tasks(self.plan.gym, self.plan.split):
            if task.id == task_id:
                return task
        raise ConfigError(
            "people.bad_plan", f"{self.plan.others[at.other]} does not have the study's task '{task_id}'."
        )
