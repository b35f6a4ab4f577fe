"""A run's evaluation next to published figures, with our intervals and the known differences in the set-up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nicegui import ui

from flows.page import frame
from userrl_core.number_format import with_limits
from warehouse import Warehouse
from warehouse.files.runs import find_run

if TYPE_CHECKING:
    from analysis.measure.interval import Interval

EVALUATED = """
SELECT run_id, max(logged_at) AS last FROM trajectories WHERE phase = 'evaluate' GROUP BY run_id ORDER BY last DESC
"""

EVALUATED_GYMS = """
SELECT DISTINCT gym, gym IN (SELECT gym FROM published_scores()) AS published FROM trajectories
WHERE run_id = $run AND phase = 'evaluate' ORDER BY gym
"""

SCORES = """
SELECT policy, gym, list(scores) AS scores FROM (
    SELECT policy, gym, task_id, list(score ORDER BY attempt) AS scores FROM trajectories
    WHERE run_id = $run AND phase = 'evaluate' AND admitted AND score IS NOT NULL GROUP BY ALL)
GROUP BY ALL
"""


async def show_published(warehouse: Warehouse, run_name: str) -> None:
    """Draw the choice of evaluated runs, and the table of one run."""
    frame.heading("Published results next to ours")
    evaluated = [row["run_id"] for row in await frame.asked(lambda: warehouse.rows(EVALUATED))]
    if not evaluated:
        frame.sentence("No run has been evaluated yet. `userrl evaluate latest` evaluates the newest run.")
        return
    run_id = find_run(warehouse.root, run_name)["run_id"] if run_name else evaluated[0]
    ui.select(
        evaluated if run_id in evaluated else [run_id, *evaluated],
        value=run_id,
        label="Run",
        on_change=lambda event: ui.navigate.to(frame.address("/published", run=event.value)),
    ).classes("w-full max-w-lg")
    gyms, without = await frame.asked(lambda: evaluated_gyms(warehouse, run_id))
    if not gyms and not without:
        frame.sentence("This run has no evaluation.")
        return
    if without:
        frame.sentence(f"The papers have no figures for {', '.join(without)}.")
    if not gyms:
        return
    rows = [row for row in await frame.asked(lambda: published_rows(warehouse, run_id)) if row["gym"] not in without]
    columns = {
        "agent": "Agent", "gym": "Gym", "metric": "Metric", "n": "Tasks", "ours": "Ours [95 % limits]", "published": "Published",
        "table": "Table", "model": "Published model", "difference": "Difference", "why_not": "What differs",
        "data": "Data", "user": "User", "horizon": "Horizon", "attempts": "Attempts",
    }  # fmt: skip
    with ui.element("div").classes("panel overflow-x-auto"):
        frame.table(rows, columns, wide=("data", "user", "horizon", "attempts"), cards=True)
        ui.label(
            "Limits are over tasks (Student's t; Wilson's for 0/1 scores on fewer than 100 tasks; a dash for a single task). "
            "The papers give no limits. A difference is shown only where every setting of the protocol is known and equal."
        ).classes("quiet text-sm")


def evaluated_gyms(warehouse: Warehouse, run_id: str) -> tuple[list[str], list[str]]:
    """Return the gyms that this run evaluated: those with published figures, and those without."""
    rows = warehouse.rows(EVALUATED_GYMS, run=run_id)
    return [row["gym"] for row in rows if row["published"]], [row["gym"] for row in rows if not row["published"]]


def published_rows(warehouse: Warehouse, run_id: str) -> list[dict[str, Any]]:
    """Return the table's rows: every evaluated agent and gym, with the rows of the papers' tables."""
    from analysis.measure.checkpoints import (
        mean_score,
    )  # imported here: scipy takes a quarter of the server's memory

    limits = {
        (row["policy"], row["gym"]): mean_score(row["scores"])
        for row in warehouse.rows(SCORES, run=run_id)
        if row["scores"]
    }
    rows = []
    for n, row in enumerate(warehouse.rows("FROM beside_published(run := $run)", run=run_id)):
        whole = row["metric"] == "score" and not row["subset"]
        interval = limits.get((row["policy"], row["gym"])) if whole else None
        rows.append(
            {
                "id": n,
                "agent": row["policy"],
                "gym": f"{row['gym']} {row['subset']}".strip(),
                "metric": row["metric"],
                "table": row["published_in"],
                "difference": frame.number(row["difference"]),
                "n": interval.units if interval else row["n"],
                "ours": ours(row["score"], interval),
                "published": frame.number(row["published"]),
                "model": row["published_model"] or "–",
                "why_not": row["why_not"],
                "data": row["data"],
                "user": row["user_model"],
                "horizon": row["horizon"],
                "attempts": row["attempts"],
            }
        )
    return rows


def ours(score: float | None, interval: Interval | None) -> str:
    """Format a score with its confidence limits. A mean over gyms is shown without limits."""
    return frame.number(score) if interval is None else with_limits(interval)
