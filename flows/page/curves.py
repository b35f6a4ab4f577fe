"""The curves of one or more runs with stages, horizons and alarms, also while they train."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nicegui import ui

from flows.page import charts, frame
from flows.page.charts import Mark
from userrl.reports.curves import horizon_note
from userrl_core.records import branch_of
from warehouse import Warehouse

FOLLOW_SECONDS = 5.0

BEFORE = "before the split"
"""Name of the steps that all branches share."""

MEASURES = {
    "score": "Mean score",
    "success": "Share solved",
    "return_sum": "Mean return",
    "turns": "Turns per conversation",
    "reply_tokens": "Tokens per reply",
    "rejected": "Share not scored",
    "format_errors": "Share with a format error",
}

CURVES = """
SELECT run_id, stage, phase, step, {split} AS part, avg(score) FILTER (admitted) AS score,
       avg((stop_reason = 'success')::INT) FILTER (admitted) AS success, avg(return_sum) AS return_sum, avg(turns) AS turns,
       sum(completion_tokens) / nullif(sum(turns), 0) AS reply_tokens, avg((NOT admitted)::INT) AS rejected,
       avg((flags & 1)::INT) AS format_errors, max(horizon) AS horizon
FROM trajectories WHERE list_contains($runs, run_id) AND phase IN ('train', 'validate') GROUP BY ALL ORDER BY step
"""

SPLITS = {"No split": "''", "gym": "gym", "tier": "gym || ' ' || tier"}

Row = dict[str, Any]


class Curves:
    """A chart of some runs that updates while they train."""

    def __init__(self, warehouse: Warehouse, run_ids: Sequence[str]) -> None:
        self._warehouse, self._run_ids = warehouse, list(run_ids)
        self._measure, self._split = "score", "No split"
        self._rows: list[Row] = []

    async def build(self) -> None:
        """Draw the controls and the chart."""
        with ui.element("div").classes("panel"):
            with ui.row().classes("gap-4"):
                ui.select(MEASURES, value=self._measure, label="Measure", on_change=self._show_measure)
                ui.select(list(SPLITS), value=self._split, label="Split by", on_change=self._show_split)
            self._chart = ui.echart({}, on_point_click=self._open).classes("w-full").style("height: 22rem")
            self._legend = ui.row().classes("gap-x-4 gap-y-0 items-center w-full")
            self._note = ui.label().classes("quiet text-sm")
        await self._refresh()
        ui.timer(FOLLOW_SECONDS, self._refresh, immediate=False)

    async def _show_measure(self, event: Any) -> None:
        self._measure = event.value
        self._draw(await frame.asked(self._marks))

    async def _show_split(self, event: Any) -> None:
        self._split = event.value
        await self._refresh()

    async def _refresh(self) -> None:
        text = CURVES.format(split=SPLITS[self._split])
        rows = await frame.asked(lambda: self._warehouse.rows(text, runs=self._run_ids))
        if rows != self._rows or not rows:
            self._rows = rows
            self._draw(await frame.asked(self._marks))

    def _draw(self, marks: list[Mark]) -> None:
        points: dict[str, list[tuple[float, float | None]]] = {}
        forked = any(branch_of(stage or "") for stage in {row["stage"] for row in self._rows})
        for row in self._rows:
            points.setdefault(self._name(row, forked), []).append((row["step"], row[self._measure]))
        ordered = {name: points[name] for name in sorted(points)}
        self._chart.options.clear()
        self._chart.options.update(charts.curves(ordered, marks, from_0_to_1=self._measure in ("score", "success")))
        self._chart.set_visibility(bool(self._rows))
        self._chart.update()
        self._name_lines(list(ordered))
        marked = "; ".join(f"step {mark.step:g} {mark.note or mark.text}" for mark in marks).replace("\n", ", ")
        self._note.set_text(
            f"Click a point to open its trajectories. Dashed lines: {marked}. {self._horizons()}Each point is a mean "
            "over the trajectories of one step. A single run says nothing about other seeds."
            if self._rows
            else "No training or validation was logged for this run."
        )

    def _horizons(self) -> str:
        note = horizon_note((row["phase"], row["horizon"]) for row in self._rows)
        return f"{note} " if note else ""

    def _name_lines(self, names: Sequence[str]) -> None:
        """Draw a legend that wraps onto several lines. A click hides or shows a line."""

        def turn(series_names: Sequence[str]) -> None:
            for name in series_names:
                self._chart.run_chart_method("dispatchAction", {"type": "legendToggleSelect", "name": name})

        self._legend.clear()
        with self._legend:
            for bare, color in charts.colors(names).items():
                series_names = [name for name in names if charts.bare(name) == bare]
                with ui.button(on_click=lambda series_names=series_names: turn(series_names), color=None).props(
                    "flat dense no-caps"
                ):
                    ui.element("span").classes("dot").style(f"background: {color}")
                    ui.label(bare).classes("text-sm")
            if names:
                ui.label("Thick lines: validation; thin, dashed lines: training").classes("quiet text-sm")

    def _name(self, row: Row, forked: bool) -> str:
        parts = [row["run_id"]] if len(self._run_ids) > 1 else []
        parts += [branch_of(row["stage"] or "") or (BEFORE if forked else ""), row["part"]]
        name = " ".join(filter(None, parts)) or MEASURES[self._measure]
        return f"{name} (validation)" if row["phase"] == "validate" else f"{name} (training)"

    def _marks(self) -> list[Mark]:
        first: dict[tuple[str, str], Row] = {}
        for row in self._rows:
            if row["phase"] == "train":
                first.setdefault((row["run_id"], row["stage"]), row)
        stages = [(row["step"], run_id, f"{stage}: {row['horizon']} turns") for (run_id, stage), row in first.items()]
        alarms = self._warehouse.rows(
            "SELECT run_id, step, fields FROM events WHERE kind = 'alarm' AND list_contains($runs, run_id) ORDER BY step",
            runs=self._run_ids,
        )
        rung = [(row["step"] or 0, row["run_id"], _alarm(row["fields"])) for row in alarms]
        return [*self._together(stages, "stage"), *self._together(rung, "alarm")]

    def _together(self, texts: Sequence[tuple[int, str, str]], kind: str) -> list[Mark]:
        """Merge the texts of each step into one mark. With several runs, the note names the runs that a text is
        about, unless it is about all of them.
        """
        runs_by_text: dict[tuple[int, str], set[str]] = {}
        for step, run_id, text in texts:
            runs_by_text.setdefault((step, text), set()).add(run_id)
        at: dict[int, list[tuple[str, str]]] = {}
        for (step, text), runs in sorted(runs_by_text.items()):
            of = "" if len(runs) == len(self._run_ids) else f" ({', '.join(sorted(runs))})"
            at.setdefault(step, []).append((text, text + of))
        return [
            Mark(step, "\n".join(text for text, _ in notes), kind, ", ".join(note for _, note in notes))
            for step, notes in at.items()
        ]

    def _open(self, event: Any) -> None:
        step = int(event.data[0])
        phase = "validate" if event.series_name.endswith("(validation)") else "train"
        clicked_run = next(
            (run_id for run_id in self._run_ids if event.series_name.startswith(f"{run_id} ")), self._run_ids[0]
        )
        ui.navigate.to(frame.address("/trajectories", run=clicked_run, step=step, phase=phase))


def _alarm(fields: str | None) -> str:
    try:
        return f"alarm: {json.loads(fields or '{}').get('alarm', '')}"
    except (ValueError, AttributeError):
        return "alarm"
