"""Other ways on from a turn: the checkpoint that the run chose plays on from it, beside what was stored.

The library plays in a process of its own, which takes the model with it when it ends. Nothing is logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from flows.page import frame
from userrl.branching.apart import branch_apart
from userrl.branching.branch import BranchRequest, Way
from userrl.machine.home import runs_dir, warehouse_dir
from userrl.run.outcome import ended
from userrl.run.run import load
from userrl_core.audit.replay import why_not
from userrl_core.errors import UserRLError
from userrl_core.gyms import names
from warehouse import Warehouse
from warehouse.query.browse import StoredConversation

WAYS = 4
SECONDS = 180.0
"""How long the process may take."""

LONGEST = 4_000
"""Characters that a person may have the agent say."""

_one_at_a_time = asyncio.Semaphore(1)
"""Each holds a model in memory."""


def possible(warehouse: Warehouse, shown: StoredConversation) -> bool:
    """Whether the conversation can be replayed, and its run's checkpoint is here to go on."""
    row = shown.trajectory
    if row["gym"] not in names() or row["stop_reason"] is None or why_not(row["gym"], row["user_name"]):
        return False
    if shown.task is None or warehouse.root.resolve() != warehouse_dir().resolve():
        return False
    folder = runs_dir() / row["run_id"]
    checkpoint = load(folder).checkpoint if (folder / "run.json").is_file() else None
    return checkpoint is not None and checkpoint.is_dir()


class OtherWays:
    """Below one turn: what else the agent is to say there, and the ways on."""

    def __init__(self, traj_id: int, turns: Sequence[Mapping[str, Any]], number: int) -> None:
        self._traj_id, self._turns, self._number = traj_id, turns, number

    def build(self) -> None:
        """A button that draws the rest."""
        place = ui.column().classes("w-full gap-2")

        def unfold() -> None:
            place.clear()
            with place:
                self._unfold()

        with place:
            ui.button("other ways on from here", on_click=unfold).props("flat dense no-caps size=12px")

    def _unfold(self) -> None:
        with ui.element("div").classes("w-full flex flex-col gap-2"):
            ui.label("Other ways on from here").classes("font-semibold")
            ui.label(
                f"The checkpoint that the run chose plays this turn and what follows {WAYS} times, sampling as in training; the "
                "turns before it stay as they were. It is not the model of this step. Nothing is kept."
            ).classes("quiet text-sm")
            with ui.row().classes("items-end gap-3 w-full"):
                self._edit = ui.input("or the agent says here, such as: answer H1").props(f"maxlength={LONGEST} dense")
                self._edit.classes("grow min-w-60")
                self._button = ui.button("Play on", on_click=self._play).props("no-caps outline")
            self._place = ui.column().classes("w-full")

    async def _play(self) -> None:
        self._button.disable()
        self._place.clear()
        with self._place:
            ui.label("It plays …").classes("quiet").props('role="status"')
        found: Sequence[Way] | str
        try:
            found = await self._played(str(self._edit.value or "").strip()[:LONGEST])
        except UserRLError as error:
            found = str(error)
        if self._place.is_deleted:
            return
        self._button.enable()
        self._place.clear()
        with self._place:
            if isinstance(found, str):
                frame.sentence(found)
            else:
                self._show(found)

    async def _played(self, edit: str) -> Sequence[Way]:
        request = BranchRequest(trajectory=self._traj_id, turn=self._number, k=WAYS, edit=edit or None)
        async with _one_at_a_time:
            return await branch_apart(request, SECONDS)

    def _show(self, ways: Sequence[Way]) -> None:
        scores = [way.score for way in ways if way.score is not None]
        if scores:
            mean = frame.number(sum(scores) / len(scores))
            ui.label(
                f"Mean score of {len(scores)} ways on: {mean}; so few show what can happen, not how often."
            ).classes("text-sm")
        with (
            ui.element("div")
            .classes("flex flex-nowrap gap-3 overflow-x-auto w-full pb-2")
            .props('tabindex=0 aria-label="other ways"')
        ):
            self._column("as it was", self._turns[self._number - 1 :], "")
            for n, way in enumerate(ways, 1):
                turns = [turn.model_dump() for turn in way.turns]
                self._column(f"way {n}", turns, f"{ended(way.stop_reason, turns)}, score {frame.number(way.score)}")

    def _column(self, name: str, turns: Sequence[Mapping[str, Any]], ending: str) -> None:
        with ui.element("section").classes("panel member flex flex-col gap-2"):
            ui.label(name).classes("font-semibold")
            ui.label(ending).classes("quiet text-sm")
            for turn in turns:
                frame.turn(turn)
