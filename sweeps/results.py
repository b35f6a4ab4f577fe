"""Results of a sweep: parameter importance, the winning configuration, and its confirmation on fresh seeds.

Importance is fANOVA over finished trials (it needs two or more, and a score that varies). Pictures are Optuna's own
matplotlib plots, written as PNG.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from sweeps.space import Space
from sweeps.study import counted, planned, ranked
from userrl_core.errors import ConfigError
from userrl_core.number_format import number


@dataclass(frozen=True, slots=True)
class Winner:
    """The best configuration. fresh: first-objective values on the confirmation seeds, in their order."""

    trial: int
    overrides: dict[str, Any]
    value: float
    fresh: list[float]

    @property
    def claim(self) -> str:
        """The sentence for reports: the fresh seeds' mean, never the selected trial's own value alone."""
        if not self.fresh:
            return f"trial {self.trial}: {number(self.value)} on its own seed; not yet confirmed on fresh seeds"
        spread = f" ± {number(stdev(self.fresh))}" if len(self.fresh) > 1 else ""
        seeds = f"{len(self.fresh)} fresh seed{'s' * (len(self.fresh) > 1)}"
        return f"trial {self.trial}: {number(fmean(self.fresh))}{spread} over {seeds}"


def winner(space: Space, study: optuna.Study) -> Winner:
    """Return the best confirmed configuration, or the best so far. Raises ConfigError if no trial has finished."""
    order = ranked(study)
    if not order:
        raise ConfigError(
            "sweep.no_value", f"Sweep '{space.name}' has no finished trial yet. See `userrl sweep status {space.name}`."
        )
    leaders = [_winner(study, trial) for trial in order[: max(1, space.confirm.top)]]
    confirmed = [w for w in leaders if w.fresh]
    if not confirmed:
        return leaders[0]
    sign = 1.0 if space.objectives[0].direction == "maximize" else -1.0
    return max(confirmed, key=lambda w: sign * fmean(w.fresh))


def _winner(study: optuna.Study, trial: FrozenTrial) -> Winner:
    fresh = [
        float(row["values"][0])
        for row in study.user_attrs.get("confirmed", [])
        if row["trial"] == trial.number and row["values"]
    ]
    return Winner(trial.number, dict(trial.user_attrs["overrides"]), float(trial.values[0]), fresh)


def importance(study: optuna.Study) -> dict[str, float]:
    """Return each parameter's share of the first objective's variance (fANOVA); empty if it cannot be computed."""
    finished = [t for t in counted(study) if t.state == TrialState.COMPLETE]
    if (
        len(finished) < 2
        or len({t.values[0] for t in finished}) < 2
        or len({k for t in finished for k in t.params}) < 1
    ):
        return {}
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    target = (lambda t: t.values[0]) if len(study.directions) > 1 else None
    shares: dict[str, float] = optuna.importance.get_param_importances(study, evaluator=evaluator, target=target)
    return shares


def table(space: Space, study: optuna.Study, *, at_work: bool) -> list[dict[str, Any]]:
    """Return one row per trial, in order: state, values with standard error, run, attempts, reason of a stop.

    at_work: whether a driver is running; without one, running trials count as cancelled. Grid points beyond the
    budget are left out.
    """
    rows: list[dict[str, Any]] = []
    trials = study.get_trials(deepcopy=False)
    running = sum(trial.state == TrialState.RUNNING for trial in trials)
    waiting_trials = planned(space) - len(counted(study)) - running
    for trial in trials:
        attrs, state = trial.user_attrs, trial.state.name.lower()
        if trial.state == TrialState.WAITING:
            waiting_trials -= 1
            if waiting_trials < 0:
                continue
        if attrs.get("cancelled") or (trial.state == TrialState.RUNNING and not at_work):
            state = "cancelled"
        if "duplicate_of" in attrs:
            state = "repeat"  # Optuna's own state is "fail" where the other trial had no value yet
        points = attrs.get("points")
        rows.append(
            {
                "trial": trial.number,
                "state": state,
                "values": trial.values,
                "so_far": points[-1][-1] if points and not trial.values else None,
                "stderr": attrs.get("stderr"),
                "params": trial.params or trial.system_attrs.get("fixed_params", {}),
                "run_id": attrs.get("run_id"),
                "handle": attrs.get("handle"),
                "attempts": attrs.get("attempts", 0),
                "note": attrs.get("pruned") or attrs.get("failed") or attrs.get("stopped") or _repeat(attrs),
            }
        )
    return rows


def _repeat(attrs: dict[str, Any]) -> str | None:
    return f"same configuration as trial {attrs['duplicate_of']}" if "duplicate_of" in attrs else None


def draw(space: Space, study: optuna.Study, folder: Path) -> list[Path]:
    """Draw importance, parallel coordinates, slice and (with several objectives) Pareto plots as PNG, as far as possible."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from optuna.visualization import matplotlib as plots_of

    folder.mkdir(parents=True, exist_ok=True)
    several = len(study.directions) > 1
    target: Any = (lambda t: t.values[0]) if several else None
    names = [objective.query for objective in space.objectives]
    plots: dict[str, Callable[[], Any]] = {
        "parallel": lambda: plots_of.plot_parallel_coordinate(study, target=target, target_name=names[0]),
        "slice": lambda: plots_of.plot_slice(study, target=target, target_name=names[0]),
    }
    if importance(study):
        plots["importance"] = lambda: plots_of.plot_param_importances(study, target=target, target_name=names[0])
    if several:
        plots["pareto"] = lambda: plots_of.plot_pareto_front(study, target_names=names)
    if not any(t.state == TrialState.COMPLETE for t in study.get_trials(deepcopy=False)):
        return []
    paths = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna marks its matplotlib backend as experimental
        for name, plot in plots.items():
            plot()
            path = folder / f"{name}.png"
            pyplot.gcf().savefig(path, dpi=110, bbox_inches="tight")
            pyplot.close("all")
            paths.append(path)
    return paths
