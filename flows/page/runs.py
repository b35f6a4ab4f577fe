"""The runs of a home, and the page of one or more runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from nicegui import ui

from analysis.measure.outcome import COLLAPSED, IMPROVED, NO_BETTER, NOT_COLLAPSED, WORSE, Ended, in_a_word
from flows.page import charts, frame
from flows.page.curves import Curves
from flows.page.replies import has_replies, show_replies
from flows.page.report import draw, show_card, show_report, show_users
from userrl.machine.separate import installed, part
from userrl.reports.import_report import import_document, summary
from userrl.reports.people_report import RUN as PEOPLE
from userrl.reports.wording import ended, opening_words
from userrl.run.ending import Ending, endings
from userrl.run.listed import measured_ends, reported_ends, validation_scores
from userrl.run.run import Run, all_runs
from userrl_core.number_format import with_limits
from userrl_core.records import branch_of, leads_to
from userrl_core.run_names import about_another
from warehouse import Warehouse, open_warehouse
from warehouse.files.runs import IMPORTED, find_run
from warehouse.query import browse

ENDINGS = (
    "Change from the cold start: the last step minus the cold start, with a 95 % interval, paired by task; it decides between "
    "improved and no better. Worse: the last step minus the best one. Collapsed: the last step is below the best by more than .1 "
    "and by more than three standard errors. Held-out tasks decide if they were evaluated, else validation."
)

KINDS: dict[str, str] = {IMPROVED: "good", NO_BETTER: "odd", WORSE: "odd", COLLAPSED: "bad", NOT_COLLAPSED: ""}
"""Colours of outcomes."""

TICK = '<q-checkbox v-if="props.row.curves" v-model="props.selected" :aria-label="props.row.name"/>'
"""Template of a row's checkbox. The conversations of people lack curves and a checkbox."""

NAME = (
    '<q-td :props="props"><a :href="props.row.href_name" v-text="props.value"></a>'
    '<div class="quiet" v-if="props.row.of_recipe" v-text="props.row.of_recipe"></div></q-td>'
)
"""Template of a run's id, above its recipe where the id does not begin with it."""

SPARKS = """
SELECT run_id, stage, step, avg(score) FILTER (admitted) AS score FROM trajectories
WHERE phase = 'train' GROUP BY run_id, stage, step HAVING score IS NOT NULL ORDER BY run_id, step, stage
"""

COUNTS = """
SELECT run_id, stage, CASE WHEN phase = 'evaluate' THEN policy ELSE '' END AS policy, count(*) AS n
FROM trajectories GROUP BY ALL
"""

FEW = 3
"""Maximum number of runs whose endings are queried one by one."""

Row = dict[str, Any]


async def show_runs(warehouse: Warehouse) -> None:
    """Draw every run that the warehouse or the home knows. Newest first; evaluations and audits follow the trained runs."""
    rows = await frame.asked(lambda: run_rows(warehouse))
    frame.heading("Runs")
    if not rows:
        frame.sentence("No runs yet. `make run` starts one.")
        return
    columns = {
        "name": "Run", "gain": "Change from the cold start", "ending": "Outcome", "spark": "Training score", "state": "State",
        "trajectories": "Trajectories", "began": "Started",
    }  # fmt: skip
    with ui.element("div").classes("panel"):
        table = frame.table(
            rows,
            columns,
            links=("trajectories",),
            wide=("spark", "state", "trajectories", "began"),
            selection=True,
        )
        table.add_slot("body-cell-name", NAME)
        table.add_slot("body-cell-spark", frame.SPARK)
        table.add_slot("body-cell-ending", frame.WORD)
        table.add_slot("body-selection", TICK)
        ui.label(ENDINGS).classes("quiet text-sm")

    def compare() -> None:
        chosen = list(dict.fromkeys(row["run"] for row in table.selected if row["curves"]))
        if chosen:
            ui.navigate.to(frame.address("/run/" + chosen[0], beside=",".join(chosen[1:])))
        else:
            ui.notify("Tick the runs whose curves you want to compare.")

    ui.button("Compare curves of ticked runs", on_click=compare).props("no-caps outline").classes("self-start")
    if installed("userrl-crossplay"):
        await part("userrl-crossplay", "page").list_studies(warehouse)


