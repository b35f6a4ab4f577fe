"""A run without a report: what it has reached so far, what its alarms said, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator

from flows.machine.page_address import run_address
from flows.run.alarms import sounded
from flows.run.ending import COLLAPSED, endings
from flows.run.reports.document import Block, Document, Figure, Heading, Items, Text
from flows.run.results import chosen_so_far, stage_results
from flows.run.run import Run
from flows.run.spark import spark
from userrl_core.records import branch_of
from warehouse import Warehouse

CURVES = """
SELECT phase, stage, step, avg(score) AS score FROM trajectories
WHERE run_id = $run AND phase IN ('train', 'validate') AND admitted AND score IS NOT NULL GROUP BY ALL ORDER BY step, stage
"""


def page(run: Run, warehouse: Warehouse, *, shown_at: str | None = None) -> Document:
    """The page of a run that has not come to its report. shown_at: the address at which its conversations are being served."""
    where = shown_at or f"userrl view, then {run_address(run.id)}"
    return Document(run.id, (*_state(run), *_reached(run, warehouse), *_next(run, where)))


def _state(run: Run) -> Iterator[Block]:
    status, done = run.status, list(stage_results(run.folder))
    at_work = f" in stage {status.stage}" if status.stage else ""
    finished = f"finished: {', '.join(done)}" if done else "no stage is finished"
    yield Text(f"This run is {status.state}{at_work} and has no report yet; {finished}.")
    if status.error:
        yield Text(f"Its error: {status.error}", strong=True)


def _reached(run: Run, warehouse: Warehouse) -> Iterator[Block]:
    for sentence in sounded(run.folder):
        yield Text(sentence, strong=True)
    own = endings(warehouse, run.id).get(run.id, [])
    for ending in own:
        yield Text(ending.sentence(), strong=ending.word == COLLAPSED)
    rows = warehouse.rows(CURVES, run=run.id)
    lines = []
    for phase in ("train", "validate"):
        ways = dict.fromkeys(branch_of(row["stage"]) for row in rows if row["phase"] == phase)
        for way in [way for way in ways if way] or ways:
            points = [row for row in rows if row["phase"] == phase and branch_of(row["stage"]) in ("", way)]
            values = [row["score"] for row in points]
            steps = f"steps {points[0]['step']} to {points[-1]['step']}"
            lines.append(f"{phase:9} {spark(values)} {values[0]:.3f} → {values[-1]:.3f} {steps} {way}".rstrip())
    if lines:
        yield Heading("Mean score so far")
        yield Figure("", "", tuple(lines))
    else:
        yield Text("Nothing was trained or validated yet.")


def _next(run: Run, conversations: str) -> Iterator[Block]:
    yield Heading("What next")
    steps = []
    if run.status.state == "running":
        steps.append(f"It reports at its end; `userrl runs show {run.id}` says where it is.")
    elif run.status.state != "completed":
        steps.append(f"To have it finished, {run.restart}")
    if checkpoint := chosen_so_far(run.folder):
        steps.append(f"Play held-out tasks with the best checkpoint so far: userrl evaluate {checkpoint}")
    steps.append(f"Its conversations: {conversations}")
    yield Items(tuple(steps))
