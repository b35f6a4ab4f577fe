"""The error of the user audit and of the rule judge, counted once by two scripts in `lab/checks`.

No rule was fitted to the words and labels of these counts. `data/users/README.md` says how they were made.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

MATERIAL = "bike desk"
"""Where the errors of the user audit were counted. They say nothing about games, whose errors the task's facts show."""
MEASURED = Path(__file__).with_name("measured.json")


@dataclass(frozen=True, slots=True)
class KindError:
    """Counts of one kind. hits: of planted errors, those found, and all. false_alarms: the same of honest exchanges like them."""

    hits: tuple[int, int]
    false_alarms: tuple[int, int]


def error_of(kind: str, reader: str) -> KindError | None:
    """Return the error of a kind for a reader of words; None where it was not measured."""
    counts = _measured().get(reader, {}).get(kind)
    return None if counts is None else KindError((counts[0], counts[1]), (counts[2], counts[3]))


@dataclass(frozen=True, slots=True)
class MarkCounts:
    """Deviations that the rule judge marked. right: marks that agree with each of two readers. labels: deviations of each."""

    right: tuple[int, int]
    marks: int
    labels: tuple[int, int]


def judge_error(version: int) -> MarkCounts | None:
    """Return the error of a version of the rule judge; None where it was not measured."""
    counts = _measured()["judge"].get(str(version))
    return None if counts is None else MarkCounts(tuple(counts["right"]), counts["marks"], tuple(counts["labels"]))


@cache
def _measured() -> dict[str, Any]:
    measured: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8"))
    return measured
