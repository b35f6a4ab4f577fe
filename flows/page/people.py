"""Pages for a person who takes the part of the user or the agent: consent, one conversation, a rating.

Several people can play at once. A conversation runs in its own thread and waits for the person's input. The page shows its
lines so far, so that the person can reload it or return after a lost connection.
"""

from __future__ import annotations

import contextlib
import queue
import re
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from nicegui import ui

from flows.page import frame
from userrl.machine.foreign_text import plain
from userrl.people.people import Checkpoint, Other, Served, Side, Study, Talk
from userrl.reports import people_report
from userrl.reports.people_report import PeoplePair
from userrl.run.outcome import ended, other_side
from userrl.run.run import all_runs
from userrl_core.errors import ConfigError, UserRLError
from userrl_core.gyms.human_user import Console
from userrl_core.number_format import with_limits
from userrl_core.records import Trajectory
from warehouse import Warehouse

CONSENT = (
    "I take part voluntarily and can stop at any time. What I write, how long I take, my rating and the name that I "
    "choose are stored in this warehouse and may be used for research. I will not write anything that identifies me."
)

IDLE_SECONDS = 1_800.0
"""Seconds without an answer after which a conversation ends without a score."""

KEPT_SECONDS = 6 * 3_600.0
"""Seconds that an ended conversation stays available under its address."""

MOST = 64
"""Maximum number of simultaneous conversations."""

CLOSING_SECONDS = 10.0
"""Seconds that a closing page waits for its conversations. Their turns are in the log in any case."""

LABEL = 25
"""A question longer than this stays visible above its answer."""

SAID = {
    "y": "Yes", "n": "No", "m": "Maybe", "0": "0: not at all", "0.5": "½: in part", "1": "1: fully",
}  # fmt: skip
"""Button labels for answers that are a letter or a number."""

_CHOICES = re.compile(r"\[([^\[\]]+/[^\[\]]+)\]\s*$")


class PageConsole(Console):
    """A console whose lines go to a page and whose answers come from it. The conversation's thread uses it; the page
    reads it.
    """

    def __init__(self) -> None:
        super().__init__(self._exchange, self._say)
        self.lines: list[tuple[str, str]] = []
        """Lines in order, as (kind, text); kind is ``note`` (shown to the person) or ``said`` (typed by the person)."""
        self.prompt: str | None = None
        """The current question. None while the other side works."""
        self.options: Sequence[str] = ()
        """Answers to choose from. Empty if any text is allowed."""
        self._answers: queue.Queue[str | None] = queue.Queue()

    def call(self, choices: Sequence[str]) -> str:
        """Ask the person for the agent's call."""
        return self._exchange(
            f"{' | '.join(choices)}, then the text" if len(choices) > 1 else f"{choices[0]}:", keep=False
        )

    def choose(self, prompt: str, options: Sequence[str]) -> int:
        """Ask the person to choose an option with a button."""
        began = time.perf_counter()
        answer = ""
        while answer not in options:
            answer = self._exchange(prompt, options)
        self.answered(time.perf_counter() - began)
        return list(options).index(answer)

    def put(self, answer: str | None) -> None:
        """Take an answer from the page. None means that the person leaves."""
        self._answers.put(answer)

    def _exchange(self, prompt: str, options: Sequence[str] = (), *, keep: bool = True) -> str:
        listed = _CHOICES.search(prompt)
        if listed and not options:
            options = listed[1].split("/")
        self.options, self.prompt = options, prompt[: listed.start()] if listed else prompt
        try:
            answer = self._answers.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            answer = None
        shown, self.prompt, self.options = self.prompt, None, ()
        if answer is None:
            raise EOFError
        if keep and len(shown) > LABEL:
            self.lines.append(("note", shown.strip()))
        self.lines.append(("said", SAID.get(answer, answer) if options else answer))
        return answer

    def _say(self, text: str) -> None:
        self.lines.append(("note", text.strip("\n")))


class Sitting:
    """A conversation in progress, in its own thread."""

    def __init__(self, study: Study, talk: Talk, person: str) -> None:
        self.talk, self.person = talk, person
        self.console = PageConsole()
        self.trajectory: Trajectory | None = None
        self.failure = ""
        self.ended: float | None = None
        self._study = study
        self._thread = threading.Thread(target=self._hold, daemon=True)
        self._thread.start()

    def _hold(self) -> None:
        try:
            self.trajectory = self._study.hold(self.talk, self.console, person=self.person)
            self._study.tell(self.trajectory, person=self.person, side=self.talk.side, where="page", consent=True)
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
                self.trajectory, person=self.person, side=self.talk.side, rating=rating, comment=comment[:2_000]
            )


