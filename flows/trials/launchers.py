"""Trials of a sweep, or runs of a claim, as flow runs for any worker."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.states import Cancelling, Crashed
from prefect.types._datetime import now

from flows.stages.artifacts import TRIAL_TAG
from sweeps.launcher import StartedTrial, Status
from userrl.run.request import TrainRequest
from userrl.run.run import asked_to_stop, host_of_flow_run, of_flow_run
from userrl.trials.processes import Trials
from userrl_core import processes
from userrl_core.errors import TrainingError

T = TypeVar("T")

OUTAGE_SECONDS = 1800.0
"""Seconds to wait for a server that does not answer before the sweep gives up. Its trials continue."""

UNTAKEN_SECONDS = 60.0
"""A trial that no worker takes for this long is reported."""

PENDING_SECONDS = 300.0
"""A flow run that a worker took but that did not start within this time died with its worker."""


class DeploymentLauncher(Trials):
    """A launcher whose trials are runs of a ``train`` deployment. Every worker of the pool may take them."""

    def launch(self, request: TrainRequest, run_id: str, *, label: str, display_name: str) -> StartedTrial:
        """Ask the server for a flow run under this sweep's own. The label is the idempotency key: a repeated request
        gets the same flow run.

        Raises TrainingError if the train deployment is missing.
        """
        flow_run: Any = self._retry_while_away(lambda: self._run(request, label, display_name))
        return StartedTrial(str(flow_run.id), run_id)

    def _run(self, request: TrainRequest, label: str, display_name: str) -> Any:
        for deployment in (f"train/{Path(request.recipe).stem}", "train/equalized-r2g"):
            try:
                return run_deployment(
                    deployment,
                    parameters=request.model_dump(mode="json", exclude_unset=True),
                    flow_run_name=display_name,
                    idempotency_key=label,
                    timeout=0,
                    tags=[TRIAL_TAG, self.space.name],
                )
            except ObjectNotFound:
                continue  # a recipe without its own deployment: any train deployment takes it as a parameter
        raise TrainingError(
            "server.no_deployment",
            "There is no train deployment on the server. `userrl deploy` creates them.",
        )

    def status(self, handle: str) -> Status:
        """Return the status by the flow run's state. A flow run that the server does not know has failed.

        One whose run a person asked to stop is cancelled, also where it was killed because it did not stop in time.
        """
        try:
            flow_run = self._client.read_flow_run(UUID(handle))
            if flow_run.state is None:
                return "running"
            run = of_flow_run(handle)
            if not flow_run.state.is_final() and not self._mark_crashed(flow_run):
                if run is not None:
                    self.say_wait(run.id)
                return "running"
            if flow_run.state.is_completed():
                return "completed"
            by_hand = flow_run.state.is_cancelled() or (run is not None and asked_to_stop(run.folder))
            return "cancelled" if by_hand else "failed"
        except ObjectNotFound:
            return "failed"
        except (httpx.TransportError, PrefectHTTPStatusError) as error:
            if not _away(error):
                raise
            return "running"

    def cancel(self, handle: str) -> None:
        """Ask for a cancel; the worker then stops the process within its grace period. A server that is away is not
        waited for.
        """
        try:
            flow_run = self._client.read_flow_run(UUID(handle))
            if flow_run.state is not None and not flow_run.state.is_final():
                self._client.set_flow_run_state(flow_run.id, Cancelling())
        except ObjectNotFound:
            return
        except (httpx.TransportError, PrefectHTTPStatusError) as error:
            if not _away(error):
                raise
            self.say(f"The server does not answer; cancel flow run {handle} by hand if it is still running.")

    @cached_property
    def _client(self) -> SyncPrefectClient:
        """The client, kept open. Opening one costs several times a request, and a sweep sends requests for days."""
        return get_client(sync_client=True).__enter__()

    def _mark_crashed(self, flow_run: FlowRun) -> bool:
        """Mark a flow run as Crashed if its process is gone, without waiting for the automation to miss its heartbeat."""
        assert flow_run.state is not None
        age = float((now("UTC") - flow_run.state.timestamp).total_seconds())
        if flow_run.state.type == StateType.SCHEDULED:
            if age > UNTAKEN_SECONDS and int(age) % 60 < 3:
                self.say(
                    f"No worker has taken {flow_run.name} for {age:.0f} s; start one with "
                    "`prefect worker start --pool gpu --type process --work-queue default`."
                )
            return False
        never_began = flow_run.state.type == StateType.PENDING and age > PENDING_SECONDS
        crashed = never_began or (age > 10 and _is_gone(flow_run))
        if crashed:
            self._client.set_flow_run_state(
                flow_run.id, Crashed(message="The process of this run is gone."), force=True
            )
        return crashed

    def _retry_while_away(self, ask: Callable[[], T]) -> T:
        """Repeat a request while the server is away. Raises its last error after half an hour."""
        deadline, announced = time.monotonic() + OUTAGE_SECONDS, False
        while True:
            try:
                return ask()
            except (httpx.TransportError, PrefectHTTPStatusError) as error:
                if not _away(error) or time.monotonic() > deadline:
                    raise
            if not announced:
                self.say("The server does not answer; waiting for it. Running trials continue.")
                announced = True
            time.sleep(2.0)


def _away(error: Exception) -> bool:
    return isinstance(error, httpx.TransportError) or (
        isinstance(error, PrefectHTTPStatusError) and error.response.status_code >= 500
    )


def _is_gone(flow_run: FlowRun) -> bool:
    """Return whether a flow run's process has certainly ended. A recycled process id counts as alive.

    Where this returns False, the automation decides, after 90 s without a heartbeat. It returns False for a flow run of
    another machine, and where no machine is recorded. Behind an SSH tunnel the server's address does not tell which machine it
    is, and a wrong answer would start a second process beside one that trains.
    """
    pid, host = flow_run.infrastructure_pid, host_of_flow_run(str(flow_run.id))
    here = host == socket.gethostname()
    return here and pid is not None and pid.isdigit() and not processes.is_alive(int(pid))
