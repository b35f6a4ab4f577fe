"""Trials of a sweep or runs of a claim as child processes of this machine, without a Prefect server."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psutil

from curricula import from_resolved
from sweeps.launcher import StartedTrial, Status
from userrl.machine.home import home, quiet, runs_dir
from userrl.run.budget import seconds_spent
from userrl.run.plan import plan_run
from userrl.run.request import TrainRequest
from userrl.run.run import goes_on_as, load, read_status
from userrl_core import processes

TRIAL = "userrl.trials.main"
"""The module that a trial's process runs. The process carries its label as a tag, by which it is found again."""


class Experiment(Protocol):
    """Whose runs are launched: a sweep's space, or a claim."""

    @property
    def name(self) -> str:
        """What it is called; its runs' output lies in a folder of this name."""
        ...

    @property
    def recipe(self) -> str:
        """The recipe of its runs, where a request names none."""
        ...

    @property
    def profile(self) -> str:
        """Their sizes and machine."""
        ...


@dataclass(slots=True)
class Trials:
    """What both launchers need: a trial's parameters for the train flow, and its run's id before it starts."""

    space: Experiment
    say: Callable[[str], None] = print
    storage: Path = field(default_factory=lambda: home() / "sweeps")

    def request(self, overrides: Mapping[str, Any], seed: int) -> tuple[TrainRequest, str]:
        """What ``train`` is asked for a trial, and the id that its run will have. Raises ConfigError as `plan_run` does."""
        asked = TrainRequest(
            recipe=self.space.recipe,
            profile=self.space.profile,
            seed=seed,
            name=self.space.name,
            overrides=dict(overrides),
            wandb="off",
        )
        plan = plan_run(asked)
        # A trial ends with its last validation: the test split is for the winner's confirmation by `train`.
        return asked.model_copy(update={"until": plan.stages[-2]}), goes_on_as(plan.run_id)

    def gpu_hours(self, run_id: str) -> float:
        """Trainer hours times accelerators so far, killed starts and the running stage included; a CPU slot counts as 1."""
        folder = runs_dir() / run_id
        if not (folder / "run.json").is_file():
            return 0.0
        return seconds_spent(folder) / 3600 * from_resolved(load(folder).info.resolved).hardware.node_gpus


class ProcessLauncher(Trials):
    """A trial is a child process of this machine."""

    def start(self, overrides: Mapping[str, Any], *, seed: int, label: str, shown: str) -> StartedTrial:
        """Start it in a session of its own, output beside the sweep; its pid and start time are its handle."""
        request, run_id = self.request(overrides, seed)
        return self.launch(request, run_id, label=label, shown=shown)

    def launch(self, request: TrainRequest, run_id: str, *, label: str, shown: str) -> StartedTrial:
        """The same for a request as it is, whose run will have this id."""
        process = _trial_process(label)
        if process is None:
            folder = self.storage / self.space.name / "trials"
            folder.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", TRIAL, request.model_dump_json(exclude_unset=True)]
            child = processes.spawn(command, output=folder / f"{label}.log", env=quiet(), tag=label)
            process = psutil.Process(child.pid)
        return StartedTrial(f"{process.pid}:{process.create_time()}:{run_id}", run_id)

    def status(self, handle: str) -> Status:
        """Alive by pid and start time, so that a recycled pid is never taken for the trial; else by the run's own word."""
        process = self._process(handle)
        if process is not None:
            return "running"
        run_id = handle.split(":", 2)[2]
        return "completed" if read_status(runs_dir() / run_id).state == "completed" else "failed"

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


def _trial_process(label: str) -> psutil.Process | None:
    """The living process of the trial with this label, which an earlier driver started just before it was killed."""
    for process in processes.tagged(label):
        with contextlib.suppress(psutil.Error):
            if TRIAL in process.cmdline():
                return process
    return None
