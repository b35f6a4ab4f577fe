"""Live progress of one flow run: stage, step, score, remaining time, and the result."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.objects import FlowRun
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError

from flows.cli.result import show_result
from flows.cli.terminal import plain
from flows.server.password import listens
from userrl.run.alarms import alarm_file
from userrl.run.job import REUSED_FILE
from userrl.run.progress import DISTILL, progress_step, shown_score
from userrl.run.run import Run, of_flow_run, waiting_sentence
from userrl_core.errors import ConfigError, TrainingError
from userrl_core.json_files import GrowingLines
from userrl_core.number_format import number

POLL_SECONDS = 0.5
ANSWER_SECONDS = 2.0
"""Seconds after which an unanswered request makes us check the server's port. A busy server listens; a dead one does not."""
OWN_TIME_SECONDS, CANCEL_SECONDS = 2.0, 3.5
"""Seconds after Ctrl-C: for a trainer to stop by itself, and for all requests to the server."""
AWAY = (TimeoutError, httpx.HTTPError, PrefectHTTPStatusError)
"""Errors of a server that is busy or gone."""
PLAYED = (DISTILL, "evaluate")
"""Stages without a trained model, whose progress counts conversations."""
LINE_SECONDS = 60.0
"""Seconds before a stage's first line where the output is not a terminal. The pause doubles, so that a log stays short."""
TICK_SECONDS = 0.1
"""Seconds that file times may lag the clock."""


async def follow(
    deployment: str,
    parameters: Mapping[str, Any],
    *,
    worker: subprocess.Popen[bytes] | None = None,
    queue: str | None = None,
    log: Path | None = None,
) -> int:
    """Start a deployment and show it until it ends. Return 0 if it completed. Cancelling this coroutine cancels the run.

    worker: a worker of this command's own; without it any worker takes the run. queue: the queue that it serves. log: its log file.
    """
    async with get_client() as client:
        started = await _start(deployment, parameters, queue)
        screen = Screen()
        recipe = (
            f", recipe {parameters['recipe']}," if "recipe" in parameters else ""
        )  # may differ from the deployment's own
        screen.say(f"run      {deployment}{recipe} as flow run {started.name} ({time.strftime('%H:%M:%S')})")
        try:
            flow_run = await _watch(client, started.id, worker, log, screen)
        except (asyncio.CancelledError, KeyboardInterrupt):
            screen.say("stopping ...")
            with contextlib.suppress(*AWAY):
                await asyncio.wait_for(cancel(client, [started.id], "Stopped by Ctrl-C."), CANCEL_SECONDS)
            raise KeyboardInterrupt from None
        screen.end()
        run = of_flow_run(str(started.id))
        if flow_run.state is not None and flow_run.state.is_completed():
            show_result(run, deployment, parameters)
            return 0
        message = flow_run.state.message if flow_run.state is not None else "no state"
        code = run.status.code if run is not None else None
        print(f"error: {_reason(run, message)}{f' [{code}]' if code else ''}", file=sys.stderr)
        files = f"{log.parent}; " if log is not None else ""
        print(f"logs: {files}`prefect flow-run logs {started.id}`", file=sys.stderr)
        return 1


async def _start(deployment: str, parameters: Mapping[str, Any], queue: str | None) -> FlowRun:
    try:
        started: Any = run_deployment(
            deployment, parameters=dict(parameters), timeout=0, as_subflow=False, work_queue_name=queue
        )
        flow_run: FlowRun = await started
        return flow_run
    except ObjectNotFound as error:
        raise ConfigError(
            "server.no_deployment", f"There is no deployment '{deployment}'. `prefect deployment ls` lists them."
        ) from error
    except PrefectHTTPStatusError as error:
        detail = error.response.json().get("detail", str(error)) if error.response.content else str(error)
        raise ConfigError("server.bad_parameters", f"The server rejected these parameters: {detail}") from error


async def _watch(
    client: PrefectClient, flow_run: UUID, worker: subprocess.Popen[bytes] | None, log: Path | None, screen: Screen
) -> FlowRun:
    """Wait until the flow run is over. Raises TrainingError if its worker or the server is gone; a slow server is waited for."""
    while True:
        now: FlowRun | None = None
        with contextlib.suppress(*AWAY):
            now = await asyncio.wait_for(client.read_flow_run(flow_run), ANSWER_SECONDS)
        run = of_flow_run(str(flow_run))
        screen.update(run)
        if now is not None and now.state is not None and now.state.is_final():
            return now
        goes_on = "Starting the run again continues it from its last checkpoint"
        if worker is not None and worker.poll() is not None:
            raise TrainingError(
                "process.died",
                f"The worker ended with status {worker.returncode} ({log}). {goes_on}.",
            )
        if now is None and not listens(str(client.api_url)):
            where = f" ({log.with_name('server.log')})" if log is not None else ""
            raise TrainingError("process.died", f"The server ended{where}. {goes_on}.")
        await asyncio.sleep(POLL_SECONDS)