def run_rows(warehouse: Warehouse) -> list[Row]:
    """Return the rows of the table of runs, in the order of `show_runs`. A run with branches has a row for each of them."""
    runs: dict[str, Run] = {run.id: run for run in all_runs()}
    newest_first = warehouse.rows("FROM runs ORDER BY created DESC")
    ends_by_run = reported_ends(runs.values())
    unreported = {row["run_id"] for row in newest_first if row["kind"] is None} - ends_by_run.keys()
    # Another connection reads only these runs, but opening it takes as long as the queries for several runs.
    if len(unreported) > FEW:
        ends_by_run |= measured_ends(warehouse.root, unreported)
    else:
        for unreported_run in unreported:
            ends_by_run |= endings(warehouse, unreported_run)
    sparks, counts = _of_run(warehouse.rows(SPARKS)), _of_run(warehouse.rows(COUNTS))
    rows = []
    for row in sorted(newest_first, key=lambda row: about_another(row["name"] or "")):
        run_id = row["run_id"]
        run = runs.get(run_id)
        run_endings = ends_by_run.get(run_id, [])
        branches = sorted(ending.branch for ending in run_endings if ending.branch)
        for branch in branches or [""]:
            ending = next((ending for ending in run_endings if ending.branch == branch), None)
            steps = {row["step"]: row["score"] for row in sparks.get(run_id, ()) if leads_to(row["stage"], branch)}
            scores = list(steps.values())
            played = sum(row["n"] for row in counts.get(run_id, ()) if _whose(row, branches) in ("", branch))
            rows.append(
                {
                    "id": f"{run_id} {branch}",
                    "run": run_id,
                    "name": f"{run_id} · {branch}" if branch else run_id,
                    "of_recipe": "" if run_id.startswith(row["recipe"] or "") else row["recipe"],
                    "href_name": "/people" if run_id == PEOPLE else f"/run/{run_id}",
                    "curves": run_id != PEOPLE,
                    "state": row["kind"] or _state(run),
                    "ending": ending.word if ending else "",
                    "kind": KINDS.get(ending.word, "") if ending else "",
                    "gain": with_limits(ending.gain, sign=True) if ending and ending.gain else "",
                    "spark": charts.spark_points(scores),
                    "spark_label": f"from {frame.number(scores[0], 2)} to {frame.number(scores[-1], 2)}"
                    if scores
                    else "no training",
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
    return f"{status.at_work} {status.stage}" if status.state == "running" and status.stage else status.state


async def show_run(warehouse: Warehouse, run_id: str, compared: str) -> None:
    """Draw one run, with the curves of other runs if requested."""
    run_row = find_run(warehouse.root, run_id)
    run_ids = [run_row["run_id"], *(find_run(warehouse.root, name)["run_id"] for name in compared.split(",") if name)]
    runs = {run.id: run for run in all_runs()}
    if len(run_ids) == 1:
        await _show_one(warehouse, run_row, runs.get(run_row["run_id"]))
    else:
        frame.heading(f"{len(run_ids)} runs")
        ends_by_run = reported_ends(runs[each_id] for each_id in run_ids if each_id in runs)
        ends_by_run |= await frame.asked(lambda: measured_ends(warehouse.root, {*run_ids} - ends_by_run.keys()))
        rows = {row["run_id"]: row for row in await frame.asked(lambda: warehouse.rows("FROM runs"))}
        _facts_side_by_side(
            [_facts_row(rows[each_id], runs.get(each_id), ends_by_run.get(each_id, [])) for each_id in run_ids]
        )
        run_warehouse = await frame.asked(lambda: _only(warehouse.root, frozenset(run_ids)))
        await Curves(run_warehouse, run_ids).build()


async def _show_one(warehouse: Warehouse, row: Row, run: Run | None) -> None:
    """Draw one run: its facts and its result card at once, and what is queried after the page has reached its reader."""
    run_id = row["run_id"]
    ends_by_run = reported_ends([run] if run else [])
    frame.heading(run_id)
    _facts(row, run, ends_by_run.get(run_id, ()))
    has_card = run is not None and await show_card(run, warehouse)

    async def details() -> None:
        run_warehouse = await frame.asked(lambda: _only(warehouse.root, frozenset([run_id])))
        if row.get("kind") == IMPORTED:
            draw((await frame.asked(lambda: import_document(summary(run_id)))).blocks)
            frame.folded("Users", lambda: show_users(run_warehouse, run_id))
            await _worth_reading(run_warehouse, run_id)
            return
        if run_id not in ends_by_run:
            _ends((await frame.asked(lambda: endings(run_warehouse))).get(run_id, ()), sentences=not has_card)
        await Curves(run_warehouse, [run_id]).build()
        await _worth_reading(run_warehouse, run_id)
        if await frame.asked(lambda: has_replies(run_warehouse, run_id)):
            frame.folded("The agent's choices over training", lambda: show_replies(run_warehouse, run_id))
        frame.folded("Users", lambda: show_users(run_warehouse, run_id))
        if run:
            await show_report(run, warehouse)

    frame.later(details)


@lru_cache(maxsize=4)
def _only(root: Path, run_ids: frozenset[str]) -> Warehouse:
    """Return the warehouse of these runs alone. With fifty runs, its queries take a tenth of the time."""
    return open_warehouse(root, run=run_ids)


def _facts(row: Row, run: Run | None, run_endings: Sequence[Ended]) -> None:
    with ui.row().classes("gap-2 items-center"):
        _words(run_endings)
        for fact in filter(
            None, (row.get("kind"), row["recipe"], _seed(row), row["profile"], _state(run), _credit(row))
        ):
            frame.chip(fact)
        if row.get("kind") is None:
            ui.link("Comparison with published results", frame.address("/published", run=row["run_id"]))


def _words(run_endings: Sequence[Ended]) -> None:
    for ending in run_endings:
        if ending.word:
            frame.chip(f"{ending.branch}: {ending.word}" if ending.branch else ending.word, kind=KINDS[ending.word])


def _ends(run_endings: Sequence[Ending], *, sentences: bool) -> None:
    """Draw the endings of a run without a report, or with one of an earlier version."""
    with ui.row().classes("gap-2 items-center"):
        _words(run_endings)
    for ending in run_endings if sentences else ():
        ui.label(ending.sentence()).classes("alarm" if ending.word == COLLAPSED else "quiet")


def _facts_row(row: Row, run: Run | None, run_endings: Sequence[Ended]) -> Row:
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
        table = frame.table(rows, columns, links=("name",), wide=("recipe", "seed", "profile", "state", "credit"))
        table.add_slot("body-cell-ending", frame.WORD)


def _seed(row: Row) -> str:
    return "" if row["seed"] is None else f"seed {row['seed']}"


def _credit(row: Row) -> str:
    """Format a run's credit settings. Empty for a run without a seed, which does not train."""
    return f"{row['shaping']} / {row['score']}, gamma {row['gamma']:g}" if row["seed"] is not None else ""


async def _worth_reading(warehouse: Warehouse, run_id: str) -> None:
    groups = await frame.asked(lambda: browse.spread_groups(warehouse, run_id, limit=10))
    rows = [
        {
            **row,
            "id": str(row["best_id"]),
            "task": opening_words(row["messages"], row["task_id"]),
            "href_task": f"/group/{row['best_id']}",
            "best": f"{frame.number(row['best'], 2)}, {ended(row['best_stop'])}",
            "href_best": f"/trajectory/{row['best_id']}",
            "worst": f"{frame.number(row['worst'], 2)}, {ended(row['worst_stop'])}",
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
            "task": "Task (opens its group)", "gym": "Gym", "tier": "Tier", "stage": "Stage", "step": "Step",
            "n": "Trajectories", "best": "Best", "worst": "Worst",
        }  # fmt: skip
        frame.table(rows, columns, links=("task", "best", "worst"), wide=("tier", "stage", "n"))
