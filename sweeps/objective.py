"""Objectives: a run's numbers as SQL over the warehouse, each with its uncertainty. Never kept in Optuna alone."""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from sweeps.space import QUERIES, Space
from userrl_core.errors import TrainingError
from warehouse import Warehouse, open_warehouse


@dataclass(frozen=True, slots=True)
class Measured:
    """A value with its standard error over n observations (tasks, trajectories or calls, depending on the query)."""

    value: float
    stderr: float
    n: int


@dataclass(frozen=True, slots=True)
class Point:
    """A run's validation at one step of one stage."""

    stage: str
    horizon: int
    """Training horizon of the stage."""
    validated: int
    """Validation horizon, constant throughout a sweep unless the space varies it."""
    step: int
    value: float

    @property
    def place(self) -> tuple[str, int, int, int]:
        """Key that must be equal for two values to be comparable."""
        return (self.stage, self.horizon, self.validated, self.step)


def measure(warehouse: Path, run_id: str, query: str) -> Measured:
    """Run one named query for one run. Raises TrainingError if the run left no data for the query."""
    rows = _rows(warehouse, query, run_id=run_id)
    value, stderr, n = rows[0] if rows else (None, None, 0)
    if value is None:
        raise TrainingError(
            "sweep.no_value", f"Run {run_id} has no rows that query '{query}' reads, so its trial has no value."
        )
    return Measured(float(value), float(stderr or 0.0), int(n))


def objectives(warehouse: Path, run_id: str, space: Space) -> list[Measured]:
    """Return the space's objectives in their order."""
    return [measure(warehouse, run_id, objective.query) for objective in space.objectives]


def violations(warehouse: Path, run_id: str, space: Space) -> list[float]:
    """Return the excess over each constraint. A run is feasible if none is above 0 (Optuna's convention)."""
    return [measure(warehouse, run_id, c.query).value - c.at_most for c in space.constraints]


def points(warehouse: Path, run_ids: Sequence[str]) -> dict[str, list[Point]]:
    """Return the validations so far of each run that has any, by step, with one query for all runs."""
    by_run: dict[str, list[Point]] = {}
    for run_id, stage, horizon, validated, step, value in _rows(warehouse, "_points", run_ids=list(run_ids)):
        point = Point(str(stage), int(horizon), int(validated), int(step), float(value))
        by_run.setdefault(str(run_id), []).append(point)
    return by_run


def money(warehouse: Path, run_ids: Sequence[str]) -> float:
    """Return the US dollars that these runs spent on model calls so far, as far as prices are known."""
    rows = _rows(warehouse, "_money", run_ids=list(run_ids))
    return float(rows[0][0]) if rows else 0.0


def _rows(warehouse: Path, query: str, **params: Any) -> list[tuple[Any, ...]]:
    if not warehouse.is_dir():  # the first trial has not written yet
        return []
    text = (QUERIES / f"{query}.sql").read_text()
    return list(_opened(warehouse.resolve()).sql(text, **params).fetchall())


@lru_cache(maxsize=1)
def _opened(warehouse: Path) -> Warehouse:
    """Keep the warehouse open: a sweep reads it every few seconds for days, and opening costs five times as much as a query."""
    opened = open_warehouse(warehouse)
    atexit.register(opened.close)
    return opened
