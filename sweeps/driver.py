"""The loop of a sweep: ask, start, watch, prune, tell; within its budget, and resumable after any crash.

The study keeps all state (a trial's overrides, its run, its handle, its restarts). A restarted driver therefore takes
up running trials, restarts dead ones and repeats no finished one. A run's id is its configuration, so a restarted run
continues from its last checkpoint. A failed trial never gets a value. The warehouse's table ``trials`` mirrors the
study's data about a trial.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import StorageInternalError
from optuna.trial import FrozenTrial, TrialState

from sweeps.confirm import Confirmation
from sweeps.launcher import Launcher, StartedTrial
from sweeps.objective import Point, objectives, points, violations
from sweeps.parameters import params_of
from sweeps.pruning import should_prune
from sweeps.space import Space
from sweeps.spending import Spending
from sweeps.storage import lost_connection
from sweeps.study import counted, exhausted, shown_name
from userrl_core.errors import ConfigError, TrainingError
from userrl_core.number_format import with_error
from warehouse.files.runs import TrialRecord, record_trial

MAX_REPEATS = 20
_STATES = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}


@dataclass(slots=True)
class _Active:
    trial: optuna.Trial
    started: StartedTrial
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
    show: Callable[[], None] = lambda: None
    """Callback after each look at the trials, for displays."""
    check: Callable[[], object] = lambda: None
    """Called before each start of a run. It raises ConfigError if what the runs read has changed since the sweep began."""
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic
    """The clock of the budget's hours, in seconds."""

    def run(self) -> None:
        """Run trials until the budget or the space is exhausted, then confirm the best on fresh seeds."""
        while True:
            try:
                self._drive()
                return
            except StorageInternalError as error:
                if not lost_connection(error):
                    raise
            self.say("The study's database ended the connection. The trials continue and are taken up again.")

    def _drive(self) -> None:
        if "began" not in self.study.user_attrs:
            self.study.set_user_attr("began", time.time())
        spending = Spending(self.space, self.study, self.launcher, self.warehouse, self.now)
        spending.begin()
        self._record_finished()
        try:
            self._search(spending)
            self._confirmation(spending).run()
        finally:
            spending.end()

    def _search(self, spending: Spending) -> None:
        active: list[_Active] = []
        try:
            self._take_up(active)
            while True:
                spent = spending.spent(spending.search_share())
                if spent:
                    self._stop_all(active, spent)
                    return
                while len(active) < self.parallel and self._may_start(len(active)) and self._unchanged():
                    fresh = self._next()
                    if fresh is None:
                        break
                    active.append(fresh)
                if not active:
                    self.check()  # after the last trial too, which may have read both
                    return
                self._rest(self.poll_seconds)
                self._read_points(active)
                for item in list(active):
                    self._watch(item, active)
        except BaseException as error:
            # Cancelled or broken: trials stay RUNNING in the study and are taken up by the next driver.
            for item in [] if lost_connection(error) else active:
                self.launcher.cancel(item.started.handle)
            raise

    def _confirmation(self, spending: Spending) -> Confirmation:
        return Confirmation(
            self.space,
            self.study,
            self.launcher,
            self.warehouse,
            spending,
            self._label,
            self.say,
            self.check,
            self._rest,
            self.parallel,
            self.poll_seconds,
        )

    def _rest(self, seconds: float) -> None:
        self.show()
        self.sleep(seconds)

    # starting

    def _may_start(self, running: int) -> bool:
        return len(counted(self.study)) + running < self.space.budget.trials and not exhausted(self.space, self.study)

    def _unchanged(self) -> bool:
        try:
            self.check()
        except ConfigError:
            return False
        return True

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
            has_run = other.state in (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)
            if other.number != trial.number and has_run and other.user_attrs.get("configuration") == same:
                return other
        return None

    def _start(
        self, trial: optuna.Trial, overrides: Mapping[str, Any], starts: int = 1, points: Sequence[Point] = ()
    ) -> _Active | None:
        """Start a trial; return None if the recipe refuses the configuration, which marks the trial as failed."""
        trial.set_user_attr("configuration", self.space.configuration(overrides))
        trial.set_user_attr("overrides", dict(overrides))
        trial.set_user_attr("handle", None)  # an earlier start's; a death from here on repeats this start's label
        trial.set_user_attr("attempts", starts)
        label, display_name = self._label(f"{trial.number}-attempt{starts}"), shown_name(self._stored(trial))
        try:
            started = self.launcher.start(overrides, seed=self.space.seed, label=label, display_name=display_name)
        except ConfigError as error:
            self._fail(trial, str(error))
            return None
        trial.set_user_attr("run_id", started.run_id)
        trial.set_user_attr("handle", started.handle)
        self._record(trial.number)
        self.say(f"trial {trial.number} start {starts}: run {started.run_id} {self._found(trial)}")
        return _Active(trial, started, list(points))

    def _take_up(self, active: list[_Active]) -> None:
        """Take over an earlier driver's trials: still running, ended in between, or dead."""
        for frozen in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            trial = optuna.Trial(self.study, frozen._trial_id)
            attrs = frozen.user_attrs
            starts = int(attrs.get("attempts", 1))
            if "run_id" not in attrs and len(counted(self.study)) + len(active) >= self.space.budget.trials:
                self._drop(trial, "beyond the budget, and not started")
                continue
            overrides = attrs.get("overrides") or self.space.suggest(trial)
            if attrs.get("handle") is None:  # died between ask and start: parameters and label are the same again
                self._extend(active, self._start(trial, overrides, starts))
                continue
            validations = [Point(*p) for p in attrs.get("points", [])]
            item = _Active(trial, StartedTrial(attrs["handle"], attrs["run_id"]), validations)
            if self.launcher.status(item.started.handle) in ("failed", "cancelled"):
                # It died with the driver, or was stopped with it: no fault of the configuration, so no retry is used up.
                self.say(f"trial {trial.number}: it stopped when the sweep did; starting it again")
                self._extend(active, self._start(trial, overrides, starts + 1, validations))
                continue
            self.say(f"trial {trial.number}: taken up again, run {item.started.run_id}")
            active.append(item)

    @staticmethod
    def _extend(active: list[_Active], fresh: _Active | None) -> None:
        if fresh is not None:
            active.append(fresh)

    def _found(self, trial: optuna.Trial) -> str:
        return ", ".join(f"{key}={value}" for key, value in self.space.found(self._stored(trial)).items())

    def _stored(self, trial: optuna.Trial) -> FrozenTrial:
        return self.study.get_trials(deepcopy=False)[trial.number]

    # watching

    def _watch(self, item: _Active, active: list[_Active]) -> None:
        """Check a trial once; remove it from ``active`` when it is over."""
        status = self.launcher.status(item.started.handle)
        if status == "completed":
            active.remove(item)
            self._finish(item)
        elif status == "cancelled":
            active.remove(item)
            self._fail(item.trial, "its run was cancelled by hand", cancelled=True)
        elif status == "failed":
            active.remove(item)
            self._extend(active, self._again(item))
        elif (why := self._lags(item)) is not None:
            active.remove(item)
            self.launcher.cancel(item.started.handle)
            item.trial.set_user_attr("pruned", why)
            self._tell(item.trial, state=TrialState.PRUNED)
            self.say(f"trial {item.trial.number} pruned: {why}")

    def _lags(self, item: _Active) -> str | None:
        if not self.space.pruning.enabled or not item.points:
            return None
        other_validations = [
            [Point(*p) for p in t.user_attrs.get("points", [])]
            for t in self.study.get_trials(deepcopy=False)
            if t.number != item.trial.number and "duplicate_of" not in t.user_attrs
        ]
        maximize = self.space.objectives[0].direction == "maximize"
        return should_prune(item.points, other_validations, self.space.pruning, maximize=maximize)

    def _read_points(self, active: list[_Active]) -> None:
        by_run = points(self.warehouse, [item.started.run_id for item in active])
        for item in active:
            validations = by_run.get(item.started.run_id, [])
            if validations == item.points:
                continue
            if (
                len(self.study.directions) == 1
            ):  # optuna-dashboard draws these; with several objectives Optuna takes none
                for point in validations[len(item.points) :]:
                    item.trial.report(point.value, point.step)
            item.points = validations
            item.trial.set_user_attr("points", [list(astuple(p)) for p in validations])

    def _finish(self, item: _Active) -> None:
        run_id = item.started.run_id
        self._read_points([item])
        try:
            measurements = objectives(self.warehouse, run_id, self.space)
            excesses = violations(self.warehouse, run_id, self.space)
        except TrainingError as error:
            self._fail(item.trial, str(error))
            return
        item.trial.set_user_attr("stderr", [m.stderr for m in measurements])
        item.trial.set_user_attr("n", [m.n for m in measurements])
        if self.space.constraints:
            item.trial.set_user_attr("violations", excesses)
            for constraint, excess in zip(self.space.constraints, excesses, strict=True):
                item.trial.set_constraint(constraint.query, excess)  # what samplers read
        self._tell(item.trial, values=[m.value for m in measurements])
        values = ", ".join(with_error(m.value, m.stderr) for m in measurements)
        self.say(f"trial {item.trial.number} finished: {values}")

    def _again(self, item: _Active) -> _Active | None:
        attrs = item.trial.user_attrs
        failures = int(attrs.get("failures", 0)) + 1
        item.trial.set_user_attr("failures", failures)
        if failures > self.space.retries:
            self._fail(item.trial, f"its run failed {failures} times")
            return None
        if not self._unchanged():
            return None  # it stays RUNNING in the study
        self.say(f"trial {item.trial.number}: its run failed; starting it again")
        return self._start(item.trial, attrs["overrides"], int(attrs.get("attempts", 1)) + 1, item.points)

    def _label(self, suffix: str) -> str:
        began = int(float(self.study.user_attrs["began"]))
        return f"{self.space.name}-{began}-{suffix}"

    def _fail(self, trial: optuna.Trial, why: str, *, cancelled: bool = False) -> None:
        trial.set_user_attr("failed", why)
        trial.set_user_attr("cancelled", cancelled)
        self._tell(trial, state=TrialState.FAIL)
        self.say(f"trial {trial.number} failed: {why}")

    def _stop_all(self, active: list[_Active], spent: str) -> None:
        self.say(f"Budget spent: {spent}. Stopping {len(active)} running trial(s).")
        for item in active:
            self.launcher.cancel(item.started.handle)
            self._drop(item.trial, f"stopped by the budget: {spent}")

    def _drop(self, trial: optuna.Trial, why: str) -> None:
        """End a trial without a result. With a larger budget its configuration comes first, and its run continues."""
        trial.set_user_attr("stopped", why)
        if params := params_of(self._stored(trial)):
            self.study.enqueue_trial(params)
        self._tell(trial, state=TrialState.FAIL)

    # telling

    def _tell(self, trial: optuna.Trial, values: list[float] | None = None, state: TrialState | None = None) -> None:
        self.study.tell(trial, values, state=state)
        self._record(trial.number)

    def _record_finished(self) -> None:
        """Write missing rows: an earlier driver may have died between telling the study and writing the row."""
        for trial in self.study.get_trials(deepcopy=False, states=tuple(_STATES)):
            self._record(trial.number)

    def _record(self, number: int) -> None:
        trial = self.study.get_trials(deepcopy=False)[number]
        attrs = trial.user_attrs
        if "configuration" not in attrs:
            return  # a repeat of a known configuration: no run, no row
        values = trial.values if trial.state == TrialState.COMPLETE else None
        fields = {"values": values, **{key: attrs[key] for key in _KEPT if key in attrs}}
        record_trial(
            self.warehouse,
            TrialRecord(
                study=self.study.study_name,
                number=trial.number,
                run_id=attrs.get("run_id"),
                state=_STATES.get(trial.state, "running"),
                value=values[0] if values else None,
                params=params_of(trial),
                fields=fields,
            ),
        )


_KEPT = ("stderr", "n", "attempts", "pruned", "failed", "stopped", "violations")
