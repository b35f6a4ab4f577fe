"""The results of a cross-play study as data, and as the JSON file of the study's folder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from analysis.measure.grounded import GroundedCurve
from analysis.measure.interval import Interval, finite
from curricula.claims.cross_play import CrossPlay
from userrl_core.errors import ConfigError
from userrl_crossplay.matrix import CrossPlayMatrix, MeasuredContrast

START = "cold start"
"""The row of the cold starts."""


@dataclass(frozen=True, slots=True)
class CellMeasures:
    """Means over the conversations of one agent and one population. compliance: None without a due turn."""

    success: float
    grounded: float
    lucky: float
    told: float
    early: float
    questions: float
    turns: float
    compliance: float | None


@dataclass(frozen=True, slots=True)
class CrossPlayReport:
    """All results of a cross-play study under one hash.

    exploratory: the reason, "" for the study as registered. measures: means by (row, column), with the row of the cold start.
    start: score of the cold start by column. curves: grounded answers of each row over all columns; empty if the gym does
    not count facts. worst_users: population, number and score of the user with the lowest score. over_users: the primary
    contrast with seeds and users resampled. values: score by seed, row and column. differing: settings of the protocol in which
    the evaluations of a seed differ, besides the users.
    """

    study: CrossPlay
    hash: str
    exploratory: str
    matrix: CrossPlayMatrix
    measures: Mapping[tuple[str, str], CellMeasures]
    start: Mapping[str, Interval] | None
    curves: Mapping[str, GroundedCurve]
    worst_users: Mapping[str, tuple[str, int, float] | None]
    over_users: Interval | None
    values: Mapping[tuple[int, str, str], float]
    differing: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Return whether all planned seeds count."""
        return self.matrix.seeds >= self.study.seeds

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON. Infinite and undefined numbers are null."""
        matrix = self.matrix

        def nested(values: Mapping[tuple[str, str], Interval]) -> dict[str, dict[str, Any]]:
            return {row: {col: _interval(values[row, col]) for col in matrix.columns} for row in matrix.rows if values}

        return {
            "study": self.study.name,
            "hash": self.hash,
            "exploratory": self.exploratory,
            "complete": self.complete,
            "seeds": matrix.seeds,
            "cells": nested(matrix.cells),
            "gains": nested(matrix.gains),
            "cold_start": {column: _interval(score) for column, score in self.start.items()} if self.start else None,
            "gap": {row: _interval(gap) for row, gap in matrix.gap.items()},
            "regret": nested(matrix.regret),
            "worst_population": {row: column for row, (column, _) in matrix.worst.items()},
            "worst_user": {row: list(user) if user else None for row, user in self.worst_users.items()},
            "interaction": matrix.interaction,
            "largest_interaction": list(matrix.largest_interaction),
            "rank_agreement": finite(matrix.rank_agreement),
            "contrasts": [
                {
                    "more": contrast.more,
                    "than": contrast.than,
                    "on": list(contrast.on),
                    **_interval(contrast.interval),
                    "p": finite(contrast.p),
                    "holm": finite(contrast.adjusted),
                }
                for contrast in matrix.contrasts
            ],
            "over_users": _interval(self.over_users) if self.over_users else None,
            "differing": list(self.differing),
            "measures": {_cell(row, column): asdict(cell) for (row, column), cell in self.measures.items()},
            "curves": {row: {**asdict(curve), "between": curve.between} for row, curve in self.curves.items()},
            "values": [
                {"seed": seed, "trained": row, "evaluated": column, "score": value}
                for (seed, row, column), value in self.values.items()
            ],
        }


def report_of(study: CrossPlay, stored: Mapping[str, Any]) -> CrossPlayReport:
    """Return the report that `CrossPlayReport.as_json` wrote. Raises ConfigError if it is not one of this study."""
    try:
        return _report(study, stored)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            "claim.bad_result",
            f"The stored results of study {study.name} cannot be read. Run userrl cross-play again with the study's file; "
            "finished runs are reused.",
        ) from error


def _report(study: CrossPlay, stored: Mapping[str, Any]) -> CrossPlayReport:
    rows, columns, seeds = tuple(study.train), tuple(study.evaluate), int(stored["seeds"])

    def interval(of: Mapping[str, Any]) -> Interval:
        limits = (_number(of["low"]), _number(of["high"]))
        return Interval(float(of["estimate"]), *limits, seeds, "stored", tuple(map(float, of.get("values", ()))))

    def nested(name: str) -> dict[tuple[str, str], Interval]:
        of = stored[name]
        return {(row, column): interval(of[row][column]) for row in rows for column in columns} if of else {}

    cells = nested("cells")
    row, column, size, p = stored["largest_interaction"]
    matrix = CrossPlayMatrix(
        rows,
        columns,
        seeds,
        cells,
        nested("gains"),
        study.own,
        {name: interval(gap) for name, gap in stored["gap"].items()},
        nested("regret"),
        {name: (worst, cells[name, worst]) for name, worst in stored["worst_population"].items()},
        float(stored["interaction"]),
        (str(row), str(column), float(size), float(p)),
        _number(stored["rank_agreement"]),
        tuple(
            MeasuredContrast(
                contrast["more"],
                contrast["than"],
                tuple(contrast["on"]),
                interval(contrast),
                _number(contrast["p"]),
                _number(contrast["holm"]),
            )
            for contrast in stored["contrasts"]
        ),
    )
    measures, start, over_users = stored["measures"], stored["cold_start"], stored["over_users"]
    return CrossPlayReport(
        study=study,
        hash=str(stored["hash"]),
        exploratory=str(stored["exploratory"]),
        matrix=matrix,
        measures={
            (name, col): CellMeasures(**measures[_cell(name, col)])
            for name in (*rows, START)
            for col in columns
            if _cell(name, col) in measures
        },
        start={name: interval(start[name]) for name in columns} if start else None,
        curves={name: _curve(curve) for name, curve in stored["curves"].items()},
        worst_users={
            name: (str(user[0]), int(user[1]), float(user[2])) if (user := stored["worst_user"][name]) else None
            for name in rows
        },
        over_users=interval(over_users) if over_users else None,
        values={(cell["seed"], cell["trained"], cell["evaluated"]): cell["score"] for cell in stored["values"]},
        differing=tuple(stored.get("differing", ())),  # results of earlier versions do not say it
    )


def _curve(of: Mapping[str, Any]) -> GroundedCurve:
    curve: dict[str, Any] = {name.name: of[name.name] for name in fields(GroundedCurve)}
    for name, value in curve.items():
        curve[name] = tuple(value) if isinstance(value, list) else value
    return GroundedCurve(**curve)


def _cell(row: str, column: str) -> str:
    """Return the name of a cell."""
    return f"{row} with {column}"


def _interval(interval: Interval) -> dict[str, Any]:
    return interval.as_json() | ({"values": list(interval.values)} if interval.values else {})


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
