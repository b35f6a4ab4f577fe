"""The runs of a home, and the curves of one or more runs with stages, horizons and alarms, also while they train."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from nicegui import ui

from flows.page import charts, frame
from flows.page.charts import Mark
from flows.page.replies import has_replies, show_replies
from flows.page.report import draw, show_card, show_report, show_users
from userrl.reports.curves import horizon_note
from userrl.reports.import_report import import_document, summary
from userrl.reports.people_report import RUN as PEOPLE
from userrl.run.ending import Ending, endings, in_a_word
from userrl.run.outcome import opening_words
from userrl.run.results import validation_scores
from userrl.run.run import Run, all_runs
from userrl_core.measure.outcome import COLLAPSED, IMPROVED, NO_BETTER, NOT_COLLAPSED, WORSE
from userrl_core.records import branch_of
from userrl_core.run_names import about_another
from warehouse import Warehouse
from warehouse.files.runs import IMPORTED, find_run
from warehouse.query import browse

FOLLOW_SECONDS = 5.0

ENDINGS = (
    "Best, last: mean score of the best and of the last validation. Improved, no better: the last step minus the cold start, "
    "with a 95 % interval, paired by task; worse: the last step minus the best one. Collapsed: the last step is below the best "
    "by more than .1 and by more than three standard errors. Held-out tasks decide if they were evaluated, else validation."
)

KINDS: dict[str, str] = {IMPROVED: "good", NO_BETTER: "odd", WORSE: "odd", COLLAPSED: "bad", NOT_COLLAPSED: ""}
"""Colours of outcomes."""

BEFORE = "before the split"
"""Name of the steps that all branches share."""

TICK = '<q-checkbox v-if="props.row.curves" v-model="props.selected" :aria-label="props.row.name"/>'
"""Template of a row's checkbox. The conversations of people lack curves and a checkbox."""

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

SPARKS = """
SELECT run_id, stage, step, avg(score) FILTER (admitted) AS score FROM trajectories
WHERE phase = 'train' GROUP BY run_id, stage, step HAVING score IS NOT NULL ORDER BY run_id, step, stage
"""

COUNTS = """
SELECT run_id, stage, CASE WHEN phase = 'evaluate' THEN policy ELSE '' END AS policy, count(*) AS n
FROM trajectories GROUP BY ALL
"""

SPLITS = {"No split": "''", "gym": "gym", "tier": "gym || ' ' || tier"}

Row = dict[str, Any]


async def show_runs(warehouse: Warehouse) -> None:
    """Draw every run that the warehouse or the home knows. Newest first; evaluations and audits follow the trained runs."""
    rows = await frame.asked(lambda: run_rows(warehouse))
    frame.heading("Runs")
    if not rows:
        frame.sentence("No runs yet. `make run` starts one.")
        return
    columns = {
        "name": "Run", "ending": "Outcome", "best": "Best", "last": "Last", "spark": "Training score", "state": "State",
        "recipe": "Recipe", "seed": "Seed", "profile": "Profile", "trajectories": "Trajectories", "began": "Started",
    }  # fmt: skip
    with ui.element("div").classes("panel"):
        made = frame.table(
            rows,
            columns,
            links=("name", "trajectories"),
            wide=("spark", "state", "recipe", "seed", "profile", "trajectories", "began"),
            selection=True,
        )
        made.add_slot("body-cell-spark", frame.SPARK)
        made.add_slot("body-cell-ending", frame.WORD)
        made.add_slot("body-selection", TICK)
        ui.label(ENDINGS).classes("quiet text-sm")

    def compare() -> None:
        chosen = list(dict.fromkeys(row["run"] for row in made.selected if row["curves"]))
        if chosen:
            ui.navigate.to(frame.address("/run/" + chosen[0], beside=",".join(chosen[1:])))
        else:
            ui.notify("Tick the runs whose curves you want to compare.")

    ui.button("Compare curves of ticked runs", on_click=compare).props("no-caps outline").classes("self-start")


