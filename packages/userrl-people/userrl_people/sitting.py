"""One conversation with a person at the page: its thread, its live view, and the rating at the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from nicegui import ui

from flows.page import frame
from userrl.machine.foreign_text import plain
from userrl.reports.wording import ended
from userrl_core.errors import UserRLError
from userrl_core.records import Trajectory
from userrl_people.console import SAID, PageConsole
from userrl_people.others import Side
from userrl_people.study import ConversationSetup, Study

CONSENT = (
    "I take part voluntarily and can stop at any time. What I write, how long I take, my rating and the name that I "
    "choose are stored in this warehouse and may be used for research. I will not write anything that identifies me."
)


class Sitting:
    """A conversation in progress, in its own thread. The person has consented.

    event_fields: further fields of its event. on_stored: called once it is stored, if it has a score. back: the page to return to.
    """

    def __init__(
        self,
        study: Study,
        setup: ConversationSetup,
        person: str,
        *,
        event_fields: Mapping[str, Any] | None = None,
        on_stored: Callable[[Trajectory], None] = lambda trajectory: None,
        back: str = "/people",
    ) -> None:
        self.setup, self.person, self.back = setup, person, back
        self._event_fields, self._on_stored = dict(event_fields or {}), on_stored
        self.console = PageConsole()
        self.trajectory: Trajectory | None = None
        self.failure = ""
        self.ended: float | None = None
        self._study = study
        self._thread = threading.Thread(target=self._hold, daemon=True)
        self._thread.start()

    def _hold(self) -> None:
        try:
            self.trajectory = self._study.hold(self.setup, self.console, person=self.person)
            self._study.tell(
                self.trajectory,
                person=self.person,
                side=self.setup.side,
                where="page",
                consent=True,
                **self._event_fields,
            )
            if self.trajectory.admitted:
                self._on_stored(self.trajectory)
        except UserRLError as error:
            self.failure = str(error)
        finally:
            self.ended = time.monotonic()

    def join(self, seconds: float) -> None:
        """Wait for the end of the conversation."""
        self._thread.join(seconds)

    def rate(self, rating: int, comment: str) -> None:
        """Store the person's rating."""
        if self.trajectory is not None:
            self._study.tell(
                self.trajectory, person=self.person, side=self.setup.side, rating=rating, comment=comment[:2_000]
            )


class SittingPage:
    """The live view of one conversation."""

    def __init__(self, sitting: Sitting) -> None:
        self._sitting = sitting
        self._shown = 0
        self._asked: tuple[str | None, Sequence[str], int] | None = None
        self._is_over = False

    def build(self) -> None:
        """Draw the lines so far and the current question below them."""
        self._lines = ui.column().classes("w-full gap-2 max-w-3xl").props('role="log" aria-live="polite"')
        self._question = ui.column().classes("w-full gap-2 max-w-3xl panel")
        self._timer = ui.timer(0.3, self._follow)

    def _follow(self) -> None:
        console = self._sitting.console
        with self._lines:
            for kind, text in console.lines[self._shown :]:
                frame.said(text, *(("agent", "self-end") if kind == "said" else ("panel",)))
        if len(console.lines) > self._shown:
            self._shown = len(console.lines)
            ui.run_javascript(f"getHtmlElement({self._question.id}).scrollIntoView({{block: 'end'}})")
        if self._sitting.ended is not None:
            if not self._is_over:
                self._is_over = True
                self._timer.deactivate()
                self._end()
            return
        now = (console.prompt, console.options, len(console.lines))
        if now != self._asked:
            self._asked = now
            self._ask(console.prompt, console.options, console.calls)

    def _ask(self, prompt: str | None, options: Sequence[str], calls: Mapping[str, Sequence[str]]) -> None:
        self._question.clear()
        with self._question:
            if prompt is None:
                ui.label("Waiting for the other side …").classes("quiet")
                return
            frame.said(prompt.strip() or "Your answer")
            if options:
                with ui.row().classes("gap-2"):
                    for option in options:
                        ui.button(plain(SAID.get(option, option)), on_click=self._answer(partial(str, option))).props(
                            "no-caps outline"
                        )
            elif calls:
                self._offer(calls)
            else:
                box = ui.textarea(label="Your message").classes("w-full").props("autogrow autofocus rows=1")
                send = self._answer(lambda: str(box.value or "").strip())
                box.on("keydown.enter.exact.prevent", send)
                ui.button("Send", on_click=send).props("no-caps").classes("self-end")
            ui.button("Stop here", on_click=lambda: self._sitting.console.put(None)).props("flat no-caps size=sm")

    def _offer(self, calls: Mapping[str, Sequence[str]]) -> None:
        """Draw a button for each ready content of a choice, and a text with one button for each choice that needs it."""
        for choice, contents in calls.items():
            if contents:
                with ui.row().classes("gap-2 items-center"):
                    for content in contents:
                        label = f"{choice}: {content}" if content else choice
                        ui.button(plain(label), on_click=self._answer(partial(str, f"{choice}: {content}"))).props(
                            "no-caps outline"
                        )
        if worded := [choice for choice, contents in calls.items() if not contents]:
            box = ui.textarea(label="Text").classes("w-full").props("autogrow autofocus rows=1")

            def call(choice: str) -> str:
                text = str(box.value or "").strip()
                if not text:
                    ui.notify(f"Write the text of your {choice} first.")
                return f"{choice}: {text}" if text else ""

            box.on("keydown.enter.exact.prevent", self._answer(partial(call, worded[0])))
            with ui.row().classes("gap-2 self-end"):
                for choice in worded:
                    ui.button(choice, on_click=self._answer(partial(call, choice))).props("no-caps")

    def _answer(self, read_answer: Callable[[], str]) -> Callable[[], None]:
        def send() -> None:
            if text := read_answer():
                self._sitting.console.put(text)

        return send

    def _end(self) -> None:
        self._question.clear()
        trajectory, sitting = self._sitting.trajectory, self._sitting
        with self._question:
            if trajectory is None:
                frame.said(sitting.failure or "This conversation failed.")
                return
            score = "not scored" if trajectory.score is None else f"score {frame.number(trajectory.score)}"
            turns = [{"choice": turn.choice, "reward": turn.reward} for turn in trajectory.turns]
            ending = ended(trajectory.stop_reason, turns)
            ui.label(f"Ended after {frame.many(len(turns), 'turn')}: {ending}, {score}.")
            if reason := _failure_of_the_other(trajectory, sitting.setup.side):
                frame.said(reason)
            address = f"/trajectory/{trajectory.traj_id}"
            ui.link("Show every turn", address)
            ui.label("How natural was the other side?")
            stars = ui.rating(max=5, size="lg").props('aria-label="Rating"')
            comment = ui.input("Comment").classes("w-full")

            def keep() -> None:
                rating = int(stars.value or 0)
                sitting.rate(rating, str(comment.value or ""))
                self._question.clear()
                with self._question:
                    stored = f"Your rating is stored: {rating} of 5." if rating else "Stored without a rating."
                    ui.label(f"{stored} Thank you.").props('role="status"')
                    ui.link("Continue" if sitting.back != "/people" else "Start another conversation", sitting.back)
                    ui.link("Show every turn of this one", address)

            ui.button("Submit rating", on_click=keep).props("no-caps").classes("self-start")


def _failure_of_the_other(trajectory: Trajectory, side: Side) -> str:
    """Return why a conversation was not scored. Empty if it was, or if the person left."""
    source, _, reason = (trajectory.reject_reason or "").partition(": ")
    return "" if source == ("user" if side == "user" else "policy") else reason