async def cancel(client: PrefectClient, flow_runs: Sequence[UUID], message: str) -> None:
    """Request a cancel and wait a moment, so that trainers can stop by themselves. What remains dies with the worker."""
    from prefect.states import Cancelled, Cancelling

    for flow_run in flow_runs:
        await client.set_flow_run_state(flow_run, Cancelling())
    for _ in range(round(OWN_TIME_SECONDS / POLL_SECONDS)):
        now = [await client.read_flow_run(flow_run) for flow_run in flow_runs]
        flow_runs = [run.id for run in now if run.state is not None and not run.state.is_final()]
        if not flow_runs:
            return
        await asyncio.sleep(POLL_SECONDS)
    for flow_run in flow_runs:
        await client.set_flow_run_state(flow_run, Cancelled(message=message), force=True)


class Screen:
    """Progress output: one line that is rewritten on a terminal; elsewhere a line per stage, and few more if it is long."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._line = ""
        self._stages: dict[str, _StageState] = {}
        self._alarms: GrowingLines | None = None
        self._opened = time.time() - TICK_SECONDS
        self._reused: set[str] = set()
        self._waits: str | None = None

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self.end()
        print(text, flush=True)

    def end(self) -> None:
        """Finish the rewritten line."""
        if self._line and self._terminal:
            print(flush=True)
        self._line = ""

    def update(self, run: Run | None) -> None:
        """Show what is new in the run's folder. Parallel stages share the line."""
        if run is None:
            return
        self._alarms = self._alarms or GrowingLines(alarm_file(run.folder), from_end=True)
        for path in sorted(run.folder.glob("stages/[!.]*/progress.jsonl")):
            stage = path.parent.name
            if stage not in self._stages:
                # Progress from before this screen was opened is not shown.
                self._stages[stage] = _StageState(GrowingLines(path, from_end=(path.parent / "result.json").exists()))
            for line in self._stages[stage].reader:
                self._show(stage, self._stages[stage], line)
        self._show_reused(run)
        waits = run.status.waits
        if waits and waits != self._waits:
            self.say(waiting_sentence(waits))
        self._waits = waits
        for line in self._alarms:
            self.say(plain(str(line["sentence"])))

    def _show_reused(self, run: Run) -> None:
        """Print a line for each stage whose earlier result was reused since this screen was opened."""
        marks = sorted(
            (mark.stat().st_mtime, mark.parent.name) for mark in run.folder.glob(f"stages/[!.]*/{REUSED_FILE}")
        )
        for moment, stage in marks:
            if moment >= self._opened and stage not in self._reused:
                self._reused.add(stage)
                self.say(f"{stage:13}reused: finished earlier with the same inputs")

    def _show(self, stage: str, stage_state: _StageState, line: Mapping[str, Any]) -> None:
        step, total = int(line["step"]), int(line["total"])
        # A training score is of the step's own tasks and horizon, so it compares with no validation and no other branch.
        name = "score" if stage in PLAYED else "training score"
        score = "" if (value := shown_score(stage, line)) is None else f"  {name} {number(value)}"
        stage_state.validation = line.get("validate/score/mean", stage_state.validation)
        validation = "" if stage_state.validation is None else f"  validation {number(stage_state.validation)}"
        eta = stage_state.eta(step, total, float(line["seconds"]))
        stage_state.over = step == total
        counted = f"{'conversation' if stage in PLAYED else 'step'} {step:4d}/{total}"
        if stage == DISTILL:
            counted = progress_step(stage, line)
        stage_state.text = f"{stage:13}{counted}{score}{validation}{'' if stage_state.over else eta}"
        now = time.monotonic()
        if self._terminal:
            running = [stage_line.text for stage_line in self._stages.values() if not stage_line.over] or [
                stage_state.text
            ]
            self._line = "   |   ".join(running)
            print(f"\r\033[K{self._line}", end="", flush=True)
        elif now >= stage_state.due or stage_state.over:
            print(stage_state.text, flush=True)
            stage_state.pause *= 2
            stage_state.due = now + stage_state.pause


@dataclass(slots=True)
class _StageState:
    """A stage on the screen. due: when its next line may be printed. pause: seconds before that.

    first: step and seconds of its first line. validation: the newest mean score on validation tasks.
    """

    reader: GrowingLines
    text: str = ""
    over: bool = False
    due: float = field(default_factory=lambda: time.monotonic() + LINE_SECONDS)
    pause: float = LINE_SECONDS
    validation: float | None = None
    first: tuple[int, float] | None = None

    def eta(self, step: int, total: int, seconds: float) -> str:
        """Estimate the remaining time from the pace since the stage's first line. The time before it was spent on loading."""
        if self.first is None or step <= self.first[0]:
            self.first = (step, seconds)
            return ""
        pace = (seconds - self.first[1]) / (step - self.first[0])
        return f"  ETA {_clock(pace * (total - step))}"


def _reason(run: Run | None, message: str | None) -> str:
    """Return the run's own error sentence if it has one, else the state's message."""
    text = (run.status.error if run is not None else None) or message or "the run failed"
    return plain(re.sub(r"^(Flow run encountered an exception: )?(\w+: )?", "", text, count=1))


def _clock(seconds: float) -> str:
    total = max(0, round(seconds))
    return f"{total // 60}:{total % 60:02d}"
