"""Rows that a rewind hides, and the views that hide them.

The views are rebuilt whenever the rewinds change. Without rewinds they are the stored rows themselves, so the common
case costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from userrl_core.records import branch_of
from warehouse.files.checksum import intact
from warehouse.files.encode import fitting
from warehouse.schema import literal, types

UNTOUCHED_STAGES = ("distill", "sft", "evaluate", "play")
"""Stages whose metrics a rewind to a training step does not affect (metrics carry no phase)."""

COLD_START = "sft"
"""The stage of supervised training. Its steps, and the steps of later fine-tunings ``sft-1`` ..., are counted separately
from reinforcement learning. A rewind of such a stage affects only its own rows.
"""

KINDS = ("rewind", "replay")
"""The kinds of events that hide rows. ``replay`` hides the rejected trajectories of a stage, which are played again."""

OF_STAGE = '"scope":"stage"'
"""The text in the fields of a rewind to a training step that hides the rows of its own stage alone. Rewinds of earlier
versions also hide those of later stages.
"""

ADVICE = "turns may count twice. `userrl warehouse check --repair` sets it aside."

_PHASES = ("train", "baseline", "validate")
_LATER = (
    "t.step > r.step AND (r.branch IS NULL OR suffix(t.stage, r.branch)) AND (r.stage IS NULL OR t.stage = r.stage)"
)
_REPLAYED = """SELECT t.traj_id FROM store.trajectories t SEMI JOIN store.replayed r
ON t.run_id = r.run_id AND t.incarnation < r.incarnation AND t.stage = r.stage AND NOT t.admitted"""
_ANTI = "ANTI JOIN store.{0} r ON t.run_id = r.run_id AND t.incarnation < r.incarnation AND {1}"


@dataclass(frozen=True, slots=True)
class Rewind:
    """One rewind event: hides rows of the run's incarnations below this one.

    rejected_only: a replay, which hides only the rejected trajectories of its stage. of_stage: hides only rows of its
    stage, where other rewinds to a step also hide those of later stages.
    """

    run_id: str
    incarnation: int
    stage: str | None
    step: int | None
    rejected_only: bool = False
    of_stage: bool = False

    @property
    def supervised(self) -> bool:
        """Return True for a rewind of supervised training."""
        return self.stage == COLD_START or (self.stage or "").startswith(f"{COLD_START}-")

    @property
    def branch(self) -> str | None:
        """Return the suffix of the affected stage names, of the rewind's own branch; None if it affects all."""
        branch = branch_of(self.stage or "")
        return f"-{branch}" if branch else None


def readable(
    rows: Iterable[tuple[str | None, int | None, str | None, int | None, str, str | None]],
) -> tuple[list[Rewind], list[str]]:
    """Return the rewinds among event rows (run, incarnation, stage, step, kind, fields), and a sentence about each
    unreadable one.

    An unreadable row does not say what it voids (a damaged line, or an earlier version's). It hides nothing.
    """
    rewinds: list[Rewind] = []
    sentences: list[str] = []
    for run_id, incarnation, stage, step, kind, fields in rows:
        replay = kind == "replay"
        if run_id is None or incarnation is None or (stage is None and (step is None or replay)):
            which = "an unknown run" if run_id is None else f"run {run_id}"
            sentences.append(f"A {kind} of {which} (start {incarnation}) does not say what it replaces; {ADVICE}")
        else:
            of_stage = stage is not None and OF_STAGE in (fields or "")
            rewinds.append(Rewind(run_id, incarnation, stage, None if replay else step, replay, of_stage))
    return rewinds, sentences


def may_rewind(path: Path) -> bool:
    """Return True if a live events file may hold a rewind, or is gone."""
    try:
        text = path.read_bytes()
        return any(f'"{kind}"'.encode() in text for kind in KINDS)
    except FileNotFoundError:
        return True


def unreadable_lines(path: Path) -> int:
    """Return the number of complete lines of a live events file that are not an event, or a rewind that does not say
    what it replaces.
    """
    count = 0
    for line in path.read_bytes().split(b"\n")[:-1]:
        if intact(line) is False:
            count += 1
            continue
        try:
            row, _ = fitting(types("events"), orjson.loads(line))
        except (orjson.JSONDecodeError, AttributeError):
            count += 1
        else:
            event = row["run_id"], row["incarnation"], row["stage"], row["step"], row["kind"], row["fields"]
            count += row["run_id"] is None or (row["kind"] in KINDS and bool(readable([event])[1]))
    return count


