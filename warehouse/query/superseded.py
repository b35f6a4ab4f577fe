"""Which rows a rewind hides, and the views that hide them.

The views are made anew whenever the rewinds change: without any they are the stored rows themselves, so that the common
case pays nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

UNTOUCHED_STAGES = ("distill", "sft", "evaluate", "play")
"""Stages whose metrics a rewind to a training step leaves alone (metrics carry no phase)."""

COLD_START = "sft"
"""Its steps are counted apart from those of reinforcement learning: a rewind of it to a step reaches its own rows alone."""


@dataclass(frozen=True, slots=True)
class Rewind:
    """One rewind event: hides rows of the run's incarnations below this one."""

    run_id: str
    incarnation: int
    stage: str | None
    step: int | None


def statements(rewinds: Sequence[Rewind]) -> list[str]:
    """SQL that fills `store.rewound` and `store.restarted` and makes turns, trajectories, model_calls, metrics, credits."""
    counted = [r for r in rewinds if r.step is not None]
    steps = [(r.run_id, p, r.incarnation, r.step) for r in counted if r.stage != COLD_START for p in _PHASES]
    cold = [(r.run_id, r.stage, r.incarnation, r.step) for r in counted if r.stage == COLD_START]
    stages = [(r.run_id, r.stage, r.incarnation) for r in rewinds if r.step is None]
    made = [
        "CREATE OR REPLACE TABLE store.rewound (run_id VARCHAR, phase VARCHAR, incarnation INTEGER, step INTEGER)",
        "CREATE OR REPLACE TABLE store.refitted (run_id VARCHAR, stage VARCHAR, incarnation INTEGER, step INTEGER)",
        "CREATE OR REPLACE TABLE store.restarted (run_id VARCHAR, stage VARCHAR, incarnation INTEGER)",
    ]
    if steps:
        made.append(f"INSERT INTO store.rewound VALUES {', '.join(map(_literal, steps))}")
    if cold:
        made.append(f"INSERT INTO store.refitted VALUES {', '.join(map(_literal, cold))}")
    if stages:
        made.append(f"INSERT INTO store.restarted VALUES {', '.join(map(_literal, stages))}")
    by_stage = _ANTI.format("restarted", "t.stage = r.stage") if stages else ""
    made += [
        f"CREATE OR REPLACE VIEW {name} AS {standing(f'SELECT * FROM {name}_all', rewinds)}"
        for name in ("turns", "trajectories", "model_calls")
    ]
    untouched = ", ".join(f"'{stage}'" for stage in UNTOUCHED_STAGES)
    by_metric = _ANTI.format("rewound", f"t.stage NOT IN ({untouched}) AND t.step > r.step") if steps else ""
    by_cold = _ANTI.format("refitted", "t.stage = r.stage AND t.step > r.step") if cold else ""
    metrics = _hiding("SELECT * FROM metrics_all", by_metric, by_cold, by_stage)
    made.append(f"CREATE OR REPLACE VIEW metrics AS {metrics}")
    credits = "SELECT * FROM credits_all"
    if steps or stages:
        credits += " SEMI JOIN turns USING (traj_id, turn)"
    made.append(f"CREATE OR REPLACE VIEW credits AS {credits}")
    return made


def standing(source: str, rewinds: Sequence[Rewind]) -> str:
    """SQL of the rows of `source` (turns, trajectories or model calls, as SQL) that no rewind hides."""
    stepped = any(r.step is not None and r.stage != COLD_START for r in rewinds)
    by_step = _ANTI.format("rewound", "t.phase = r.phase AND t.step > r.step") if stepped else ""
    by_stage = _ANTI.format("restarted", "t.stage = r.stage") if any(r.step is None for r in rewinds) else ""
    return _hiding(source, by_step, by_stage)


_PHASES = ("train", "validate")
_ANTI = "ANTI JOIN store.{0} r ON t.run_id = r.run_id AND t.incarnation < r.incarnation AND {1}"


def _hiding(text: str, *joins: str) -> str:
    for join in filter(None, joins):
        text = f"SELECT t.* FROM ({text}) t {join}"
    return text


def _literal(row: tuple[object, ...]) -> str:
    return "(" + ", ".join("'" + v.replace("'", "''") + "'" if isinstance(v, str) else str(v) for v in row) + ")"
