"""A run's evaluation beside the published figures, each of ours with its interval, and with what the two differ in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nicegui import ui

from flows.page import frame
from userrl_core.number_format import with_limits
from warehouse import Warehouse
from warehouse.files.runs import find_run

if TYPE_CHECKING:
    from userrl_core.measure.interval import Interval

EVALUATED = """
SELECT run_id, max(logged_at) AS last FROM trajectories WHERE phase = 'evaluate' GROUP BY run_id ORDER BY last DESC
"""

SCORES = """
SELECT policy, gym, list(scores) AS scores FROM (
    SELECT policy, gym, task_id, list(score ORDER BY attempt) AS scores FROM trajectories
    WHERE run_id = $run AND phase = 'evaluate' AND admitted AND score IS NOT NULL GROUP BY ALL)
GROUP BY ALL
"""


async def show_published(warehouse: Warehouse, given: str) -> None:
    """The evaluated runs to choose from, and the table of one."""
    frame.heading("Published beside ours")
    evaluated = [row["run_id"] for row in await frame.asked(lambda: warehouse.rows(EVALUATED))]
    if not evaluated:
        frame.sentence("No run has been evaluated yet; `userrl evaluate latest` does it.")
        return
    run_id = find_run(warehouse.root, given)["run_id"] if given else evaluated[0]
    ui.select(
        evaluated if run_id in evaluated else [run_id, *evaluated],
        value=run_id,
        label="run",
        on_change=lambda event: ui.navigate.to(frame.address("/published", run=event.value)),
    ).classes("w-full max-w-lg")
    rows = await frame.asked(lambda: published_rows(warehouse, run_id))
    if not rows:
        frame.sentence("This run has no evaluation.")
        return
    columns = {
        "agent": "agent", "gym": "gym", "n": "tasks", "ours": "ours [95 % limits]", "published": "published",
        "model": "published model", "difference": "ours less published", "why_not": "why they cannot be compared",
        "data": "data", "user": "user", "horizon": "turns", "attempts": "attempts",
    }  # fmt: skip
    with ui.element("div").classes("panel overflow-x-auto"):
        frame.table(rows, columns, wide=("data", "user", "horizon", "attempts"), cards=True)
        ui.label(
            "Limits are over tasks (Student's t; Wilson's for verdicts at fewer than 100 tasks; a dash where there is one task). "
            "The paper prints none. A difference is given only where data, user, horizon and attempts agree with the paper's."
        ).classes("quiet text-sm")


def published_rows(warehouse: Warehouse, run_id: str) -> list[dict[str, Any]]:
    """Rows of the table: every evaluated agent and gym beside the paper's rows of the same setting."""
    from userrl_core.measure.checkpoints import mean_score  # late: scipy is a quarter of the server's memory

    limits = {
        (row["policy"], row["gym"]): mean_score(row["scores"])
        for row in warehouse.rows(SCORES, run=run_id)
        if row["scores"]
    }
    rows = []
    for n, row in enumerate(warehouse.rows("FROM beside_published(run := $run)", run=run_id)):
        interval = limits.get((row["policy"], row["gym"]))
        rows.append(
            {
                "id": n,
                "agent": row["policy"],
                "gym": row["gym"],
                "n": interval.units if interval else row["n"],
                "ours": ours(row["score"], interval),
                "published": frame.number(row["published"]),
                "model": row["published_model"] or "–",
                "difference": frame.number(row["difference"]),
                "why_not": row["why_not"],
                "data": row["data"],
                "user": row["user_model"],
                "horizon": row["horizon"],
                "attempts": row["attempts"],
            }
        )
    return rows


def ours(score: float | None, interval: Interval | None) -> str:
    """A figure with its limits; a mean over gyms has none here."""
    return frame.number(score) if interval is None else with_limits(interval)
