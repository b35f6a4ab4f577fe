"""The page of a run without a report: its stages, results so far, alarms, and next steps."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.measure.outcome import COLLAPSED
from userrl.machine.home import warehouse_dir
from userrl.machine.page_address import run_address
from userrl.reports.curves import PHASES, along, curve_line, curve_points
from userrl.reports.document import Block, Code, Document, Figure, Heading, Items, Line, Link, TableBlock, Text
from userrl.run.alarms import sounded
from userrl.run.budget import money_spent, seconds_spent
from userrl.run.ending import endings
from userrl.run.progress import shown_score
from userrl.run.results import chosen_so_far, stage_results
from userrl.run.run import Run
from userrl_core.errors import ConfigError
from userrl_core.json_files import GrowingLines
from userrl_core.number_format import NULL, number
from warehouse import Warehouse, open_warehouse


@dataclass(frozen=True, slots=True)
class UnfinishedRun:
    """A run that has no report yet."""

    run: Run

    @property
    def problem(self) -> ConfigError:
        """The error for whoever needs a report."""
        return ConfigError("run.no_report", f"Run {self.run.id} has no report yet. It is {self.run.status.state}.")

    def document(self) -> Document:
        """Return the run's stages, results so far, alarms and next steps. It is empty where nothing was recorded."""
        if not warehouse_dir().is_dir():
            return Document("", ())
        with open_warehouse(warehouse_dir(), run=self.run.id) as warehouse:
            return run_so_far(self.run, warehouse)


def run_so_far(run: Run, warehouse: Warehouse, stages: Sequence[str] = (), *, shown_at: str | None = None) -> Document:
    """Return the page of a run without a report.

    stages: all stages of its plan, in order; by default those that have begun. shown_at: the address where its
    conversations are being served.
    """
    blocks = [*_state(run), *_stages(run, stages), *_reached(run, warehouse), *_next(run, warehouse, shown_at)]
    return Document(run.id, tuple(blocks))


def _state(run: Run) -> Iterator[Block]:
    status, done = run.status, list(stage_results(run.folder))
    at_work = f" in stage {status.stage}" if status.stage else ""
    finished = f"finished: {', '.join(done)}" if done else "no stage is finished"
    yield Text(f"This run is {status.state}{at_work} and has no report yet; {finished}.")
    if status.error:
        yield Text(f"Error: {status.error}", strong=True)


def _stages(run: Run, stages: Sequence[str]) -> Iterator[Block]:
    done, working = stage_results(run.folder), run.status.stage
    started_stages = [*done, *([working] if working and working not in done else [])]
    rows = []
    for stage in stages or started_stages:
        last: dict[str, Any] = {}
        for line in GrowingLines(run.stage(stage) / "progress.jsonl"):
            last = line
        state = "done" if stage in done else "running" if stage == working else "waiting"
        step = f"{last['step']}/{last['total']}" if last else NULL
        seconds = number(done[stage].seconds, 1) if stage in done else NULL
        rows.append((stage, state, step, number(shown_score(stage, last) if last else None), seconds))
    if rows:
        yield TableBlock(("stage", "state", "step", "score", "seconds"), tuple(rows))


def _reached(run: Run, warehouse: Warehouse) -> Iterator[Block]:
    for alarm in sounded(run.folder):
        yield Text(alarm["sentence"], strong=True, alarm=True)
    for ending in endings(warehouse, run.id).get(run.id, []):
        yield Text(ending.sentence(), strong=ending.word == COLLAPSED, alarm=ending.word == COLLAPSED)
    points = curve_points(warehouse, run.id)
    lines = []
    for phase in PHASES:
        phase_points = [point for point in points if point.phase == phase]
        branches = dict.fromkeys(point.branch for point in phase_points)
        for branch in [branch for branch in branches if branch] or branches:
            branch_points = along(phase_points, branch)
            steps = f"steps {branch_points[0].step} to {branch_points[-1].step} {branch}"
            lines.append(curve_line(phase, [point.score for point in branch_points], steps))
    if lines:
        yield Heading("Mean score so far")
        yield Figure(None, "", tuple(lines))
    else:
        yield Text("No training or validation step has finished yet.")


def _next(run: Run, warehouse: Warehouse, shown_at: str | None) -> Iterator[Block]:
    hours, money = seconds_spent(run.folder) / 3600, money_spent(run.id, warehouse.root)
    yield Text(f"Cost so far: {number(hours, 2)} hours of stages, ${number(money, 2)} of model calls.")
    yield Heading("Next steps")
    steps: list[Line] = []
    if run.status.state == "running":
        steps.append(("The report comes at its end; ", Code(f"userrl runs show {run.id}"), " shows its progress."))
    elif run.status.state != "completed":
        steps.append(f"To finish it, {run.restart}")
    if checkpoint := chosen_so_far(run.folder):
        steps.append(("Evaluate the best checkpoint so far: ", Code(f"userrl evaluate {shlex.quote(str(checkpoint))}")))
    if shown_at:
        steps.append(("Conversations: ", Link(shown_at, shown_at)))
    else:
        page = run_address(run.id)
        steps.append(("Conversations: ", Code("userrl view"), " on that machine, then ", Link(page, page)))
    yield Items(tuple(steps))
