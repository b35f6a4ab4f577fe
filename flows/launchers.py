"""Where a sweep's trials run: as flow runs that any worker may take, or as child processes of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
from prefect.client.orchestration import get_client
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelling

from flows.home import home, quiet, runs_dir
from flows.plan import Plan, make_plan
from flows.runs import of_flow_run, read_json
from sweeps.driver import Started, Status
from sweeps.space import Space


@dataclass(slots=True)
class _Trials:
    """What both launchers need: a trial's parameters for the train flow, and its run's id before it starts."""

    space: Space
    storage: Path = field(default_factory=lambda: home() / "sweeps")

    def parameters(self, overrides: Mapping[str, Any], seed: int) -> dict[str, Any]:
        plan = self.plan(overrides, seed)
        return {
            "recipe": self.space.recipe,
            "profile": self.space.profile,
            "seed": seed,
            "name": self.space.name,
            "overrides": dict(overrides),
            # A trial ends with its last validation: the test split is for the winner's confirmation by `train`.
            "until": plan.rl_stages[-1],
            "wandb": "off",
        }

    def plan(self, overrides: Mapping[str, Any], seed: int) -> Plan:
        return make_plan(
            self.space.recipe, self.space.profile, seed=seed, name=self.space.name, overrides=dict(overrides)
        )

    def gpu_hours(self, run_id: str) -> float:
        """Trainer hours times accelerators so far; a CPU slot counts as one."""
        folder = runs_dir() / run_id
        results = [read_json(path) for path in folder.glob("stages/*/result.json")]
        about = read_json(folder / "run.json") or {}
        gpus = int(about.get("resolved", {}).get("hardware", {}).get("gpus", 0))
        return sum(float(r["value"].get("seconds", 0.0)) for r in results if r) / 3600 * max(1, gpus)


class DeploymentLauncher(_Trials):
    """A trial is a run of the recipe's ``train`` deployment; every worker of the pool may take it."""

    def start(self, overrides: Mapping[str, Any], *, seed: int, label: str) -> Started:
        """Ask the server for a flow run; the label as idempotency key makes a repeated request the same flow run."""
        flow_run: Any = run_deployment(
            f"train/{self.space.recipe}",
            parameters=self.parameters(overrides, seed),
            flow_run_name=label,
            idempotency_key=label,
            timeout=0,
            as_subflow=False,
            tags=["sweep", self.space.name],
        )
        return Started(str(flow_run.id), self.plan(overrides, seed).run_id)

    def status(self, handle: str) -> Status:
        """By the flow run's state; one that the server does not know has failed."""
        with get_client(sync_client=True) as client:
            try:
                state = client.read_flow_run(UUID(handle)).state
            except ObjectNotFound:
                return "failed"
        if state is None or not state.is_final():
            return "running"
        return "completed" if state.is_completed() else "failed"

    def cancel(self, handle: str) -> None:
        """The worker stops the process within its grace."""
        with get_client(sync_client=True) as client:
            try:
                flow_run = client.read_flow_run(UUID(handle))
            except ObjectNotFound:
                return
            if flow_run.state is not None and not flow_run.state.is_final():
                client.set_flow_run_state(flow_run.id, Cancelling())

    def run_of(self, handle: str) -> str | None:
        """The run that a flow run works on, once it has begun."""
        run = of_flow_run(handle)
        return None if run is None else run.id


class ProcessLauncher(_Trials):
    """A trial is a child process that calls the train flow as a plain Python function; for one machine."""

    def start(self, overrides: Mapping[str, Any], *, seed: int, label: str) -> Started:
        """Start it in a session of its own, output beside the sweep; its pid and start time are its handle."""
        folder = self.storage / self.space.name / "trials"
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "flows.trial", json.dumps(self.parameters(overrides, seed))]
        with (folder / f"{label}.log").open("ab") as log:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=quiet(os.environ),
                start_new_session=True,
            )
        began = psutil.Process(child.pid).create_time()
        run_id = self.plan(overrides, seed).run_id
        return Started(f"{child.pid}:{began}:{run_id}", run_id)

    def status(self, handle: str) -> Status:
        """Alive by pid and start time, so that a recycled pid is never taken for the trial; else by the run's own word."""
        process = self._process(handle)
        if process is not None:
            return "running"
        run_id = handle.split(":", 2)[2]
        status = read_json(runs_dir() / run_id / "status.json") or {}
        return "completed" if status.get("state") == "completed" else "failed"

    def cancel(self, handle: str) -> None:
        """TERM; the flow stops its trainer, which leaves a checkpoint."""
        process = self._process(handle)
        if process is not None:
            process.terminate()

    def _process(self, handle: str) -> psutil.Process | None:
        pid, began, _ = handle.split(":", 2)
        try:
            process = psutil.Process(int(pid))
            if process.status() == psutil.STATUS_ZOMBIE:
                process.wait(0)
                return None
            return process if abs(process.create_time() - float(began)) < 0.01 else None
        except psutil.Error:
            return None
