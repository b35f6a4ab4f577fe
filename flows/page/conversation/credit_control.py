"""A turn's bars of reward, credit and advantage, and the controls that recompute them over the group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nicegui import ui

from analysis.drawing import COLORS
from flows.page import charts, frame
from flows.page.conversation.credit import SCORES, SHAPINGS, Credit, CreditSettings, rescored
from userrl_core.errors import ConfigError
from warehouse.query.browse import StoredConversation


class Bars:
    """Bars for the raw reward, shaped credit and advantage of a turn. scales: the values that fill half a bar."""

    def __init__(self, scales: tuple[float, float]) -> None:
        self.scales = scales
        self._fills: list[tuple[ui.row, ui.element, ui.label]] = []

    def build(self) -> None:
        """Draw three bars."""
        with ui.element("div").classes("flex flex-wrap gap-x-4 gap-y-1"):
            for name in ("reward", "shaped", "advantage"):
                with ui.row().classes("items-center gap-2 flex-nowrap w-64") as bar_row:
                    ui.label(charts.LABELS[name]).classes("quiet text-xs" + (" w-20" if name == "shaped" else ""))
                    with ui.element("div").classes("track"):
                        fill = ui.element("div")
                    self._fills.append((bar_row, fill, ui.label().classes("text-xs w-14 text-right number")))

    def show(self, reward: float | None, shaped: float | None, advantage: float | None) -> None:
        """Set the bars, in the chart's colours. A null reward is a dash, never a zero; a missing credit is not drawn."""
        scales = (self.scales[0], self.scales[0], self.scales[1])
        plain = (COLORS[0], COLORS[1], None)
        values = (reward, shaped, advantage)
        for n, ((bar_row, fill, label), value, scale) in enumerate(zip(self._fills, values, scales, strict=True)):
            bar_row.set_visibility(n == 0 or value is not None)
            share = 0.0 if value is None else 50 * min(abs(value) / scale, 1.0)
            left = 50 - share if (value or 0) < 0 else 50
            color = plain[n] or (charts.BAD if (value or 0) < 0 else charts.GOOD)
            fill.style(f"left: {left:.1f}%; width: {share:.1f}%; background: {color}")
            label.set_text(frame.number(value, sign=True))


class CreditControl:
    """Controls for shaping, score and gamma. Each change recomputes the turns' credit over the group."""

    def __init__(
        self,
        run: dict[str, Any],
        members: Sequence[StoredConversation],
        position: int,
        logged: Credit,
        show: Callable[[Credit, CreditSettings], None],
    ) -> None:
        self._run, self._members, self._position, self._logged, self._show = run, members, position, logged, show
        self._own = CreditSettings.of(run)

    def build(self) -> None:
        """Draw the controls."""
        settings = self._own
        with ui.row().classes("items-center gap-4 pt-6"):  # gamma's value is drawn above its slider
            self._shaping = ui.select(
                ["as logged", *SHAPINGS], value="as logged", label="Shaping", on_change=self._change
            )
            self._shaping.classes("min-w-28")
            self._score = ui.select(list(SCORES), value=settings.score, label="Score", on_change=self._change).classes(
                "min-w-20"
            )
            with ui.row().classes("items-center gap-4 flex-nowrap pt-4 sm:pt-0 pr-4"):
                ui.label("Gamma").classes("quiet text-sm")
                self._gamma = ui.slider(min=0, max=1, step=0.05, value=settings.gamma, on_change=self._change)
                self._gamma.classes("w-40").props('label-always aria-label="Gamma"')
            self._note = ui.label().classes("quiet text-sm")
        self._say(f"The run's own: {settings.shaping}, {settings.score}, gamma {settings.gamma:g}")

    def _change(self) -> None:
        if self._shaping.value == "as logged":
            self._show(self._logged, CreditSettings.logged(self._run))
            self._say("As logged")
            return
        settings = CreditSettings(self._shaping.value, self._score.value, float(self._gamma.value))
        try:
            credits = rescored(self._members, self._run, settings)
        except ConfigError as error:
            self._say(str(error))
            return
        self._show(credits[self._position], settings)
        self._say(
            f"{settings.shaping}, {settings.score}, gamma {settings.gamma:g}, computed over {len(credits)} trajectories"
        )

    def _say(self, text: str) -> None:
        self._note.set_text(text)
