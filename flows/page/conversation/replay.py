"""The page of one conversation, turn by turn: reasoning, message, reply, reward and credit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui
from nicegui.events import KeyEventArguments

from flows.page import charts, frame
from flows.page.conversation.credit import Credit, CreditSettings, advantage_meaning
from flows.page.conversation.credit_control import Bars, CreditControl
from flows.page.conversation.other_ways import Alternatives, possible
from flows.page.conversation.token_probabilities import TokenProbabilities
from flows.page.labels import LabelControl
from flows.page.trajectories import Listing
from userrl.reports.wording import attempt, opening_words, outcome, sentences_of
from userrl_core.errors import ConfigError
from userrl_core.gyms.registry import gym_class
from userrl_core.records import Flag
from userrl_core.rewards.meanings import SHAPING_MEANINGS
from warehouse import Warehouse
from warehouse.query import browse
from warehouse.query.browse import StoredConversation
from warehouse.query.failure import failure

KEYS = "Keys: j, k: next, previous turn · n, p: next, previous trajectory of the list · g: group"
SHORT = 60
"""Characters of the agent's text, and of the reply, that fit in one line."""
FLAGS = {
    Flag.FORMAT_ERROR: "no readable call",
    Flag.DISALLOWED: "choice not allowed",
    Flag.EXTRA_CALLS: "more than one call",
    Flag.LENGTH: "cut at its token limit",
    Flag.TIMEOUT: "timed out",
}


async def show_replay(warehouse: Warehouse, traj_id: int, query: Mapping[str, str]) -> None:
    """Draw the conversation with this id. The query names the list that the next and previous links follow."""
    stored = await frame.asked(lambda: browse.conversation(warehouse, traj_id))
    if stored is None:
        raise ConfigError("run.no_such_trajectory", f"There is no trajectory {traj_id} in this warehouse.")
    await ReplayPage(warehouse, stored, Listing(warehouse, query)).build()


