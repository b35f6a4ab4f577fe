"""A sweep's Optuna study: its storage and sampler, the trials that count, and their ranking.

Storage is a journal file in the sweep's folder by default (one machine, any number of processes) or any Optuna RDB URL.
Optuna keeps the search. Every value it gets comes from the warehouse, and each trial has its run id.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState

from sweeps.space import Space
from sweeps.storage import hidden, patient_storage
from userrl_core.errors import ConfigError

COUNTED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


def open_study(space: Space, folder: Path, storage: str | None = None, *, queue: bool = True) -> optuna.Study:
    """Return the study of this space, created or continued.

    folder: the sweep's own folder (journal file). storage: an Optuna RDB URL instead of the journal. queue: whether
    to queue a grid's points; off for readers, since two processes that queue at once would queue a point twice.
    Raises ConfigError if the stored study has other objectives than the space, or if the storage cannot be opened.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    where: Any
    if storage is not None:
        where = _database(storage)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        journal = folder / "journal.log"
        # The symlink lock, Optuna's default, is left behind by kill -9; an O_EXCL lock with a grace period is taken over.
        where = JournalStorage(JournalFileBackend(str(journal), lock_obj=JournalFileOpenLock(str(journal))))
    directions = [objective.direction for objective in space.objectives]
    study = optuna.create_study(
        storage=where, study_name=space.name, directions=directions, load_if_exists=True, sampler=_sampler(space)
    )
    if [d.name.lower() for d in study.directions] != directions:
        raise ConfigError(
            "sweep.storage",
            f"Sweep '{space.name}' was started with {len(study.directions)} objective(s) or other directions. "
            "Rename the space, or delete the old study.",
        )
    if queue:
        _name_objectives(space, study)
    if queue and space.sampler.name == "grid" and "grid" not in study.user_attrs:
        _enqueue_grid(space, study)
    return study


def _database(storage: str) -> BaseStorage:
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return optuna.storages.get_storage(patient_storage(storage))
    except (SQLAlchemyError, ImportError, ValueError, optuna.exceptions.OptunaError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        # Not `from error`: a traceback could repeat the address as it was given.
        raise ConfigError(
            "sweep.storage", f"The study's storage {hidden(storage)} cannot be opened: {reason}."
        ) from None


def _sampler(space: Space) -> BaseSampler:
    sampler_name, seed, startup = space.sampler.name, space.sampler.seed, space.sampler.startup
    makers: dict[str, Callable[[], BaseSampler]] = {
        "tpe": lambda: optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup, constant_liar=True),
        "cmaes": lambda: optuna.samplers.CmaEsSampler(seed=seed, n_startup_trials=startup),
        "gp": lambda: optuna.samplers.GPSampler(seed=seed, n_startup_trials=startup),
        "qmc": lambda: optuna.samplers.QMCSampler(seed=seed),
        "nsga2": lambda: optuna.samplers.NSGAIISampler(seed=seed),
        # The grid is enqueued as fixed trials, which survives a resume; the sampler fills nothing in.
        "grid": lambda: optuna.samplers.RandomSampler(seed=seed),
        "random": lambda: optuna.samplers.RandomSampler(seed=seed),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # QMC carries the mark since years
        return makers[sampler_name]()


def _name_objectives(space: Space, study: optuna.Study) -> None:
    names = [objective.query for objective in space.objectives]
    if study.metric_names != names:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.set_metric_names(names)


def _enqueue_grid(space: Space, study: optuna.Study) -> None:
    names = list(space.parameters)
    for values in itertools.product(*(space.parameters[name].labels() for name in names)):
        # One that was killed in here left a part of the grid; what is there is not queued again.
        study.enqueue_trial(dict(zip(names, values, strict=True)), skip_if_exists=True)
    study.set_user_attr("grid", True)


def counted(study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials that used budget: finished, pruned, or failed for good. Repeats, and trials stopped by the
    budget, do not count.
    """
    return [
        t
        for t in study.get_trials(deepcopy=False, states=COUNTED)
        if "duplicate_of" not in t.user_attrs and (t.state != TrialState.FAIL or "failed" in t.user_attrs)
    ]


def planned(space: Space) -> int:
    """Return the number of trials of the sweep: the budget's, limited by the points of its grid."""
    if space.sampler.name != "grid":
        return space.budget.trials
    points = math.prod(len(parameter.labels()) for parameter in space.parameters.values())
    return min(space.budget.trials, points)


def first_trials(space: Space) -> list[dict[str, Any]]:
    """Return the overrides of as many trials as the sweep has, as the sampler proposes them before it knows any value."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        directions=[objective.direction for objective in space.objectives], sampler=_sampler(space)
    )
    if space.sampler.name == "grid":
        _enqueue_grid(space, study)
    return [space.suggest(study.ask()) for _ in range(planned(space))]


def progress(space: Space, study: optuna.Study) -> str:
    """Return the progress, such as ``3 of 4 trials``. The total exceeds the plan if the budget was cut later."""
    counted_trials = len(counted(study))
    return f"{counted_trials} of {max(counted_trials, planned(space))} trials"


def shown_name(trial: optuna.Trial | FrozenTrial) -> str:
    """Return a trial's displayed name, such as ``gamma=0.6, schedule=6-10-16``."""
    return ", ".join(f"{name}={value}" for name, value in trial.params.items()) or f"trial {trial.number}"


def exhausted(space: Space, study: optuna.Study) -> bool:
    """Return whether a grid sweep has started every point of its grid."""
    return space.sampler.name == "grid" and not study.get_trials(deepcopy=False, states=(TrialState.WAITING,))


def ranked(study: optuna.Study) -> list[FrozenTrial]:
    """Return finished feasible trials, best first by the first objective. With several objectives the Pareto front leads."""
    finished = [
        t
        for t in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if "duplicate_of" not in t.user_attrs and all(v <= 0 for v in t.user_attrs.get("violations", []))
    ]
    front = {t.number for t in study.best_trials} if len(study.directions) > 1 and finished else set()
    sign = -1.0 if study.directions[0] == optuna.study.StudyDirection.MAXIMIZE else 1.0
    return sorted(finished, key=lambda t: (t.number not in front if front else False, sign * t.values[0], t.number))
