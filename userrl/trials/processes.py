"""Trials of a sweep or runs of a claim as child processes of this machine, without a Prefect server."""

from __future__ import annotations

import contextlib
import sys
from abc import ABC, abstractmethod
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
from userrl.run.run import asked_to_stop, load, read_status, waiting_sentence
from userrl_core import processes
from userrl_core.seeding import content_hash

TRIAL = "userrl.trials.main"
"""The module of a trial's process. The process carries its label and its home as a tag for look-up."""


class Experiment(Protocol):
    """An experiment whose runs are launched: a sweep's space, or a claim."""

    @property
    def name(self) -> str:
        """Its name, also of the folder with its runs' output."""

    @property
    def recipe(self) -> str:
        """The recipe of its runs, unless a request names one."""

    @property
    def profile(self) -> str:
        """The profile of its runs."""


@dataclass(slots=True)
class Trials(ABC):
    """The common part of both launchers: a trial's request for the train flow, and its run's id before it starts."""

    space: Experiment
    say: Callable[[str], None] = print
    storage: Path = field(default_factory=lambda: home() / "sweeps")
    _said: set[str] = field(default_factory=set, init=False)

    def start(self, overrides: Mapping[str, Any], *, seed: int, label: str, display_name: str) -> StartedTrial:
        """Start a trial with these overrides."""
        request, run_id = self.request(overrides, seed)
        return self.launch(request, run_id, label=label, display_name=display_name)

    @abstractmethod
    def launch(self, request: TrainRequest, run_id: str, *, label: str, display_name: str) -> StartedTrial:
        """Launch a request as it is. Its run will have this id."""

    def request(self, overrides: Mapping[str, Any], seed: int) -> tuple[TrainRequest, str]:
        """Return a trial's train request, and the id of its run. Raises ConfigError as `plan_run` does."""
        train_request = TrainRequest(
            recipe=self.space.recipe,
            profile=self.space.profile,
            seed=seed,
            name=self.space.name,
            overrides=dict(overrides),
            wandb="off",
        )
        plan = plan_run(train_request)
        # A trial ends with its last validation. The test split is reserved for the winner's confirmation by `train`.
        return train_request.model_copy(update={"until": plan.stages[-2]}), plan.goes_on_as

    def say_wait(self, run_id: str) -> None:
        """Say once that a run waits for a slot, and for whom."""
        if run_id not in self._said and (holders := read_status(runs_dir() / run_id).waits):
            self._said.add(run_id)
            self.say(f"run {run_id} {waiting_sentence(holders)}")

    def gpu_hours(self, run_id: str) -> float:
        """Return trainer hours times accelerators so far, including killed attempts and the running stage. A CPU slot
        counts as 1.
        """
        folder = runs_dir() / run_id
        if not (folder / "run.json").is_file():
            return 0.0
        return seconds_spent(folder) / 3600 * from_resolved(load(folder).info.resolved).hardware.node_gpus


class ProcessLauncher(Trials):
    """A launcher whose trials are child processes of this machine."""

    def launch(self, request: TrainRequest, run_id: str, *, label: str, display_name: str) -> StartedTrial:
        """Start a trial in its own session, with its output in the sweep's folder. Its handle is its pid and start time."""
        tag = f"{label}-home-{content_hash(str(home()))}"  # a claim has the same labels in every home
        process = _trial_process(tag)
        if process is None:
            folder = self.storage / self.space.name / "trials"
            folder.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", TRIAL, request.model_dump_json(exclude_unset=True)]
            child = processes.spawn(command, output=folder / f"{label}.log", env=quiet(), tag=tag)
            process = psutil.Process(child.pid)
        return StartedTrial(f"{process.pid}:{process.create_time()}:{run_id}", run_id)

    def status(self, handle: str) -> Status:
        """Return the status by pid and start time, so that a recycled pid is not taken for the trial; else by the
        run's status. cancelled: a person asked the run to stop.
        """
        process = self._process(handle)
        run_id = handle.split(":", 2)[2]
        if process is not None:
            self.say_wait(run_id)
            return "running"
        folder = runs_dir() / run_id
        if read_status(folder).state == "completed":
            return "completed"
        return "cancelled" if asked_to_stop(folder) else "failed"

    def cancel(self, handle: str) -> None:
        """Send TERM. The flow stops its trainer, which leaves a checkpoint."""
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


def _trial_process(tag: str) -> psutil.Process | None:
    """Return the live process of the trial with this tag, started by an earlier driver just before it was killed."""
    for process in processes.tagged(tag):
        with contextlib.suppress(psutil.Error):
            if TRIAL in process.cmdline():
                return process
    return None