class People:
    """The pages for people, and the conversations in progress.

    served: fields of `ChatServer` for a model that is offered as the other side.
    """

    def __init__(self, warehouse: Warehouse, served: dict[str, Any] | None = None) -> None:
        self._warehouse = warehouse
        self._study = Study(warehouse.root)
        self._served = served
        self._sittings: dict[str, Sitting] = {}
        self._beginning = threading.Lock()

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
        with ui.element("div").classes("panel flex flex-col gap-3 max-w-2xl"):
            ui.label("Take part in a conversation. It is stored turn by turn, like any other.")
            person = ui.input("Pseudonym (not your own name)").classes("w-full")
            with ui.row().classes("gap-4 items-end w-full"):
                side = ui.select({"user": "the user", "agent": "the agent"}, value="user", label="You play").classes(
                    "min-w-28"
                )
                gym = ui.select(list(Other().gyms("user")), value="turtle", label="Gym").classes("min-w-28")
                other = ui.select(self._others("user"), value="rules", label="Other side").classes("min-w-40")
                split = ui.select(["test", "train"], value="test", label="Task split").classes("min-w-28")

            def meet() -> None:
                try:
                    gyms = list(self._other(other.value).gyms(side.value))
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
                try:
                    choices = str(person.value or ""), side.value, gym.value, other.value, split.value
                    token = await frame.asked(lambda: self._begin(*choices))
                except UserRLError as error:
                    ui.notify(str(error), type="negative", multi_line=True)
                    return
                ui.navigate.to(f"/people/{token}")

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
        talk = sitting.talk
        frame.heading(f"{talk.task.gym}: you are the {talk.side}")
        with ui.row().classes("gap-2"):
            frame.chip(f"with {other_side(talk.other_name)}")
            frame.chip(f"at most {talk.turns} turns")
        SittingPage(sitting).build()

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
        chosen = self._other(other)
        token = secrets.token_urlsafe(12)
        with self._beginning:
            now = time.monotonic()
            for old_token, sitting in list(self._sittings.items()):
                if sitting.ended is not None and now - sitting.ended > KEPT_SECONDS:
                    del self._sittings[old_token]
            if sum(sitting.ended is None for sitting in self._sittings.values()) >= MOST:
                raise ConfigError("server.full", f"{MOST} conversations are in progress. Come back later.")
            task = self._study.hand_out(gym, side, chosen, split=split, person=person)
            talk = Talk(task, side, chosen, seed=secrets.randbelow(2**31))
            self._sittings[token] = Sitting(self._study, talk, person)
        return token

    def _other(self, name: str) -> Other:
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
            self._ask(console.prompt, console.options)

    def _ask(self, prompt: str | None, options: Sequence[str]) -> None:
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
            else:
                box = ui.textarea(label="Your message").classes("w-full").props("autogrow autofocus rows=1")
                send = self._answer(lambda: str(box.value or "").strip())
                box.on("keydown.enter.exact.prevent", send)
                ui.button("Send", on_click=send).props("no-caps").classes("self-end")
            ui.button("Stop here", on_click=lambda: self._sitting.console.put(None)).props("flat no-caps size=sm")

    def _answer(self, given: Callable[[], str]) -> Callable[[], None]:
        def send() -> None:
            if text := given():
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
            word = ended(trajectory.stop_reason, turns)
            ui.label(f"Ended after {frame.many(len(turns), 'turn')}: {word}, {score}.")
            if reason := _failure_of_the_other(trajectory, sitting.talk.side):
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
                    ui.link("Start another conversation", "/people")
                    ui.link("Show every turn of this one", address)

            ui.button("Submit rating", on_click=keep).props("no-caps").classes("self-start")


def _failure_of_the_other(trajectory: Trajectory, side: Side) -> str:
    """Return why a conversation was not scored. Empty if it was, or if the person left."""
    source, _, reason = (trajectory.reject_reason or "").partition(": ")
    return "" if source == ("user" if side == "user" else "policy") else reason


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
