"""A stage's numbers in MLflow: in files below ``mlflow`` in the home, or on the server of ``$MLFLOW_TRACKING_URI``."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import Any

from curricula.merge import leaves
from userrl.machine.home import home
from userrl.run.job import StageJob
from userrl_core.records import CheckpointRecord, Trajectory

EXPERIMENT = "userrl"
_FOREIGN = re.compile(r"[^A-Za-z0-9_./ :-]")
"""Characters that MLflow refuses in a name."""
AT_ONCE, LONGEST = 100, 500
"""Parameters that MLflow takes in one call, and the characters of a value."""


class MlflowRun:
    """A stage's run in MLflow, started with the first number.

    A run of ours is the tag ``userrl.run`` there, and each stage a run with this tag. The recipe is written as a parameter for
    each of its keys.
    """

    def __init__(self, job: StageJob) -> None:
        self._job = job
        self._client: Any = None
        self._id = ""

    def log(self, values: Mapping[str, float], stage: str, step: int) -> None:
        """Log one step."""
        from mlflow.entities import Metric

        client, now = self._started(), int(time.time() * 1000)
        rows = [Metric(_FOREIGN.sub("_", name), float(value), now, step) for name, value in values.items()]
        client.log_batch(self._id, metrics=rows)

    def played(self, trajectory: Trajectory) -> None:
        """Do nothing: conversations are in the warehouse."""

    def checkpoint(self, record: CheckpointRecord) -> None:
        """Log a checkpoint's path as a tag, and its validation score if it has one."""
        client = self._started()
        client.set_tag(self._id, f"checkpoint.{record.step}", record.path)
        if record.score is not None:
            client.log_metric(self._id, "checkpoint/validation", record.score, step=record.step)

    def close(self) -> None:
        """Mark the run as finished."""
        if self._client is not None:
            self._client.set_terminated(self._id)

    def _started(self) -> Any:
        if self._client is None:
            self._client = self._start()
        return self._client

    def _start(self) -> Any:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient
        from mlflow.entities import Param, RunTag

        uri = os.environ.get("MLFLOW_TRACKING_URI")
        if not uri:
            folder = home() / "mlflow"
            folder.mkdir(parents=True, exist_ok=True)
            uri = folder.as_uri()
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        client, job = MlflowClient(tracking_uri=uri), self._job
        experiment = client.get_experiment_by_name(EXPERIMENT)
        number = client.create_experiment(EXPERIMENT) if experiment is None else experiment.experiment_id
        self._id = client.create_run(number, run_name=f"{job.run_id}/{job.stage}").info.run_id
        tags = {"run": job.run_id, "stage": job.stage, "kind": job.kind, "profile": job.recipe.profile or ""}
        client.log_batch(self._id, tags=[RunTag(f"userrl.{key}", value) for key, value in tags.items()])
        params = [("seed", job.seed), ("backend", job.backend), *leaves(job.recipe.resolved())]
        written = [Param(_FOREIGN.sub("_", key), str(value)[:LONGEST]) for key, value in params]
        for first in range(0, len(written), AT_ONCE):
            client.log_batch(self._id, params=written[first : first + AT_ONCE])
        return client
