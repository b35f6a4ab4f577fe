"""The loop that runs a sweep: ask, start, watch, prune, tell; within its budget; resumable after any death.

Everything that must survive lies in the study (a trial's overrides, its run, its handle, its attempts), so a driver that
is started again takes up running trials, restarts dead ones (a run's id is its configuration, so it continues from its
last checkpoint) and repeats no finished one. A failed trial is never told a value.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import optuna
from optuna.trial import FrozenTrial, TrialState

from sweeps.objective import Point, money, objectives, points, violations
from sweeps.pruning import should_prune
from sweeps.space import Space
from sweeps.study import counted, exhausted, ranked
from userrl_core.errors import TrainingError, UserRLError

Status = Literal["running", "completed", "failed"]
MAX_REPEATS = 20


@dataclass(frozen=True, slots=True)
class Started:
    """A run on its way. handle: what the launcher needs to find it again after a restart of the driver."""

    handle: str
    run_id: str


class Launcher(Protocol):
    """Starts runs of a recipe somewhere: child processes of this machine, or flow runs that any worker may take."""

    def start(self, overrides: Mapping[str, Any], *, seed: int, label: str) -> Started:
        """Start (or continue) the run of this configuration and return at once.

        label: names this attempt of this trial of this sweep for ever; starting one label twice is starting it once.
        """
        ...

    def status(self, handle: str) -> Status:
        """Where it stands; an unknown handle has failed."""
        ...

    def cancel(self, handle: str) -> None:
        """Stop it within its grace; it leaves a checkpoint. Harmless when it has ended."""
        ...

    def gpu_hours(self, run_id: str) -> float:
        """Trainer hours times accelerators that the run has used so far."""
        ...


@dataclass(slots=True)
class _Active:
    trial: optuna.Trial
    started: Started
    points: list[Point] = field(default_factory=list)


@dataclass(slots=True)
class Sweep:
    """One driver of one study. Only one may run at a time (the caller holds the sweep's lock)."""

    space: Space
    study: optuna.Study
    launcher: Launcher
    warehouse: Path
    parallel: int = 2
    poll_seconds: float = 2.0
    say: Callable[[str], None] = print
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.time

    def run(self) -> None:
        """Run trials until the budget is spent or the space is, then confirm the best on fresh seeds."""
        if "began" not in self.study.user_attrs:
            self.study.set_user_attr("began", self.now())
        active = self._take_up()
        try:
            while True:
                spent = self._spent()
                if spent:
                    self._stop_all(active, spent)
                    break
                while len(active) < self.parallel and self._may_start(len(active)):
                    fresh = self._next()
                    if fresh is None:
                        break
                    active.append(fresh)
                if not active:
                    break
                self.sleep(self.poll_seconds)
                active = [a for a in active if not self._watch(a, active)]
        except BaseException:
            # Cancelled or broken: trials stay RUNNING in the study and are taken up by the next driver.
            for item in active:
                self.launcher.cancel(item.started.handle)
            raise
        self._confirm()

    # starting

    def _may_start(self, running: int) -> bool:
        return len(counted(self.study)) + running < self.space.budget.trials and not exhausted(self.space, self.study)

    def _next(self) -> _Active | None:
        for _ in range(MAX_REPEATS):
            trial = self.study.ask()
            overrides = self.space.suggest(trial)
            twin = self._twin(trial, overrides)
            if twin is None:
                return self._start(trial, overrides)
            trial.set_user_attr("duplicate_of", twin.number)
            if twin.state == TrialState.COMPLETE:
                self.study.tell(trial, list(twin.values))
            else:
                self.study.tell(trial, state=TrialState.FAIL)
            if exhausted(self.space, self.study):
                return None
        self.say(f"The sampler proposed known configurations {MAX_REPEATS} times in a row: the space is exhausted.")
        return None

    def _twin(self, trial: optuna.Trial, overrides: Mapping[str, Any]) -> FrozenTrial | None:
        same = self.space.configuration(overrides)
        for other in self.study.get_trials(deepcopy=False):
            taken = other.state in (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)
            if other.number != trial.number and taken and other.user_attrs.get("configuration") == same:
                return other
        return None

    def _start(self, trial: optuna.Trial, overrides: Mapping[str, Any], attempts: int = 1) -> _Active:
        trial.set_user_attr("configuration", self.space.configuration(overrides))
        trial.set_user_attr("overrides", dict(overrides))
        trial.set_user_attr("attempts", attempts)
        label = self._label(f"{trial.number}-attempt{attempts}")
        started = self.launcher.start(overrides, seed=self.space.seed, label=label)
        trial.set_user_attr("handle", started.handle)
        trial.set_user_attr("run_id", started.run_id)
        self.say(f"trial {trial.number} attempt {attempts}: run {started.run_id} {_short(overrides)}")
        return _Active(trial, started)

    def _take_up(self) -> list[_Active]:
        """Trials that an earlier driver left running: still running, ended meanwhile, or dead."""
        found = []
        for frozen in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            trial = optuna.Trial(self.study, frozen._trial_id)
            handle, run_id = frozen.user_attrs.get("handle"), frozen.user_attrs.get("run_id")
            if handle is None or run_id is None:  # died between ask and start: parameters and label are the same again
                overrides = frozen.user_attrs.get("overrides") or self.space.suggest(trial)
                found.append(self._start(trial, overrides, int(frozen.user_attrs.get("attempts", 1))))
                continue
            item = _Active(trial, Started(handle, run_id))
            if self.launcher.status(handle) != "failed":
                self.say(f"trial {trial.number}: taken up again, run {run_id}")
                found.append(item)
            elif (again := self._again(item, "its process was gone when the sweep resumed")) is not None:
                found.append(again)
        return found

    # watching

    def _watch(self, item: _Active, active: list[_Active]) -> bool:
        """One look at a trial; True when it is over."""
        status = self.launcher.status(item.started.handle)
        self._report(item)
        if status == "completed":
            return self._finish(item)
        if status == "failed":
            again = self._again(item, "its run failed")
            if again is not None:
                active.append(again)
            return True
        maximize = self.space.objectives[0].direction == "maximize"
        others = [
            [Point(*p) for p in t.user_attrs.get("points", [])]
            for t in self.study.get_trials(deepcopy=False)
            if t.number != item.trial.number and "duplicate_of" not in t.user_attrs
        ]
        why = should_prune(item.points, others, self.space.pruning, maximize=maximize)
        if why is None:
            return False
        self.launcher.cancel(item.started.handle)
        item.trial.set_user_attr("pruned", why)
        self.study.tell(item.trial, state=TrialState.PRUNED)
        self.say(f"trial {item.trial.number} pruned: {why}")
        return True

    def _report(self, item: _Active) -> None:
        found = points(self.warehouse, item.started.run_id)
        if len(found) == len(item.points):
            return
        if len(self.study.directions) == 1:  # optuna-dashboard draws these; with several objectives Optuna takes none
            for point in found[len(item.points) :]:
                item.trial.report(point.value, point.step)
        item.points = found
        item.trial.set_user_attr("points", [[p.stage, p.horizon, p.step, p.value] for p in found])

    def _finish(self, item: _Active) -> bool:
        run_id = item.started.run_id
        try:
            measured = objectives(self.warehouse, run_id, self.space)
            exceeded = violations(self.warehouse, run_id, self.space)
        except TrainingError as error:
            self._fail(item, str(error))
            return True
        item.trial.set_user_attr("stderr", [m.stderr for m in measured])
        item.trial.set_user_attr("n", [m.n for m in measured])
        if exceeded:
            item.trial.set_user_attr("violations", exceeded)
        self.study.tell(item.trial, [m.value for m in measured])
        values = ", ".join(f"{m.value:.3f} ± {m.stderr:.3f}" for m in measured)
        self.say(f"trial {item.trial.number} finished: {values}")
        return True

    def _again(self, item: _Active, why: str) -> _Active | None:
        attempts = int(item.trial.user_attrs.get("attempts", 1))
        if attempts > self.space.retries:
            self._fail(item, f"{why}; {attempts} attempts")
            return None
        self.say(f"trial {item.trial.number}: {why}; starting it again")
        return self._start(item.trial, item.trial.user_attrs["overrides"], attempts + 1)

    def _label(self, what: str) -> str:
        began = int(float(self.study.user_attrs["began"]))
        return f"{self.space.name}-{began}-{what}"

    def _fail(self, item: _Active, why: str) -> None:
        item.trial.set_user_attr("failed", why)
        self.study.tell(item.trial, state=TrialState.FAIL)
        self.say(f"trial {item.trial.number} failed: {why}")

    # budget

    def _spent(self) -> str | None:
        budget = self.space.budget
        hours = (self.now() - float(self.study.user_attrs["began"])) / 3600
        if budget.hours is not None and hours >= budget.hours:
            return f"{hours:.2f} of {budget.hours:g} hours"
        runs = [t.user_attrs["run_id"] for t in self.study.get_trials(deepcopy=False) if "run_id" in t.user_attrs]
        if budget.money is not None and (dollars := money(self.warehouse, runs)) >= budget.money > 0:
            return f"{dollars:.2f} of {budget.money:g} dollars for model calls"
        if budget.gpu_hours is not None:
            used = sum(self.launcher.gpu_hours(run_id) for run_id in runs)
            if used >= budget.gpu_hours:
                return f"{used:.2f} of {budget.gpu_hours:g} GPU-hours"
        return None

    def _stop_all(self, active: list[_Active], spent: str) -> None:
        self.say(f"Budget spent: {spent}. Stopping {len(active)} running trial(s).")
        for item in active:
            self.launcher.cancel(item.started.handle)
            self._fail(item, f"stopped by the budget: {spent}")

    # confirmation

    def _confirm(self) -> None:
        """Re-run the leaders on fresh seeds; their mean, not the selected trial's own value, is what gets reported."""
        wanted = [(t, seed) for t in ranked(self.study)[: self.space.confirm.top] for seed in self.space.confirm.seeds]
        done: list[dict[str, Any]] = list(self.study.user_attrs.get("confirmed", []))
        known = {(d["trial"], d["seed"]) for d in done}
        waiting = [(t, seed) for t, seed in wanted if (t.number, seed) not in known]
        running: list[tuple[FrozenTrial, int, Started]] = []
        while waiting or running:
            while waiting and len(running) < self.parallel:
                trial, seed = waiting.pop(0)
                label = self._label(f"{trial.number}-seed{seed}")
                running.append(
                    (trial, seed, self.launcher.start(trial.user_attrs["overrides"], seed=seed, label=label))
                )
            self.sleep(self.poll_seconds)
            for entry in list(running):
                trial, seed, started = entry
                status = self.launcher.status(started.handle)
                if status == "running":
                    continue
                running.remove(entry)
                done.append(self._confirmed(trial, seed, started, status))
                self.study.set_user_attr("confirmed", done)

    def _confirmed(self, trial: FrozenTrial, seed: int, started: Started, status: Status) -> dict[str, Any]:
        row: dict[str, Any] = {"trial": trial.number, "seed": seed, "run_id": started.run_id, "values": None}
        if status == "completed":
            try:
                row["values"] = [m.value for m in objectives(self.warehouse, started.run_id, self.space)]
            except UserRLError as error:
                row["failed"] = str(error)
        self.say(f"trial {trial.number} on fresh seed {seed}: {row['values'] or 'failed'}")
        return row


def _short(overrides: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in overrides.items())