def definitions(rewinds: Sequence[Rewind]) -> list[str]:
    """Return SQL that fills the tables of rewinds in `store`, and creates the views that hide rows by them."""
    to_step = [r for r in rewinds if r.step is not None]
    rewound = [
        (r.run_id, phase, r.incarnation, r.step, r.branch, r.stage if r.of_stage else None)
        for r in to_step
        if not r.supervised
        for phase in _PHASES
    ]
    refitted = [(r.run_id, r.stage, r.incarnation, r.step) for r in to_step if r.supervised]
    restarted = [(r.run_id, r.stage, r.incarnation) for r in rewinds if _whole_stage(r)]
    replayed = [(r.run_id, r.stage, r.incarnation) for r in rewinds if r.rejected_only]
    statements = [
        "CREATE OR REPLACE TABLE store.rewound (run_id VARCHAR, phase VARCHAR, incarnation INTEGER, step INTEGER, "
        "branch VARCHAR, stage VARCHAR)",
        "CREATE OR REPLACE TABLE store.refitted (run_id VARCHAR, stage VARCHAR, incarnation INTEGER, step INTEGER)",
        "CREATE OR REPLACE TABLE store.restarted (run_id VARCHAR, stage VARCHAR, incarnation INTEGER)",
        "CREATE OR REPLACE TABLE store.replayed (run_id VARCHAR, stage VARCHAR, incarnation INTEGER)",
        f"CREATE OR REPLACE VIEW store.replayed_trajectories AS {_REPLAYED}",
    ]
    by_table: dict[str, Sequence[tuple[object, ...]]] = {
        "rewound": rewound,
        "refitted": refitted,
        "restarted": restarted,
        "replayed": replayed,
    }
    for table, rows in by_table.items():
        if rows:
            values = ", ".join(f"({', '.join(map(literal, row))})" for row in rows)
            statements.append(f"INSERT INTO store.{table} VALUES {values}")
    statements += [
        f"CREATE OR REPLACE VIEW {name} AS {visible(f'SELECT * FROM {name}_all', rewinds)}"
        for name in ("turns", "trajectories", "model_calls")
    ]
    untouched = ", ".join(map(literal, UNTOUCHED_STAGES))
    metrics = _hiding(
        "SELECT * FROM metrics_all",
        _ANTI.format("rewound", f"t.stage NOT IN ({untouched}) AND {_LATER}") if rewound else "",
        _ANTI.format("refitted", "t.stage = r.stage AND t.step > r.step") if refitted else "",
        _ANTI.format("restarted", "t.stage = r.stage") if restarted else "",
    )
    of_shown_turns = " SEMI JOIN turns USING (traj_id, turn)" if rewound or restarted or replayed else ""
    of_shown_trajectories = of_shown_turns and " SEMI JOIN trajectories USING (traj_id)"
    return [
        *statements,
        f"CREATE OR REPLACE VIEW metrics AS {metrics}",
        f"CREATE OR REPLACE VIEW demonstrations AS SELECT * FROM store.demonstrations{of_shown_trajectories}",
        *(
            f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM {name}_all{of_shown_turns}"
            for name in ("credits", "judgements")
        ),
    ]


def visible(source: str, rewinds: Sequence[Rewind]) -> str:
    """Return SQL of the rows of `source` (turns, trajectories or model calls, as SQL) that no rewind hides."""
    rewound = any(r.step is not None and not r.supervised for r in rewinds)
    restarted = any(map(_whole_stage, rewinds))
    replayed = any(r.rejected_only for r in rewinds)
    return _hiding(
        source,
        _ANTI.format("rewound", f"t.phase = r.phase AND {_LATER}") if rewound else "",
        _ANTI.format("restarted", "t.stage = r.stage") if restarted else "",
        "ANTI JOIN store.replayed_trajectories r ON t.traj_id = r.traj_id" if replayed else "",
    )


def _whole_stage(rewind: Rewind) -> bool:
    return rewind.step is None and not rewind.rejected_only


def _hiding(source: str, *joins: str) -> str:
    for join in filter(None, joins):
        source = f"SELECT t.* FROM ({source}) t {join}"
    return source
