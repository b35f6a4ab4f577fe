"""Results of a sweep: parameter importance, the winning configuration, and its confirmation on fresh seeds.

Importance is fANOVA over finished trials. Pictures are Optuna's own matplotlib plots, written as PNG.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from analysis.drawing import drawing
from sweeps.parameters import params_of
from sweeps.space import Space
from sweeps.study import counted, planned, ranked
from userrl_core.errors import ConfigError
from userrl_core.number_format import number
from userrl_core.replaced_file import replacing

MIN_TRIALS = 4
"""Number of finished trials below which no importance is given."""


@dataclass(frozen=True, slots=True)
class Winner:
    """The best configuration.

    overrides: all that its run had. fresh: first-objective values on the confirmation seeds, in their order. chosen: the overrides
    that the sweep chose. failed: number of fresh seeds without a value. seeds: number of fresh seeds that it should have. among:
    number of configurations between whose fresh means it was chosen.
    """

    trial: int
    overrides: dict[str, Any]
    value: float
    fresh: list[float]
    chosen: dict[str, Any] = field(default_factory=dict)
    failed: int = 0
    seeds: int = 0
    among: int = 1

    @property
    def claim(self) -> str:
        """The sentence for reports: the fresh seeds' mean, never the selected trial's own value alone."""
        count = max(len(self.fresh) + self.failed, self.seeds)
        if not self.fresh:
            failures = f" ({self.failed} of {count} failed)" if self.failed else ""
            return (
                f"trial {self.trial}: {number(self.value)} on its own seed; not yet confirmed on fresh seeds{failures}"
            )
        failures = f", {self.failed} failed" if self.failed else ""
        deviation = f" (standard deviation {number(stdev(self.fresh))})" if len(self.fresh) > 1 else ""
        seeds = "" if len(self.fresh) == count else f"{len(self.fresh)} of "
        seeds += f"{count} fresh seed{'s' * (count > 1)}"
        choice = f"; the best mean of {self.among} confirmed trials" if self.among > 1 else ""
        return f"trial {self.trial}: {number(fmean(self.fresh))} over {seeds}{failures}{deviation}{choice}"


def winner(space: Space, study: optuna.Study) -> Winner:
    """Return the best confirmed configuration, or the best so far. Raises ConfigError if no trial has finished.

    Only means over equal numbers of fresh seeds are compared: a leader with fewer ranks after those with more.
    """
    order = ranked(study)
    if not order:
        raise ConfigError(
            "sweep.no_value", f"Sweep '{space.name}' has no finished trial yet. See `userrl sweep status {space.name}`."
        )
    leaders = [_winner(space, study, trial) for trial in order[: max(1, space.confirm.top)]]
    most_seeds = max(len(leader.fresh) for leader in leaders)
    if not most_seeds:
        return leaders[0]
    compared = [leader for leader in leaders if len(leader.fresh) == most_seeds]
    sign = 1.0 if space.objectives[0].direction == "maximize" else -1.0
    return replace(max(compared, key=lambda leader: sign * fmean(leader.fresh)), among=len(compared))


def _winner(space: Space, study: optuna.Study, trial: FrozenTrial) -> Winner:
    reruns = [row["values"] for row in study.user_attrs.get("confirmed", []) if row["trial"] == trial.number]
    fresh = [float(values[0]) for values in reruns if values]
    overrides, seeds = dict(trial.user_attrs["overrides"]), len(space.confirm.seeds)
    value, failed = float(trial.values[0]), len(reruns) - len(fresh)
    return Winner(trial.number, overrides, value, fresh, space.found(trial), failed, seeds)


def importance(study: optuna.Study) -> dict[str, float]:
    """Return each varied parameter's share of the first objective's variance (fANOVA).

    Empty below 4 finished trials, below two per varied parameter, and if no parameter or no value varied.
    """
    finished = _finished(study)
    varied = _varied(finished)
    if not varied or len(finished) < max(MIN_TRIALS, 2 * len(varied)) or len({t.values[0] for t in finished}) < 2:
        return {}
    return optuna.importance.get_param_importances(
        _drawn(study, varied), evaluator=_evaluator(), target=_first_value(study)
    )


def _evaluator() -> optuna.importance.FanovaImportanceEvaluator:
    return optuna.importance.FanovaImportanceEvaluator(seed=0)


def _first_value(study: optuna.Study) -> Any:
    return (lambda t: t.values[0]) if len(study.directions) > 1 else None


def _finished(study: optuna.Study) -> list[FrozenTrial]:
    return [t for t in counted(study) if t.state == TrialState.COMPLETE]


def _varied(finished: Sequence[FrozenTrial]) -> list[str]:
    """Return the parameters that every finished trial has, and not all with one value."""
    params = [params_of(trial) for trial in finished]
    names = [name for name in (params[0] if params else {}) if all(name in row for row in params)]
    return [name for name in names if len({row[name] for row in params}) > 1]


def _drawn(study: optuna.Study, names: Sequence[str] | None = None) -> optuna.Study:
    """Return the finished trials as a study in memory, in which each parameter has one distribution.

    Optuna compares only parameters of equal distributions, and a grid that was extended has several. names: None for all.
    """
    finished = _finished(study)
    params = [{k: v for k, v in params_of(t).items() if names is None or k in names} for t in finished]
    stored = {name: d for trial in finished for name, d in trial.distributions.items()}
    distributions = {
        name: _distribution(stored.get(name), [row[name] for row in params if name in row])
        for name in dict.fromkeys(name for row in params for name in row)
    }
    drawn = optuna.create_study(directions=study.directions)
    for trial, row in zip(finished, params, strict=True):
        drawn.add_trial(
            optuna.trial.create_trial(
                values=trial.values,
                params=row,
                distributions={name: distributions[name] for name in row},
                system_attrs=trial.system_attrs,
            )
        )
    return drawn


def _distribution(stored: BaseDistribution | None, labels: Sequence[Any]) -> BaseDistribution:
    """Return a distribution that holds all labels: on the stored one's scale if they are numbers."""
    if isinstance(stored, (FloatDistribution, IntDistribution)):
        return type(stored)(low=min(labels), high=max(labels), log=stored.log)
    return CategoricalDistribution(list(dict.fromkeys(labels)))


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
                "params": params_of(trial),
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
    if not _finished(study):
        return []
    several, target, drawn = len(study.directions) > 1, _first_value(study), _drawn(study)
    names = [objective.query for objective in space.objectives]
    plots: dict[str, Callable[[], Any]] = {
        "parallel": lambda: plots_of.plot_parallel_coordinate(drawn, target=target, target_name=names[0]),
        "slice": lambda: plots_of.plot_slice(drawn, target=target, target_name=names[0]),
    }
    if shares := importance(study):
        varied = _drawn(study, list(shares))
        plots["importance"] = lambda: plots_of.plot_param_importances(
            varied, evaluator=_evaluator(), target=target, target_name=names[0]
        )
    if several:
        plots["pareto"] = lambda: plots_of.plot_pareto_front(drawn, target_names=names)
    paths = []
    with warnings.catch_warnings(), drawing():
        warnings.simplefilter("ignore")  # Optuna marks its matplotlib backend as experimental
        for name, plot in plots.items():
            plot()
            if name == "parallel":  # each parameter's axis would draw a grid over the lines
                for axes in pyplot.gcf().axes:
                    axes.grid(visible=False)
            path = folder / f"{name}.png"
            with replacing(path) as file:
                pyplot.gcf().savefig(file, format="png", dpi=110, bbox_inches="tight")
            pyplot.close("all")
            paths.append(path)
    return paths
