"""The cross-play studies of a home: what was registered, how far each has come, and its stored results."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curricula.claims.cross_play import CrossPlay
from curricula.validation import validated
from userrl.machine.home import home
from userrl_core.errors import ConfigError
from userrl_core.json_files import read_json, write_json
from warehouse import Warehouse

if TYPE_CHECKING:
    from userrl_crossplay.report import CrossPlayReport

_REGISTERED = """
SELECT fields->>'claim' AS name, fields->>'hash' AS hash, fields->'values' AS stored FROM events
WHERE kind = 'claim' AND starts_with(run_id, 'claim-') AND json_exists(fields, '$.values.train')
QUALIFY row_number() OVER (PARTITION BY fields->>'claim' ORDER BY incarnation DESC, seq DESC) = 1 ORDER BY logged_at DESC
"""
"""The newest registration of each study."""

_ARMS = """
SELECT fields->>'claim' AS name, fields->>'hash' AS hash, fields->>'state' AS state FROM events
WHERE kind = 'claim_arm' AND starts_with(run_id, 'claim-')
QUALIFY row_number() OVER (PARTITION BY name, hash, fields->>'arm', fields->>'seed' ORDER BY incarnation DESC, seq DESC) = 1
"""


@dataclass(frozen=True, slots=True)
class StoredStudy:
    """A registered study. stored: its fields when it was registered. states: number of runs by state. evaluated: finished
    evaluations, and the evaluations of all seeds; None before the first one.
    """

    name: str
    hash: str
    stored: Mapping[str, Any]
    states: Mapping[str, int]
    evaluated: tuple[int, int] | None

    @property
    def study(self) -> CrossPlay:
        """Return the study. Raises ConfigError for fields that this version does not know."""
        return validated(CrossPlay, dict(self.stored), f"cross-play study '{self.name}'")

    @property
    def runs(self) -> int:
        """Return the number of planned runs."""
        return len(self.stored["train"]) * int(self.stored["seeds"])

    @property
    def finished(self) -> bool:
        """Return whether the study has results, and nothing was played since."""
        results, progress = _file(self.name, self.hash), _progress_file(self.name, self.hash)
        return results.is_file() and (
            not progress.is_file() or progress.stat().st_mtime_ns <= results.stat().st_mtime_ns
        )

    @property
    def progress(self) -> str:
        """Return how far the study has come, in a sentence."""
        ended_runs = self.states.get("ended", 0)
        others = [f", {self.states[state]} {state}" for state in ("started", "crashed") if self.states.get(state)]
        runs = f"{ended_runs} of {self.runs} runs ended{''.join(others)}"
        return f"{runs}; {self.evaluated[0]} of {self.evaluated[1]} evaluations" if self.evaluated else runs

    def report(self) -> CrossPlayReport | None:
        """Return the stored results; None before the first ones. Raises ConfigError if they cannot be read."""
        from userrl_crossplay.report import report_of  # imported here: scipy is slow to import

        stored = read_json(_file(self.name, self.hash))
        return None if stored is None else report_of(self.study, stored)


def stored_studies(warehouse: Warehouse) -> list[StoredStudy]:
    """Return the newest registration of each cross-play study, the newest first."""
    if not (home() / "claims").is_dir():
        return []
    registered = warehouse.rows(_REGISTERED)
    states: dict[tuple[str, str], Counter[str]] = {}
    for row in warehouse.rows(_ARMS) if registered else ():
        states.setdefault((row["name"], row["hash"]), Counter())[row["state"]] += 1
    return [
        StoredStudy(
            row["name"],
            row["hash"],
            json.loads(row["stored"]),
            states.get((row["name"], row["hash"]), Counter()),
            _evaluated(row["name"], row["hash"]),
        )
        for row in registered
    ]


def stored_study(warehouse: Warehouse, name: str) -> StoredStudy:
    """Return the newest registration of a study. Raises ConfigError without one."""
    for study in stored_studies(warehouse):
        if study.name == name:
            return study
    raise ConfigError(
        "claim.no_such_study", f"No cross-play study '{name}' was run in this home. The page of runs lists them."
    )


def note_evaluations(name: str, hash_: str, done: int, of: int) -> None:
    """Store how many evaluations of a study are finished."""
    write_json(_progress_file(name, hash_), {"done": done, "of": of})


def _evaluated(name: str, hash_: str) -> tuple[int, int] | None:
    progress = read_json(_progress_file(name, hash_))
    return None if progress is None else (int(progress["done"]), int(progress["of"]))


def _progress_file(name: str, hash_: str) -> Path:
    return _file(name, hash_).with_suffix(".evaluated.json")


def _file(name: str, hash_: str) -> Path:
    return home() / "claims" / name / f"{hash_}.json"