class ReplayPage:
    """The page of one conversation: its turns, and the turn selected by the keyboard."""

    def __init__(self, warehouse: Warehouse, stored: StoredConversation, listing: Listing) -> None:
        self._warehouse, self._stored, self._listing = warehouse, stored, listing
        self._cards: list[ui.element] = []
        self._heads: list[ui.row] = []
        self._bars: list[Bars] = []
        self._at = -1
        self._goes_on = False
        self._targets: dict[str, str] = {"g": f"/group/{stored.trajectory['traj_id']}"}

    async def build(self) -> None:
        """Draw the whole page."""
        row = self._stored.trajectory
        frame.heading(f"{row['gym']}: {opening_words(row['messages'], row['task_id'])}")
        with ui.row().classes("gap-2 items-center"):
            frame.chip(outcome(row, self._stored.turns), kind=_kind(row))
            facts = (*frame.place(row), row["policy"], f"user {row['user_name'] or 'not named'}")
            for fact in (*facts, f"task {row['task_id']}"):
                frame.chip(str(fact or "–"))
            ui.link(str(row["run_id"]), f"/run/{row['run_id']}")
            ui.link("Group of this trajectory", f"/group/{row['traj_id']}")
        with ui.row().classes("gap-4 items-center"):
            self._neighbours = ui.row().classes("gap-4")
            ui.label(KEYS).classes("quiet text-sm")
        self._hint = ui.row().classes("gap-1")
        with ui.element("div").classes("panel"):
            self._chart = ui.echart(self._options(self._logged())).classes("w-full").style("height: 13rem")
            self._meaning = ui.label().classes("quiet text-sm")
            self._control = ui.element("div").classes("w-full")
        self._explain(self._logged(), CreditSettings.logged(self._stored.run))
        self._opening(row)
        container = ui.column().classes("place w-full gap-2")
        with ui.row():
            LabelControl(self._warehouse, row["run_id"], row["traj_id"], 0).build(container)
        counts = await frame.asked(lambda: _calls(self._warehouse, row["traj_id"]))
        self._goes_on = await frame.asked(lambda: possible(self._warehouse, self._stored))
        logged = self._logged()
        for number, turn in enumerate(self._stored.turns):
            self._turn(number, turn, logged, counts.get(turn["turn"], 0))
        if not self._stored.turns:
            frame.sentence("No turn was logged.")
        # Before the page is sent: a sentence above the chart that came later would push the chart down.
        self._say_where_to_look(await frame.asked(lambda: browse.rivals(self._warehouse, row["traj_id"])))
        ui.keyboard(on_key=self._key)
        ui.timer(0.0, self._add_surroundings, once=True)

    def _opening(self, row: Mapping[str, Any]) -> None:
        messages = json.loads(row["messages"] or "[]")
        with ui.element("div").classes("panel flex flex-col gap-2"):
            for message in messages:
                if message["role"] == "system":
                    with ui.expansion("System prompt of the agent").classes("w-full"):
                        frame.said(message["content"], "text-sm")
                else:
                    ui.label(f"First message ({message['role']})").classes("quiet text-sm")
                    frame.said(message["content"])
            if self._stored.task is not None:
                with ui.expansion("Task, with the user's hidden information", value=True).classes("w-full"):
                    if goal := _goal(row["gym"]):
                        frame.said(goal)
                    for sentence in sentences_of(self._stored.task):
                        frame.said(sentence, "text-sm")

    def _turn(self, number: int, turn: Mapping[str, Any], logged: Credit, calls: int) -> None:
        with (
            ui.element("section")
            .classes("panel turn flex flex-col gap-2")
            .props(f'tabindex=0 aria-label="turn {turn["turn"]}"') as card
        ):
            self._cards.append(card)
            with ui.row().classes("w-full items-baseline gap-x-3 gap-y-1") as head:
                self._heads.append(head)
                ui.label(f"Turn {turn['turn']}").classes("font-semibold w-14")
                ui.label(turn["choice"] or "no readable call").classes("w-14" if turn["choice"] else "mark")
                for flag, text in FLAGS.items():
                    if (turn["flags"] or 0) & flag and flag is not Flag.FORMAT_ERROR:
                        ui.label(text).classes("mark text-sm")
                if _is_short(turn):
                    if agent := _agent(turn):
                        frame.said(agent, "agent", "brief")
                    ui.label("→").classes("quiet").props('aria-label="reply"')
                    frame.said(_reply(turn))
                ui.label(_cost(turn)).classes("quiet text-sm ml-auto number")
            if not _is_short(turn):
                if turn["thought"]:
                    frame.said(turn["thought"], "quiet", "italic")
                ui.label("Agent").classes("quiet text-xs")
                frame.said(_agent(turn), "agent")
                ui.label("User or environment").classes("quiet text-xs")
                frame.said(_reply(turn), "px-3")
            with ui.row().classes("w-full items-center gap-x-4 gap-y-1"):
                bars = Bars(self._scales(logged))
                bars.build()
                bars.show(turn["reward"], _varying(logged.shaped)[number], _varying(logged.advantage)[number])
                self._bars.append(bars)
                buttons = ui.row().classes("acts items-center gap-x-2 gap-y-0 ml-auto")
            container = ui.column().classes("place w-full gap-2")
            with buttons:
                if calls:
                    self._calls_button(turn["turn"], calls, container)
                if turn["logprobs"]:
                    TokenProbabilities(self._stored.trajectory["run_id"], turn).build(container)
                if self._goes_on:
                    traj_id = self._stored.trajectory["traj_id"]
                    Alternatives(traj_id, self._stored.turns, turn["turn"]).build(container)
                row = self._stored.trajectory
                LabelControl(self._warehouse, row["run_id"], row["traj_id"], turn["turn"]).build(container)

    def _calls_button(self, turn: int, calls: int, container: ui.element) -> None:
        async def show() -> None:
            rows = await frame.asked(
                lambda: browse.model_calls(self._warehouse, self._stored.trajectory["traj_id"], turn)
            )
            button.delete()
            with container, ui.element("div").classes("overflow-x-auto w-full"):
                columns = {
                    "role": "Role", "model": "Model", "prompt_tokens": "Prompt tokens", "completion_tokens": "Completion tokens",
                    "seconds": "Seconds", "attempts": "Requests", "price": "Dollars", "error": "Error",
                }  # fmt: skip
                frame.table([{**row, "id": str(row["n"])} for row in rows], columns)
                for row in rows:
                    _asked(row)

        button = ui.button(f"{calls} model call{'s' if calls > 1 else ''}", on_click=show)
        button.props("flat dense no-caps size=12px")

    def _logged(self) -> Credit:
        turns = self._stored.turns
        return Credit([turn["shaped"] for turn in turns], [turn["advantage"] for turn in turns])

    def _position(self, members: Sequence[StoredConversation]) -> int:
        ids = [member.trajectory["traj_id"] for member in members]
        traj_id = self._stored.trajectory["traj_id"]
        return ids.index(traj_id) if traj_id in ids else 0

    def _scales(self, credit: Credit) -> tuple[float, float]:
        rewards = [turn["reward"] for turn in self._stored.turns]
        largest = max((abs(v) for v in (*rewards, *_varying(credit.shaped)) if v is not None), default=1.0)
        return largest or 1.0, max((abs(v) for v in credit.advantage if v is not None), default=1.0) or 1.0

    def _options(self, credit: Credit) -> dict[str, Any]:
        turns = self._stored.turns
        values = {
            "reward": [t["reward"] for t in turns],
            "shaped": _varying(credit.shaped),
            "advantage": _varying(credit.advantage),
        }
        present = {name: data for name, data in values.items() if any(v is not None for v in data)}
        return charts.turn_bars([t["turn"] for t in turns], present)

    def _explain(self, credit: Credit, settings: CreditSettings) -> None:
        """Explain the bars. Empty for a conversation without logged credit."""
        sentences = []
        if any(value is not None for value in credit.shaped) and settings.shaping in SHAPING_MEANINGS:
            sentences.append(f"Shaped credit{_everywhere(credit.shaped)}, {SHAPING_MEANINGS[settings.shaping]}.")
        if any(value is not None for value in credit.advantage):
            meaning = advantage_meaning(self._stored.run, settings)
            sentences.append(f"Advantage{_everywhere(credit.advantage)}, {meaning}.")
        self._meaning.set_text(" ".join(sentences))

    def _recolour(self, credit: Credit, settings: CreditSettings) -> None:
        self._explain(credit, settings)
        scales = self._scales(credit)
        for bars, turn, shaped, advantage in zip(
            self._bars, self._stored.turns, _varying(credit.shaped), _varying(credit.advantage), strict=True
        ):
            bars.scales = scales
            bars.show(turn["reward"], shaped, advantage)
        self._chart.options.clear()
        self._chart.options.update(self._options(credit))
        self._chart.update()

    async def _add_surroundings(self) -> None:
        """Add what needs the rest of the group or of the list, after the conversation itself is drawn."""
        members = await frame.asked(lambda: browse.group(self._warehouse, self._stored.trajectory["traj_id"]))
        if len(members) > 1 and self._stored.turns and self._stored.run.get("kind") is None:
            with self._control:
                CreditControl(
                    self._stored.run, members, self._position(members), self._logged(), self._recolour
                ).build()
        await self._find_neighbours()

    def _say_where_to_look(self, rivals: Sequence[StoredConversation]) -> None:
        """For a failed conversation, show the last turn with a reward, and where the best one on its task diverged."""
        failed = failure(self._stored.trajectory, self._stored.turns, rivals)
        if failed is None:
            return
        last = failed.last_rewarded
        with self._hint:
            if last and last < failed.turns:
                self._mark(last)
                ui.link(f"After turn {last}", self._cards[last]).on("click", lambda: self._go(last))
                ui.label("no reward was earned.")
            elif failed.rewards:
                ui.label(failed.rewards)
            if failed.best is None:
                return
            best, evaluated = failed.best.trajectory, self._stored.trajectory["phase"] == "evaluate"
            who = best["policy"] if evaluated else attempt(best)
            name = f"{who}, score {frame.number(best['score'])}"
            ui.label("The best trajectory on this task," if evaluated else "The best trajectory of the group,")
            ui.link(name, f"/trajectory/{best['traj_id']}")
            ui.label(failed.divergence)

    def _mark(self, number: int) -> None:
        with self._heads[number]:
            ui.label("No reward from here on").classes("mark text-sm").move(target_index=2)

    async def _find_neighbours(self) -> None:
        traj_id = self._stored.trajectory["traj_id"]
        try:
            later = await frame.asked(lambda: self._listing.page(after=traj_id, size=1).rows)
            earlier = await frame.asked(lambda: self._listing.page(before=traj_id, size=1).rows)
        except ConfigError:  # still in progress, so in no list yet
            later, earlier = [], []
        with self._neighbours:
            for key, text, rows in (("p", "← Previous", earlier), ("n", "Next →", later)):
                if rows:
                    self._targets[key] = self._listing.address(f"/trajectory/{rows[0]['traj_id']}")
                    ui.link(text, self._targets[key])

    def _key(self, event: KeyEventArguments) -> None:
        if not event.action.keydown or event.modifiers.ctrl or event.modifiers.meta or event.modifiers.alt:
            return
        name = str(event.key.name)
        if name in ("j", "k"):
            self._go(self._at + (1 if name == "j" else -1))
        elif target := self._targets.get(name):
            ui.navigate.to(target)

    def _go(self, to: int) -> None:
        if not self._cards:
            return
        if 0 <= self._at < len(self._cards):
            self._cards[self._at].classes(remove="now")
        self._at = min(max(to, 0), len(self._cards) - 1)
        card = self._cards[self._at]
        card.classes("now")
        ui.run_javascript(f"getHtmlElement({card.id}).scrollIntoView({{block: 'center'}})")


