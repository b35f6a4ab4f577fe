"""Confirmation of the leading configurations on fresh seeds. Only their mean may be reported, not the selected
trial's own value.

Like trials, a confirmation can resume after any crash: each start is recorded in the study before it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial

from sweeps.launcher import Launcher, StartedTrial
from sweeps.objective import objectives
from sweeps.space import Space
from sweeps.spending import Spending
from sweeps.storage import lost_connection
from sweeps.study import ranked, shown_name
from userrl_core.errors import UserRLError


@dataclass(slots=True)
class _Rerun:
    trial: FrozenTrial
    seed: int
    starts: int = 0
    failures: int = 0
    started: StartedTrial | None = None

    @property
    def key(self) -> str:
        return f"{self.trial.number}-seed{self.seed}"


@dataclass(slots=True)
class Confirmation:
    """Re-runs of the best configurations, at most ``parallel`` at once, within the budget reserved for them."""

    space: Space
    study: optuna.Study
    launcher: Launcher
    warehouse: Path
    spending: Spending
    label: Callable[[str], str]
    say: Callable[[str], None]
    check: Callable[[], object]
    sleep: Callable[[float], None]
    parallel: int
    poll_seconds: float
    _running: list[_Rerun] = field(default_factory=list)

    def run(self) -> None:
        """Run until every leader has its seeds, or the budget is spent."""
        waiting_reruns = self._waiting()
        try:
            while waiting_reruns or self._running:
                spent = self.spending.spent()
                if spent:
                    self.say(f"Budget spent: {spent}. The best is not confirmed on every fresh seed.")
                    self._cancel()
                    return
                while waiting_reruns and len(self._running) < self.parallel:
                    self._begin(waiting_reruns.pop(0))
                self.sleep(self.poll_seconds)
                waiting_reruns += self._look()
        except BaseException as error:  # cancelled or broken: the next driver takes these up again
            if not lost_connection(error):
                self._cancel()
            raise

    def _waiting(self) -> list[_Rerun]:
        pairs = [(t, seed) for t in ranked(self.study)[: self.space.confirm.top] for seed in self.space.confirm.seeds]
        confirmed = {(row["trial"], row["seed"]) for row in self.study.user_attrs.get("confirmed", [])}
        reruns = [_Rerun(trial, seed) for trial, seed in pairs if (trial.number, seed) not in confirmed]
        for rerun in reruns:
            entry = self._kept().get(rerun.key, {})
            rerun.starts, rerun.failures = int(entry.get("attempt", 0)), int(entry.get("failures", 0))
            if "handle" in entry and self.launcher.status(entry["handle"]) not in ("failed", "cancelled"):
                rerun.started = StartedTrial(entry["handle"], entry["run_id"])
                self._running.append(rerun)
        return [rerun for rerun in reruns if rerun.started is None]

    def _begin(self, rerun: _Rerun) -> None:
        self.check()
        entry = self._kept().get(rerun.key, {})
        if (
            "handle" in entry or rerun.starts == 0
        ):  # else an earlier driver died before its start: the label is the same
            rerun.starts, rerun.started = rerun.starts + 1, None
            self._keep(rerun)
        overrides = rerun.trial.user_attrs["overrides"]
        label = self.label(f"{rerun.key}-attempt{rerun.starts}")
        display_name = f"{shown_name(rerun.trial)}, fresh seed {rerun.seed}"
        rerun.started = self.launcher.start(overrides, seed=rerun.seed, label=label, display_name=display_name)
        self._keep(rerun)
        self._running.append(rerun)
        self.say(f"trial {rerun.trial.number} again on fresh seed {rerun.seed}: run {rerun.started.run_id}")

    def _look(self) -> list[_Rerun]:
        again = []
        for rerun in list(self._running):
            assert rerun.started is not None
            status = self.launcher.status(rerun.started.handle)
            if status == "running":
                continue
            self._running.remove(rerun)
            rerun.failures += status == "failed"
            if status == "failed" and rerun.failures <= self.space.retries:
                again.append(rerun)
            elif status == "cancelled":
                self.say(
                    f"trial {rerun.trial.number} on fresh seed {rerun.seed}: stopped by hand, runs at the next start"
                )
            else:
                self._finish(rerun, completed=status == "completed")
        return again

    def _finish(self, rerun: _Rerun, *, completed: bool) -> None:
        assert rerun.started is not None
        row: dict[str, Any] = {"trial": rerun.trial.number, "seed": rerun.seed, "run_id": rerun.started.run_id}
        row["values"] = None
        if completed:
            try:
                row["values"] = [m.value for m in objectives(self.warehouse, rerun.started.run_id, self.space)]
            except UserRLError as error:
                row["failed"] = str(error)
        self.study.set_user_attr("confirmed", [*self.study.user_attrs.get("confirmed", []), row])
        self.say(f"trial {rerun.trial.number} on fresh seed {rerun.seed}: {row['values'] or 'failed'}")

    def _cancel(self) -> None:
        for rerun in self._running:
            if rerun.started is not None:
                self.launcher.cancel(rerun.started.handle)

    def _kept(self) -> dict[str, dict[str, Any]]:
        entries: dict[str, dict[str, Any]] = self.study.user_attrs.get("confirming", {})
        return entries

    def _keep(self, rerun: _Rerun) -> None:
        entry: dict[str, Any] = {"attempt": rerun.starts, "failures": rerun.failures}
        if rerun.started is not None:
            entry |= {"handle": rerun.started.handle, "run_id": rerun.started.run_id}
        self.study.set_user_attr("confirming", {**self._kept(), rerun.key: entry})
