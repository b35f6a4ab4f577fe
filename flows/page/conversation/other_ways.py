"""Alternative continuations from a turn, by the checkpoint that the run chose, next to the stored one.

The library samples them in a separate process, whose end frees the model's memory. Nothing is logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from analysis.credit.replay import why_not
from flows.page import frame
from userrl.branching.apart import branch_apart
from userrl.branching.branch import BranchRequest, Continuation
from userrl.machine.home import runs_dir, warehouse_dir
from userrl.reports.wording import ended
from userrl.run.run import load
from userrl_core.errors import UserRLError
from userrl_core.gyms import names
from warehouse import Warehouse
from warehouse.query.browse import StoredConversation

WAYS = 4
SECONDS = 180.0
"""Seconds that the process may take."""

LONGEST = 4_000
"""Maximum number of characters of an edited agent reply."""

_one_at_a_time = asyncio.Semaphore(1)
"""One continuation request at a time, because each holds a model in memory."""


def possible(warehouse: Warehouse, stored: StoredConversation) -> bool:
    """Return whether the conversation can be replayed and its run's checkpoint is available."""
    row = stored.trajectory
    if row["gym"] not in names() or row["stop_reason"] is None or why_not(row["gym"], row["user_name"]):
        return False
    if stored.task is None or warehouse.root.resolve() != warehouse_dir().resolve():
        return False
    folder = runs_dir() / row["run_id"]
    checkpoint = load(folder).checkpoint if (folder / "run.json").is_file() else None
    return checkpoint is not None and checkpoint.is_dir()


class Alternatives:
    """The controls below one turn: an edited reply, and the continuations from there."""

    def __init__(self, traj_id: int, turns: Sequence[Mapping[str, Any]], number: int) -> None:
        self._traj_id, self._turns, self._number = traj_id, turns, number

    def build(self, container: ui.element) -> None:
        """Draw a button that opens the controls in this place."""

        def unfold() -> None:
            button.delete()
            with container:
                self._unfold()

        button = ui.button("Try alternatives from here", on_click=unfold).props("flat dense no-caps size=12px")

    def _unfold(self) -> None:
        with ui.element("div").classes("w-full flex flex-col gap-2"):
            ui.label("Alternatives from here").classes("font-semibold")
            ui.label(
                f"The run's chosen checkpoint plays this turn and the rest {WAYS} times, with sampling as in training. "
                "Earlier turns stay unchanged. The checkpoint is not the model of this step. Nothing is stored."
            ).classes("quiet text-sm")
            with ui.row().classes("items-end gap-3 w-full"):
                self._edit = ui.input("Or set the agent's reply here, such as: answer H1").props(
                    f"maxlength={LONGEST} dense"
                )
                self._edit.classes("grow min-w-60")
                self._button = ui.button("Continue", on_click=self._play).props("no-caps outline")
            self._place = ui.column().classes("w-full")

    async def _play(self) -> None:
        self._button.disable()
        self._place.clear()
        with self._place:
            ui.label("Playing …").classes("quiet").props('role="status"')
        alternatives: Sequence[Continuation] | str
        try:
            alternatives = await self._played(str(self._edit.value or "").strip()[:LONGEST])
        except UserRLError as error:
            alternatives = str(error)
        if self._place.is_deleted:
            return
        self._button.enable()
        self._place.clear()
        with self._place:
            if isinstance(alternatives, str):
                frame.sentence(alternatives)
            else:
                self._show(alternatives)

    async def _played(self, edit: str) -> Sequence[Continuation]:
        request = BranchRequest(trajectory=self._traj_id, turn=self._number, k=WAYS, edit=edit or None)
        async with _one_at_a_time:
            return await branch_apart(request, SECONDS)

    def _show(self, alternatives: Sequence[Continuation]) -> None:
        scores = [alternative.score for alternative in alternatives if alternative.score is not None]
        if scores:
            mean = frame.number(sum(scores) / len(scores))
            ui.label(
                f"Mean score of {len(scores)} alternatives: {mean}. So few samples show what can happen, not how often."
            ).classes("text-sm")
        with (
            ui.element("div")
            .classes("flex flex-nowrap gap-3 overflow-x-auto w-full pb-2")
            .props('tabindex=0 aria-label="Alternatives"')
        ):
            self._column("Stored", self._turns[self._number - 1 :], "")
            for n, alternative in enumerate(alternatives, 1):
                turns = [turn.model_dump() for turn in alternative.turns]
                self._column(
                    f"Alternative {n}",
                    turns,
                    f"{ended(alternative.stop_reason, turns)}, score {frame.number(alternative.score)}",
                )

    def _column(self, name: str, turns: Sequence[Mapping[str, Any]], ending: str) -> None:
        with ui.element("section").classes("panel member flex flex-col gap-2"):
            ui.label(name).classes("font-semibold")
            ui.label(ending).classes("quiet text-sm")
            for turn in turns:
                frame.turn(turn)
