"""Progress for people: a Prefect artifact, updated now and then, and never a reason to stop training."""

from __future__ import annotations

import re
import time
from typing import Any

from prefect import get_run_logger
from prefect.artifacts import create_progress_artifact, update_progress_artifact

from flows.run.job import StageJob

EVERY_SECONDS = 5.0


def artifact_key(text: str) -> str:
    """As Prefect wants keys: lower case, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


class ProgressArtifact:
    """Called with every progress line; writes at most one update per five seconds. A server that is away is skipped."""

    def __init__(self, job: StageJob) -> None:
        self._job = job
        self._artifact: Any = None
        self._due = 0.0
        self._log = get_run_logger()

    def __call__(self, line: dict[str, Any]) -> None:
        """One finished step."""
        now = time.monotonic()
        if now < self._due and line["step"] < line["total"]:
            return
        self._due = now + EVERY_SECONDS
        percent = 100.0 * line["step"] / max(1, line["total"])
        reward = line.get("reward")
        shown = "" if reward is None else f", reward {reward:.3f}"
        self._log.info("%s: step %d of %d%s", self._job.stage, line["step"], line["total"], shown)
        try:
            if self._artifact is None:
                key = artifact_key(f"{self._job.run_id}-{self._job.stage}")
                self._artifact = create_progress_artifact(progress=percent, key=key, description=self._job.stage)
            else:
                update_progress_artifact(self._artifact, progress=percent)
        except Exception as error:  # noqa: BLE001  a server that is away must not stop training
            self._log.warning("progress is not shown: the server did not answer (%s)", type(error).__name__)
