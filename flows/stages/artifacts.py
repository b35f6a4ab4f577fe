"""A run's artifacts on the server: progress, report page, and a notification on failure.

Artifacts are for watching only. If the server is away they are skipped, and training continues.
"""

from __future__ import annotations

import base64
import os
import re
import shlex
import subprocess
import time
from threading import Lock
from typing import Any
from uuid import UUID

from prefect import get_run_logger, runtime
from prefect.artifacts import (
    create_image_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate

from userrl.machine.home import warehouse_dir
from userrl.reports.curves import curve_points
from userrl.reports.run_report import RunReport
from userrl.reports.run_so_far import run_so_far
from userrl.reports.run_summary import run_summary
from userrl.run.job import StageJob
from userrl.run.plan import RunPlan
from userrl.run.progress import progress_step, shown_score
from userrl.run.run import Run, of_flow_run
from userrl_core.number_format import number
from warehouse import open_warehouse

PROGRESS_SECONDS = 5.0


def artifact_key(text: str) -> str:
    """Return a key in Prefect's form: lower case, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


class ProgressArtifact:
    """A progress display, called with every progress line. It sends at most one update per five seconds, and none to a server
    that is away.
    """

    def __init__(self, job: StageJob) -> None:
        self._job = job
        self._artifact: Any = None
        self._due = 0.0
        self._log = get_run_logger()

    def __call__(self, line: dict[str, Any]) -> None:
        """Show one finished step."""
        now = time.monotonic()
        if now < self._due and line["step"] < line["total"]:
            return
        self._due = now + PROGRESS_SECONDS
        percent = 100.0 * line["step"] / max(1, line["total"])
        score = shown_score(self._job.stage, line)
        score_text = "" if score is None else f", score {number(score)}"
        self._log.info("%s: %s%s", self._job.stage, progress_step(self._job.stage, line), score_text)
        try:
            if self._artifact is None:
                key = artifact_key(f"{self._job.run_id}-{self._job.stage}")
                self._artifact = create_progress_artifact(progress=percent, key=key, description=self._job.stage)
            else:
                update_progress_artifact(self._artifact, progress=percent)
        except Exception as error:  # noqa: BLE001  a server that is away must not stop training
            self._log.warning("the progress display was skipped: the server did not answer (%s)", type(error).__name__)


TRIAL_TAG = "sweep"
"""Tag of a flow run that a sweep started."""


def flow_run_name() -> str:
    """Return ``recipe-seed``. A trial keeps the name that its sweep gave it, after its parameters."""
    if TRIAL_TAG in (runtime.flow_run.tags or ()):
        return str(runtime.flow_run.name)
    parameters = runtime.flow_run.parameters
    return f"{parameters.get('recipe')}-{parameters.get('seed', 0)}"


_pages: dict[tuple[str, str], tuple[UUID, str]] = {}
"""The artifact and its text that each flow run of this process shows under a key. The artifact is updated in place."""

_one_page = Lock()


def show_markdown(key: str, text: str, about: str) -> None:
    """Show a page under this key. A flow run has one such page, updated in place. A server that is away is skipped."""
    page_key = (str(runtime.flow_run.id), key)
    try:
        with _one_page:  # stages may end at the same time
            current = _pages.get(page_key)
            if current is None:
                artifact: Any = create_markdown_artifact(text, key=artifact_key(key), description=about)
                _pages[page_key] = (artifact, text)
            elif current[1] != text:
                with get_client(sync_client=True) as client:
                    client.update_artifact(current[0], ArtifactUpdate(data=text, description=about))
                _pages[page_key] = (current[0], text)
    except Exception as error:  # noqa: BLE001  the page is for watching only
        get_run_logger().warning("the page %s was skipped: the server did not answer (%s)", key, type(error).__name__)


def show_page(plan: RunPlan, run: Run) -> None:
    """Show the run's progress on the page that its report takes at the end."""
    with open_warehouse(warehouse_dir(), run=run.id) as warehouse:
        text = run_so_far(run, warehouse, plan.stages).markdown()
    show_markdown(f"{run.id}-report", text, f"progress of {run.id}")


def label(plan: RunPlan, run: Run) -> None:
    """Tag the flow run with recipe, profile, seed and run id, and name it by the recipe. A server that is away is skipped."""
    info = run.info
    tags = {f"recipe:{info.recipe}", f"profile:{info.profile or 'none'}", f"seed:{info.seed}", f"run:{run.id}"}
    flow_run_name = runtime.flow_run.name or ""
    # A recipe that was given as a file would make its path the name.
    path = TRIAL_TAG not in runtime.flow_run.tags and ("/" in flow_run_name or ".y" in flow_run_name)
    name = f"{plan.recipe.name}-{info.seed}" if path else None
    try:
        with get_client(sync_client=True) as client:
            client.update_flow_run(UUID(str(runtime.flow_run.id)), tags={*runtime.flow_run.tags, *tags}, name=name)
    except Exception as error:  # noqa: BLE001  tags only help to find runs
        get_run_logger().warning("the flow run was not tagged: the server did not answer (%s)", type(error).__name__)


def publish(run: Run, report: RunReport) -> dict[str, Any]:
    """Show a report as artifacts of this flow run, and return it as JSON. A server that is away is skipped."""
    with open_warehouse(warehouse_dir(), run=run.id) as warehouse:
        summary = run_summary(report, curve_points(warehouse, run.id))
    drawings = [base64.b64encode(figure.svg.encode()).decode() for figure in summary.figures]
    images = [f"data:image/svg+xml;base64,{drawing}" for drawing in drawings]
    rows = [
        {"actor": actor, "gym": gym, **row.model_dump(include={"score", "stderr", "turns", "attempts"})}
        for actor, gyms in report.table.items()
        for gym, row in gyms.items()
    ]
    try:
        for image in images:
            create_image_artifact(
                image_url=image, key=artifact_key(f"{run.id}-curve"), description="mean score per step"
            )
        if rows:
            create_table_artifact(rows, key=artifact_key(f"{run.id}-scores"))
    except Exception as error:  # noqa: BLE001  the report is in the run's folder; the server only displays it
        get_run_logger().warning(
            "the report's artifacts were skipped: the server did not answer (%s)", type(error).__name__
        )
    show_markdown(f"{run.id}-report", summary.markdown(images), f"report of {run.id}")
    return report.model_dump(mode="json")


def notify(flow: Any, flow_run: Any, state: Any) -> None:
    """Run the command in ``$USERRL_NOTIFY`` with run, state and message appended. This flow hook never fails."""
    command = os.environ.get("USERRL_NOTIFY")
    if not command:
        return
    run = of_flow_run(str(flow_run.id))
    args = [run.id if run else str(flow_run.name), str(state.name), str(state.message or "")]
    try:
        subprocess.run([*shlex.split(command), *args], timeout=30, check=True)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"the command in USERRL_NOTIFY failed: {error}")
