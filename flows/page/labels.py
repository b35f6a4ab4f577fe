"""A control for labelling a turn or a conversation."""

from __future__ import annotations

from nicegui import ui

from flows.page import frame
from userrl.audits.labels import NO, YES, Label, store_labels
from userrl.machine.home import warehouse_dir
from userrl_core.errors import UserRLError
from warehouse import Warehouse

LONGEST = 100


class LabelControl:
    """A button that opens the form of a label. turn: 0 for the whole conversation."""

    def __init__(self, warehouse: Warehouse, run_id: str, traj_id: int, turn: int) -> None:
        self._warehouse, self._run_id, self._traj_id, self._turn = warehouse, run_id, traj_id, turn

    def build(self, container: ui.element) -> None:
        """Draw the button that opens the form in this place. Draws nothing in a warehouse that this home does not write to."""
        if self._warehouse.root.resolve() != warehouse_dir().resolve():
            return

        def unfold() -> None:
            button.delete()
            with container, ui.row().classes("w-full items-end gap-3"):
                self._name = ui.input("Label set").props(f"maxlength={LONGEST} dense")
                self._person = ui.input("Your name").props(f"maxlength={LONGEST} dense")
                ui.button("Yes", on_click=lambda: self._store(YES)).props("no-caps outline size=sm")
                ui.button("No", on_click=lambda: self._store(NO)).props("no-caps outline size=sm")
                self._said = ui.label().classes("quiet text-sm").props('role="status"')

        unit = "turn" if self._turn else "conversation"
        button = ui.button(f"Label this {unit}", on_click=unfold).props("flat dense no-caps size=12px")

    async def _store(self, value: str) -> None:
        name, person = (str(field.value or "").strip()[:LONGEST] for field in (self._name, self._person))
        if not name or not person:
            self._said.set_text("Give the label set and your name.")
            return
        label = Label(self._traj_id, self._turn, value)
        try:
            await frame.asked(lambda: store_labels(self._run_id, name, [label], source="person", labeller=person))
        except UserRLError as error:
            self._said.set_text(str(error))
            return
        self._said.set_text(f"Stored: {value}.")