def _kind(row: Mapping[str, Any]) -> str:
    """Return the colour of a conversation's outcome."""
    if row["stop_reason"] is not None and not row["admitted"]:
        return "bad"
    return "good" if row["stop_reason"] == "success" else "odd"


def _agent(turn: Mapping[str, Any]) -> str:
    return (turn["content"] if turn["choice"] else turn["message"]) or ""


def _reply(turn: Mapping[str, Any]) -> str:
    return turn["observation"] or "(no reply)"


def _is_short(turn: Mapping[str, Any]) -> bool:
    """Return whether a turn fits in one line: two short texts, without a thought."""
    texts = (_agent(turn), _reply(turn))
    return not turn["thought"] and max(map(len, texts)) <= SHORT and not any("\n" in text for text in texts)


def _varying(values: Sequence[float | None]) -> Sequence[float | None]:
    """Return the credit of each turn. Returns nulls if it is the same in all turns, where the page says it once."""
    return [None] * len(values) if _everywhere(values) else values


def _everywhere(values: Sequence[float | None]) -> str:
    """Return the words for a credit that is the same in several turns. Empty if it differs or was not logged."""
    same = len(values) > 1 and values[0] is not None and all(value == values[0] for value in values)
    return f" {frame.number(values[0], sign=True)} in every turn" if same else ""


