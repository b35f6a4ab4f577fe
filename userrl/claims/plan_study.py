"""``userrl plan-study`` in Python: the cost of claims, cross-play studies and sweeps before they start.

Runs that several claims share are counted once. Runs start in the order in which the study starts them, each on the worker that
is free first. A cross-play study plays its evaluations one after another when all its runs have ended. A sweep confirms its best
configurations when its trials have ended.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curricula import Recipe, load
from curricula.claims import CHECKS, Claim, claim_names, load_claim
from curricula.claims.cross_play import CrossPlay, load_cross_play
from curricula.yaml_files import is_path, read
from sweeps.space import SPACES, Space, load_space
from sweeps.study import first_trials
from userrl.machine.notebook import Printed, Tabular
from userrl.run.estimate import RunCost, evaluation_cost, run_cost
from userrl_core.errors import ConfigError
from userrl_core.suggest import nearest

ASSUMED = (
    "CPU-hours are within a factor of 1.5 on the published claims, to which they were fitted, and on four of five recipes in "
    "data/recipes (BabyAI took four times as long). GPU-hours are arithmetic, without evaluations. Served models come on top."
)


@dataclass(frozen=True, slots=True)
class PlannedStudies(Printed, Tabular):
    """The plans of studies on a number of workers."""

    plans: tuple[StudyPlan, ...]
    workers: int

    def as_json(self) -> list[dict[str, Any]]:
        """Return one row per study, and the total of several."""

        rows = [plan.as_json(self.workers) for plan in self.plans]
        return [*rows, in_total(self.plans).as_json(self.workers)] if len(rows) > 1 else rows

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return one row per study."""
        return [plan.as_json(self.workers) for plan in self.plans]

    def __str__(self) -> str:
        from userrl.reports.document import Document, TableBlock

        head = ("study", "runs", "shared", "CPU-h", "GPU-h", "RL tokens", "turns", "MB", "hours", "critical path")
        rows = tuple(
            (
                row["study"],
                f"{row['runs']:,}",
                f"{row['shared_runs']:,}",
                f"{row['cpu_hours']:,.2f}",
                f"{row['gpu_hours']:,.1f}",
                f"{row['tokens']:,}",
                f"{row['turns']:,}",
                f"{row['bytes'] / 1e6:,.0f}",
                f"{row['hours']:,.2f}",
                f"{row['critical_hours']:,.2f}",
            )
            for row in self.as_json()
        )
        note = f"hours: from start to end on {self.workers} worker{'s' * (self.workers > 1)}. {ASSUMED}"
        return Document("", (TableBlock(head, rows, note),)).text()


def plan_study(*studies: str, seeds: int | None = None, workers: int = 2) -> PlannedStudies:
    """Return runs, hours, tokens, storage and critical path of studies, without starting a run.

    studies: claims, checks of claims, search spaces, or YAML files of claims, cross-play studies or sweeps. seeds: per arm, by
    default 8 or the study's own number. workers: parallel runs, each on two quiet cores or the GPUs of its profile. Raises
    ConfigError with one sentence.
    """

    return PlannedStudies(tuple(plan_studies(studies, seeds=seeds)), workers)


Key = tuple[str, int]
"""The hash of a run's recipe, and its seed."""


@dataclass(frozen=True, slots=True)
class Phase:
    """Jobs of a study that wait for no other job of the phase, in the order of their start. serial: one at a time."""

    name: str
    costs: tuple[RunCost, ...]
    serial: bool = False

    def seconds(self, workers: int) -> float:
        """Return the seconds from the first start to the last end on so many workers."""
        free = [0.0] * (1 if self.serial else min(workers, max(len(self.costs), 1)))
        for cost in self.costs:
            heapq.heapreplace(free, free[0] + cost.seconds)
        return max(free)


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """A study's jobs. runs: its training runs, without those shared with an earlier study of the same plan."""

    name: str
    runs: int
    shared: int
    phases: tuple[Phase, ...]

    def total(self, field: str) -> float:
        """Return the sum of a field of `RunCost` over all jobs."""
        return sum(float(getattr(cost, field)) for phase in self.phases for cost in phase.costs)

    def seconds(self, workers: int) -> float:
        """Return the seconds from start to end on so many workers. A phase begins when the one before it has ended."""
        return sum(phase.seconds(workers) for phase in self.phases)

    @property
    def critical(self) -> float:
        """Return the seconds of the critical path, which more workers do not shorten."""
        return sum(phase.seconds(max(len(phase.costs), 1)) for phase in self.phases)

    def as_json(self, workers: int) -> dict[str, Any]:
        """Return the figures in hours, tokens, turns and bytes."""
        return {
            "study": self.name,
            "runs": self.runs,
            "shared_runs": self.shared,
            "cpu_hours": self.total("cpu_seconds") / 3600,
            "gpu_hours": self.total("gpu_seconds") / 3600,
            "tokens": round(self.total("tokens")),
            "turns": round(self.total("turns")),
            "bytes": round(self.total("stored")),
            "hours": self.seconds(workers) / 3600,
            "critical_hours": self.critical / 3600,
        }


