"""A sweep's Optuna study: its storage and sampler, the trials that count, and their ranking.

Storage is a journal file in the sweep's folder by default (one machine, any number of processes) or any Optuna RDB URL.
Optuna keeps the search. Every value it gets comes from the warehouse, and each trial has its run id.
"""

from __future__ import annotations

import itertools
import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import optuna
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from sweeps.journal import open_journal
from sweeps.parameters import params_of
from sweeps.space import Space
from sweeps.storage import hidden, patient_storage
from userrl_core.errors import ConfigError, first_line
from userrl_core.seeding import derive_seed

SHOWN = 80
"""Number of characters of a value in a trial's displayed name."""

COUNTED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


def open_study(space: Space, folder: Path, storage: str | None = None, *, queue: bool = True) -> optuna.Study:
    """Return the study of this space, created or continued.

    folder: the sweep's own folder (journal file). storage: an Optuna RDB URL instead of the journal. queue: whether
    to queue a grid's points (`queue_points`); off for readers, since two processes that queue at once would queue a point
    twice. Raises ConfigError if the storage cannot be opened, or if the journal is damaged.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = _loaded(space, _database(storage) if storage is not None else open_journal(folder / "journal.log"))
    _check_entries(study)
    study.sampler = _sampler(space, len(study.get_trials(deepcopy=False)))
    if queue:
        queue_points(space, study)
    return study


def queue_points(space: Space, study: optuna.Study) -> None:
    """Name the objectives in a study, and queue the points of a grid that it does not have yet."""
    _name_objectives(space, study)
    if space.sampler.name == "grid":
        _enqueue_grid(space, study)


def _loaded(space: Space, storage: BaseStorage) -> optuna.Study:
    """Return the stored study, or a new one. Loading writes nothing, not even into a journal that another process writes."""
    try:
        return optuna.load_study(study_name=space.name, storage=storage)
    except KeyError:
        directions = [objective.direction for objective in space.objectives]
        return optuna.create_study(study_name=space.name, storage=storage, directions=directions, load_if_exists=True)


def _check_entries(study: optuna.Study) -> None:
    """Raise ConfigError for a result without what every result has: a line without a checksum may have lost it."""
    confirmed = study.user_attrs.get("confirmed", [])
    finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    damage = [
        f"trial {t.number} has no overrides" for t in finished if not {"overrides", "duplicate_of"} & set(t.user_attrs)
    ]
    damage += ["a confirmation is incomplete" for row in confirmed if not {"trial", "seed", "values"} <= set(row)]
    if damage:
        raise ConfigError(
            "sweep.damaged_journal",
            f"The study of sweep '{study.study_name}' is damaged: {damage[0]}. Restore its journal or its database from a copy, or "
            "begin the next edition of the sweep with `--fresh`.",
        )


def _database(storage: str) -> BaseStorage:
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return optuna.storages.get_storage(patient_storage(storage))
    except (SQLAlchemyError, ImportError, ValueError, optuna.exceptions.OptunaError) as error:
        reason = first_line(error).rstrip(".")
        # Not `from error`: a traceback could repeat the address as it was given.
        raise ConfigError(
            "sweep.storage", f"The study's storage {hidden(storage)} cannot be opened: {reason}."
        ) from None


def _sampler(space: Space, trials: int = 0) -> BaseSampler:
    """Return the sampler of a study with so many trials. A resumed sampler with its first seed would repeat its proposals."""
    sampler_name, first_seed, startup = space.sampler.name, space.sampler.seed, space.sampler.startup
    seed = derive_seed("sampler", first_seed, trials) % 2**32 if trials else first_seed
    makers: dict[str, Callable[[], BaseSampler]] = {
        "tpe": lambda: optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup, constant_liar=True),
        "cmaes": lambda: optuna.samplers.CmaEsSampler(seed=seed, n_startup_trials=startup),
        "gp": lambda: optuna.samplers.GPSampler(seed=seed, n_startup_trials=startup),
        # The study stores the place in the sequence of this seed.
        "qmc": lambda: optuna.samplers.QMCSampler(
            seed=first_seed, independent_sampler=optuna.samplers.RandomSampler(seed=seed)
        ),
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
    points = {_point(params_of(trial)) for trial in study.get_trials(deepcopy=False)}
    for params in _grid(space):
        if _point(params) not in points:
            study.enqueue_trial(params)
            points.add(_point(params))


def _grid(space: Space) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*(parameter.labels() for parameter in space.parameters.values())):
        yield dict(zip(space.parameters, values, strict=True))


def _point(params: Mapping[str, Any]) -> str:
    return json.dumps(params, sort_keys=True)


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
    return min(space.budget.trials, points(space)) if space.sampler.name == "grid" else space.budget.trials


def points(space: Space) -> int:
    """Return the number of points of a space's grid. Raises ConfigError if it has no end."""
    return math.prod(len(parameter.labels()) for parameter in space.parameters.values())


def first_trials(space: Space) -> list[dict[str, Any]]:
    """Return the overrides of as many trials as the sweep has, as the sampler proposes them before it knows any value."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        directions=[objective.direction for objective in space.objectives], sampler=_sampler(space)
    )
    if space.sampler.name == "grid":
        _enqueue_grid(space, study)
    return [space.suggest(study.ask()) for _ in range(planned(space))]


def next_trials(space: Space, study: optuna.Study | None) -> list[dict[str, Any]]:
    """Return the overrides of the next trials as far as they are known: of a grid all, of a new study those before a model.

    study: None for a sweep that has not begun.
    """
    trials = study.get_trials(deepcopy=False) if study is not None else []
    if space.sampler.name == "grid":
        started = {_point(params_of(trial)) for trial in trials if trial.state != TrialState.WAITING}
        left = planned(space) - (len(counted(study)) if study is not None else 0)
        rest = [params for params in _grid(space) if _point(params) not in started][: max(0, left)]
        return [space.with_common(params) for params in rest]
    return [] if trials else first_trials(space)[: space.sampler.startup]


def progress(space: Space, study: optuna.Study) -> str:
    """Return the progress, such as ``3 of 4 trials``. The total exceeds the plan if the budget was cut later."""
    counted_trials = len(counted(study))
    return f"{counted_trials} of {max(counted_trials, planned(space))} trials"


def shown_name(trial: FrozenTrial) -> str:
    """Return a trial's displayed name, such as ``gamma=0.6, schedule=6-10-16``."""
    values = ", ".join(f"{name}={_short(value)}" for name, value in params_of(trial).items())
    return values or f"trial {trial.number}"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


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