def run_rows(warehouse: Warehouse) -> list[Row]:
    """Return the rows of the table of runs, in the order of `show_runs`. A run with branches has a row for each of them."""
    known: dict[str, Run] = {run.id: run for run in all_runs()}
    ended = endings(warehouse)
    sparks, counts = _of_run(warehouse.rows(SPARKS)), _of_run(warehouse.rows(COUNTS))
    rows = []
    newest_first = warehouse.rows("FROM runs ORDER BY created DESC")
    for row in sorted(newest_first, key=lambda row: about_another(row["name"] or "")):
        run_id = row["run_id"]
        run = known.get(run_id)
        run_endings = ended.get(run_id, [])
        branches = sorted(ending.branch for ending in run_endings if ending.branch)
        for branch in branches or [""]:
            ending = next((ending for ending in run_endings if ending.branch == branch), None)
            best, last = validation_scores(run.folder) if run else (None, None)
            if branch and ending is not None:
                best, last = ending.best, ending.last
            steps = {
                row["step"]: row["score"] for row in sparks.get(run_id, ()) if branch_of(row["stage"]) in ("", branch)
            }
            scores = list(steps.values())
            played = sum(row["n"] for row in counts.get(run_id, ()) if _whose(row, branches) in ("", branch))
            rows.append(
                {
                    "id": f"{run_id} {branch}",
                    "run": run_id,
                    "name": f"{run_id} · {branch}" if branch else run_id,
                    "href_name": "/people" if run_id == PEOPLE else f"/run/{run_id}",
                    "curves": run_id != PEOPLE,
                    "state": row["kind"] or _state(run),
                    "ending": ending.word if ending else "",
                    "kind": KINDS.get(ending.word, "") if ending else "",
                    "best": frame.number(best, 2),
                    "last": frame.number(last, 2),
                    "spark": charts.spark_points(scores),
                    "spark_label": f"from {frame.number(scores[0], 2)} to {frame.number(scores[-1], 2)}"
                    if scores
                    else "no training",
                    "recipe": row["recipe"],
                    "seed": str(row["seed"] if row["seed"] is not None else ""),
                    "profile": row["profile"],
                    "trajectories": f"{played:,}",
                    "href_trajectories": frame.address("/trajectories", run=run_id),
                    "began": time.strftime("%Y-%m-%d %H:%M", time.localtime(row["created"] or 0)),
                }
            )
    return rows


def _of_run(rows: Sequence[Row]) -> dict[str, list[Row]]:
    by_run: dict[str, list[Row]] = {}
    for row in rows:
        by_run.setdefault(row["run_id"], []).append(row)
    return by_run


def _whose(row: Row, branches: Sequence[str]) -> str:
    """Return the branch that played some trajectories, "" for those before the split and of no branch."""
    first = (row["policy"] or "").split(" ")[0]
    return first if first in branches else branch_of(row["stage"] or "")


def _state(run: Run | None) -> str:
    if run is None:
        return ""
    status = run.status
    return f"{status.state} {status.stage}" if status.state == "running" and status.stage else status.state


async def show_run(warehouse: Warehouse, run_id: str, beside: str) -> None:
    """Draw one run, with the curves of other runs if requested."""
    run_row = find_run(warehouse.root, run_id)
    run_ids = [run_row["run_id"], *(find_run(warehouse.root, name)["run_id"] for name in beside.split(",") if name)]
    known = {run.id: run for run in all_runs()}
    ended = await frame.asked(lambda: endings(warehouse))
    if len(run_ids) == 1:
        frame.heading(run_row["run_id"])
        _facts(run_row, known.get(run_row["run_id"]), ended.get(run_row["run_id"], []))
        if not (run := known.get(run_row["run_id"])) or not await show_card(run, warehouse):
            _sentences(ended.get(run_row["run_id"], []))
    else:
        frame.heading(f"{len(run_ids)} runs")
        rows = {row["run_id"]: row for row in await frame.asked(lambda: warehouse.rows("FROM runs"))}
        _facts_side_by_side(
            [_facts_row(rows[each_id], known.get(each_id), ended.get(each_id, [])) for each_id in run_ids]
        )
    if len(run_ids) == 1 and run_row.get("kind") == IMPORTED:
        draw((await frame.asked(lambda: import_document(summary(run_row["run_id"])))).blocks)
        frame.folded("Users", lambda: show_users(warehouse, run_row["run_id"]))
        await _worth_reading(warehouse, run_row["run_id"])
        return
    await Curves(warehouse, run_ids).build()
    if len(run_ids) == 1:
        await _worth_reading(warehouse, run_row["run_id"])
        if await frame.asked(lambda: has_replies(warehouse, run_row["run_id"])):
            frame.folded("The agent's choices over training", lambda: show_replies(warehouse, run_row["run_id"]))
        frame.folded("Users", lambda: show_users(warehouse, run_row["run_id"]))
        if run := known.get(run_row["run_id"]):
            await show_report(run, warehouse)


def _facts(row: Row, run: Run | None, run_endings: Sequence[Ending]) -> None:
    with ui.row().classes("gap-2 items-center"):
        for ending in run_endings:
            if ending.word:
                frame.chip(_word(ending), kind=KINDS[ending.word])
        for fact in filter(
            None, (row.get("kind"), row["recipe"], _seed(row), row["profile"], _state(run), _credit(row))
        ):
            frame.chip(fact)
        if row.get("kind") is None:
            ui.link("Comparison with published results", frame.address("/published", run=row["run_id"]))