def _cost(turn: Mapping[str, Any]) -> str:
    """Return a turn's tokens and seconds. Empty if nothing of them is known, as in an import."""
    if all(turn[name] is None for name in ("prompt_tokens", "completion_tokens", "policy_seconds", "env_seconds")):
        return ""
    tokens = " + ".join(_whole(turn[name]) for name in ("prompt_tokens", "completion_tokens"))
    agent, user = (frame.number(turn[name], 2) for name in ("policy_seconds", "env_seconds"))
    return f"{tokens} tokens · {agent} s agent, {user} s user"


def _whole(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _asked(call: Mapping[str, Any]) -> None:
    """Draw the prompt and reply of a user or judge call. Training does not store them, and earlier versions stored none."""
    if call["prompt"] is None and call["reply"] is None:
        return
    with (
        ui.expansion(f"{str(call['role']).capitalize()} call {call['n']}: prompt and reply")
        .classes("w-full")
        .props("dense")
    ):
        for message in json.loads(call["prompt"] or "[]"):
            ui.label(str(message["role"])).classes("quiet text-sm")
            frame.said(str(message["content"]))
        ui.label("Reply").classes("quiet text-sm")
        frame.said(call["reply"] or "(none)", "agent")


def _goal(gym: str) -> str:
    """Return the gym's goal as the agent was told it. Empty for a gym that is not installed here."""
    try:
        return gym_class(gym).goal
    except ConfigError:
        return ""


def _calls(warehouse: Warehouse, traj_id: int) -> dict[int, int]:
    counts: dict[int, int] = {}
    for call in warehouse.stored("model_calls", [traj_id], "turn"):
        counts[call["turn"]] = counts.get(call["turn"], 0) + 1
    return counts