def plan_studies(names: Sequence[str], *, seeds: int | None = None) -> list[StudyPlan]:
    """Return the plan of each study, which follow one another.

    names: claims, checks of claims, search spaces, or YAML files of claims, cross-play studies and sweeps. seeds: per arm;
    None: 8 for a claim, and a cross-play study's own number. Raises ConfigError for an unknown name, a bad file, or a recipe
    whose cost cannot be estimated.
    """
    planned_runs: set[Key] = set()
    return [_planned(_study(name), seeds, planned_runs) for name in names]


def _study(name: str) -> Claim | Space:
    if is_path(name):
        keys = read(Path(name)).keys()
        if "parameters" in keys:
            return load_space(name)
        return load_cross_play(name) if {"train", "evaluate"} <= keys else load_claim(name)
    spaces = sorted(path.stem for path in SPACES.glob("*.yaml"))
    if name in spaces:
        return load_space(name)
    base, _, check = name.rpartition(".")
    if name in claim_names() or (check in CHECKS and base in claim_names()):
        return load_claim(name)
    raise ConfigError(
        "claim.no_such_study",
        f"There is no claim, sweep or file '{name}'{nearest(name, [*claim_names(), *spaces])}. `userrl reproduce --list` "
        "shows the claims.",
    )


def _planned(study: Claim | Space, seeds: int | None, planned_runs: set[Key]) -> StudyPlan:
    if isinstance(study, Space):
        return _sweep(study)
    count = seeds or (study.seeds if isinstance(study, CrossPlay) else 8)
    recipes = [study.recipe_of(arm) for arm in study.arms.values()]
    numbers = range(study.first_seed, study.first_seed + count)
    keys = [(recipe.hash, seed) for seed in numbers for recipe in recipes]
    costs = {recipe.hash: _cost(recipe) for recipe in recipes}
    new = list(dict.fromkeys(key for key in keys if key not in planned_runs))
    planned_runs.update(new)
    phases = [Phase("runs", tuple(costs[recipe] for recipe, _ in new))]
    if isinstance(study, CrossPlay):
        phases.append(Phase("evaluations", tuple(_evaluations(study, recipes[0], count)), serial=True))
    return StudyPlan(study.name, len(new), len(keys) - len(new), tuple(phases))


def _evaluations(study: CrossPlay, recipe: Recipe, seeds: int) -> Iterator[RunCost]:
    agents = len(study.train) + study.same_cold_start
    cost = evaluation_cost(recipe, study.evaluation_tasks, study.evaluation_horizon or study.horizon)
    if cost is not None:
        yield from [cost] * (seeds * agents * len(study.evaluate))


def _sweep(space: Space) -> StudyPlan:
    trials = first_trials(space)
    costs = tuple(_cost(load(space.recipe, profile=space.profile, overrides=overrides)) for overrides in trials)
    leaders = sorted(costs, key=lambda cost: -cost.seconds)[: space.confirm.top]
    again = tuple(cost for cost in leaders for _ in space.confirm.seeds)
    return StudyPlan(space.name, len(costs) + len(again), 0, (Phase("trials", costs), Phase("confirmation", again)))


def _cost(recipe: Recipe) -> RunCost:
    cost = run_cost(recipe)
    if cost is None:
        raise ConfigError(
            "claim.unknown_cost",
            f"The cost of recipe '{recipe.name}' cannot be estimated: the size of model {recipe.model.path} or the speed of its "
            "GPU is not known. Choose a profile with a known model and GPU.",
        )
    return cost


def in_total(plans: Iterable[StudyPlan]) -> StudyPlan:
    """Return all studies as one, one after the other."""
    listed = list(plans)
    phases = tuple(phase for plan in listed for phase in plan.phases)
    return StudyPlan("total", sum(plan.runs for plan in listed), sum(plan.shared for plan in listed), phases)