def _sentences(run_endings: Sequence[Ending]) -> None:
    for ending in run_endings:
        ui.label(ending.sentence()).classes("alarm" if ending.word == COLLAPSED else "quiet")


def _word(ending: Ending) -> str:
    return f"{ending.branch}: {ending.word}" if ending.branch else ending.word


def _facts_row(row: Row, run: Run | None, run_endings: Sequence[Ending]) -> Row:
    best, last = validation_scores(run.folder) if run else (None, None)
    return {
        "id": row["run_id"],
        "name": row["run_id"],
        "href_name": f"/run/{row['run_id']}",
        "ending": in_a_word(run_endings),
        "kind": next((KINDS[ending.word] for ending in run_endings if ending.word), ""),
        "best": frame.number(best, 2),
        "last": frame.number(last, 2),
        "recipe": row["recipe"],
        "seed": _seed(row).removeprefix("seed "),
        "profile": row["profile"],
        "state": _state(run),
        "credit": _credit(row),
    }


def _facts_side_by_side(rows: Sequence[Row]) -> None:
    columns = {
        "name": "Run", "ending": "Outcome", "best": "Best", "last": "Last", "recipe": "Recipe", "seed": "Seed",
        "profile": "Profile", "state": "State", "credit": "Credit",
    }  # fmt: skip
    with ui.element("div").classes("panel"):
        made = frame.table(rows, columns, links=("name",), wide=("recipe", "seed", "profile", "state", "credit"))
        made.add_slot("body-cell-ending", frame.WORD)


def _seed(row: Row) -> str:
    return "" if row["seed"] is None else f"seed {row['seed']}"


def _credit(row: Row) -> str:
    """Format a run's credit settings. Empty for a run without a seed, which does not train."""
    return f"{row['shaping']} / {row['score']}, gamma {row['gamma']:g}" if row["seed"] is not None else ""


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

        def turn(own: Sequence[str]) -> None:
            for name in own:
                self._chart.run_chart_method("dispatchAction", {"type": "legendToggleSelect", "name": name})

        self._legend.clear()
        with self._legend:
            for bare, color in charts.colors(names).items():
                own = [name for name in names if charts.bare(name) == bare]
                with ui.button(on_click=lambda own=own: turn(own), color=None).props("flat dense no-caps"):
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
        whose: dict[tuple[int, str], set[str]] = {}
        for step, run_id, text in texts:
            whose.setdefault((step, text), set()).add(run_id)
        at: dict[int, list[tuple[str, str]]] = {}
        for (step, text), runs in sorted(whose.items()):
            of = "" if len(runs) == len(self._run_ids) else f" ({', '.join(sorted(runs))})"
            at.setdefault(step, []).append((text, text + of))
        return [
            Mark(step, "\n".join(text for text, _ in notes), kind, ", ".join(note for _, note in notes))
            for step, notes in at.items()
        ]

    def _open(self, event: Any) -> None:
        step = int(event.data[0])
        phase = "validate" if event.series_name.endswith("(validation)") else "train"
        whose = next(
            (run_id for run_id in self._run_ids if event.series_name.startswith(f"{run_id} ")), self._run_ids[0]
        )
        ui.navigate.to(frame.address("/trajectories", run=whose, step=step, phase=phase))


def _alarm(fields: str | None) -> str:
    try:
        return f"alarm: {json.loads(fields or '{}').get('alarm', '')}"
    except (ValueError, AttributeError):
        return "alarm"


async def _worth_reading(warehouse: Warehouse, run_id: str) -> None:
    groups = await frame.asked(lambda: browse.spread_groups(warehouse, run_id, most=10))
    rows = [
        {
            **row,
            "id": str(row["best_id"]),
            "apart": frame.number(row["apart"], 2),
            "task": opening_words(row["messages"], row["task_id"]),
            "href_task": f"/group/{row['best_id']}",
            "best": frame.number(row["best"], 2),
            "href_best": f"/trajectory/{row['best_id']}",
            "worst": frame.number(row["worst"], 2),
            "href_worst": f"/trajectory/{row['worst_id']}",
        }
        for row in groups
    ]
    with ui.element("div").classes("panel"):
        frame.heading("Conversations worth reading", level=2)
        with ui.row().classes("gap-4"):
            ui.link("Failed trajectories", frame.address("/trajectories", run=run_id, stop=browse.FAILED))
            ui.link("All trajectories", frame.address("/trajectories", run=run_id))
        if not rows:
            return
        ui.label("The group with the largest difference in score of each gym and stage:").classes("pt-2")
        columns = {
            "task": "Task (opens its group)", "gym": "Gym", "stage": "Stage", "step": "Step", "n": "Trajectories",
            "apart": "Score range",
            "best": "Best", "worst": "Worst",
        }  # fmt: skip
        frame.table(rows, columns, links=("task", "best", "worst"), wide=("stage", "n"))
