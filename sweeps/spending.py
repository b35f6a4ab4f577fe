"""The spending of a sweep: hours, GPU-hours and money of all its trials, their retries and the confirmation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import optuna

from sweeps.launcher import Launcher
from sweeps.objective import money
from sweeps.space import Space
from userrl_core.number_format import number

KEEP_SECONDS = 60.0
"""Seconds between two records of the hours in the study. A killed driver loses no more than this."""


@dataclass(slots=True)
class Spending:
    """The spending of one driver. Hours count only while it works; a night of downtime uses none."""

    space: Space
    study: optuna.Study
    launcher: Launcher
    warehouse: Path
    now: Callable[[], float]
    _since: float = 0.0
    _before: float = 0.0
    _saved_at: float = 0.0

    def begin(self) -> None:
        """Start the clock of a driver."""
        self._since = self._saved_at = self.now()
        self._before = float(self.study.user_attrs.get("hours", 0.0))

    def search_share(self) -> float:
        """Return the search's share of hours, GPU-hours and money. The rest is reserved for fresh seeds."""
        confirm = self.space.confirm
        return 1.0 - confirm.reserve if confirm.top and confirm.seeds else 1.0

    def spent(self, share: float = 1.0) -> str | None:
        """Return the first reached limit as part of a sentence; None while the budget lasts."""
        budget, time = self.space.budget, self.now()
        hours = self._before + (time - self._since) / 3600
        if time - self._saved_at >= KEEP_SECONDS:
            self.study.set_user_attr("hours", hours)
            self._saved_at = time
        if budget.hours is not None and hours >= budget.hours * share:
            return f"{hours:.2f} of {budget.hours:g} hours"
        if budget.money is None and budget.gpu_hours is None:
            return None
        runs = self.runs()
        if budget.money is not None:
            dollars, limit = money(self.warehouse, runs), budget.money * share
            if dollars > limit or dollars >= limit > 0:  # a budget of 0 allows calls that cost nothing
                return f"{dollars:.2f} of {budget.money:g} dollars for model calls"
        if budget.gpu_hours is not None:
            gpu_hours_used = sum(self.launcher.gpu_hours(run_id) for run_id in runs)
            if gpu_hours_used >= budget.gpu_hours * share:
                return f"{number(gpu_hours_used)} of {budget.gpu_hours:g} GPU-hours"
        return None

    def end(self) -> None:
        """Stop the clock and record the hours."""
        self.study.set_user_attr("hours", self._before + (self.now() - self._since) / 3600)

    def runs(self) -> list[str]:
        """Return every run that this sweep has started, each once."""
        trials = [t.user_attrs.get("run_id") for t in self.study.get_trials(deepcopy=False)]
        fresh = [entry.get("run_id") for entry in self.study.user_attrs.get("confirming", {}).values()]
        return sorted({run_id for run_id in (*trials, *fresh) if run_id})
