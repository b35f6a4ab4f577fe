"""The user audit's own error, as `lab/checks/users_words.py` counted it once on words that no rule was fitted to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

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


@cache
def _measured() -> dict[str, dict[str, list[int]]]:
    measured: dict[str, dict[str, list[int]]] = json.loads(MEASURED.read_text(encoding="utf-8"))
    return measured
