"""What a sweep has spent: hours, GPU-hours and money, over all its trials, their retries and the confirmation."""

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
"""How often the hours are noted in the study: a killed driver forgets no more than this."""


@dataclass(slots=True)
class Spending:
    """Hours count while a driver is at work, so a sweep that was down for a night has its night still before it."""

    space: Space
    study: optuna.Study
    launcher: Launcher
    warehouse: Path
    now: Callable[[], float]
    _since: float = 0.0
    _before: float = 0.0
    _kept: float = 0.0

    def begin(self) -> None:
        """A driver sets to work."""
        self._since = self._kept = self.now()
        self._before = float(self.study.user_attrs.get("hours", 0.0))

    def search_share(self) -> float:
        """The part of hours, GPU-hours and money that the search may use; the rest is kept back for fresh seeds."""
        confirm = self.space.confirm
        return 1.0 - confirm.reserve if confirm.top and confirm.seeds else 1.0

    def spent(self, share: float = 1.0) -> str | None:
        """A sentence part naming the first limit that is reached, None while there is something left."""
        budget, time = self.space.budget, self.now()
        hours = self._before + (time - self._since) / 3600
        if time - self._kept >= KEEP_SECONDS:
            self.study.set_user_attr("hours", hours)
            self._kept = time
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
            used = sum(self.launcher.gpu_hours(run_id) for run_id in runs)
            if used >= budget.gpu_hours * share:
                return f"{number(used)} of {budget.gpu_hours:g} GPU-hours"
        return None

    def end(self) -> None:
        """The driver stops: note the hours."""
        self.study.set_user_attr("hours", self._before + (self.now() - self._since) / 3600)

    def runs(self) -> list[str]:
        """Every run that this sweep has started, each once."""
        trials = [t.user_attrs.get("run_id") for t in self.study.get_trials(deepcopy=False)]
        fresh = [entry.get("run_id") for entry in self.study.user_attrs.get("confirming", {}).values()]
        return sorted({run_id for run_id in (*trials, *fresh) if run_id})
