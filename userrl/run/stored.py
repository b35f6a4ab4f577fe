"""Conversations of the warehouse, read back as records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from userrl.machine.home import warehouse_dir
from userrl_core.errors import ConfigError
from userrl_core.records import RolloutContext, Task, Trajectory, Turn
from warehouse import open_warehouse

ENDED = """select t.*, k.payload, k.tier as task_tier, k.source as task_source from trajectories t
           left join tasks k on k.run_id = t.run_id and k.gym = t.gym and k.task_id = t.task_id
                             and k.version = t.task_version"""
SAID = """select traj_id, turn, choice, content, thought, message, observation, reward, flags, prompt_tokens,
                 completion_tokens, info"""


def role_of(phase: str) -> str:
    """Return the role of the users that played a phase."""
    return {"evaluate": "evaluate", "distill": "demonstrate"}.get(phase, "train")


def stored_conversations(
    run_id: str, phase: str, gyms: Sequence[str] | None, *, lenient: bool = False, folder: Path | None = None
) -> Iterator[Trajectory]:
    """Yield a run's finished, admitted conversations with their turns.

    folder: the warehouse, by default the home's. Raises ConfigError if a task was not stored; lenient gives such a
    conversation an empty task instead.
    """
    text = f"""{ENDED} where t.run_id = $run and t.phase = $phase and t.admitted
                    and ($gyms is null or list_contains($gyms, t.gym)) order by t.traj_id"""
    turns_sql = f"{SAID} from turns where run_id = $run and phase = $phase order by traj_id, turn"
    with open_warehouse(folder or warehouse_dir(), run=run_id) as warehouse:
        rows = warehouse.sql(text, run=run_id, phase=phase, gyms=list(gyms) if gyms else None).pl().to_dicts()
        turns: dict[int, list[Turn]] = {}
        for row in warehouse.sql(turns_sql, run=run_id, phase=phase).pl().to_dicts():
            turns.setdefault(row.pop("traj_id"), []).append(_turn(row))
    for row in rows:
        if lenient and row["payload"] is None:
            row["payload"] = "{}"
        yield _trajectory(row, turns.get(row["traj_id"], []))


def stored_conversation(traj_id: int) -> tuple[Trajectory, str]:
    """Return one finished conversation with its sampled tokens, and its run's id. Raises ConfigError if there is none."""
    with open_warehouse(warehouse_dir()) as warehouse:
        bound = traj_id if 0 <= traj_id < 2**63 else -1  # no trajectory has another, and no column holds it
        rows = warehouse.sql(f"{ENDED} where t.traj_id = $id", id=bound).pl().to_dicts()
        turns_sql = f"{SAID}, token_ids from turns where traj_id = $id order by turn"
        turns = warehouse.sql(turns_sql, id=bound).pl().to_dicts()
    if not rows or rows[0]["stop_reason"] is None:
        raise ConfigError(
            "run.no_such_trajectory",
            f"There is no finished trajectory {traj_id}. "
            'See userrl sql "select traj_id, gym, score from trajectories order by logged_at desc limit 20".',
        )
    for turn in turns:
        turn.pop("traj_id")
    return _trajectory(rows[0], [_turn(turn) for turn in turns]), rows[0]["run_id"]


def _turn(row: dict[str, Any]) -> Turn:
    number, info = row.pop("turn"), row.pop("info")
    return Turn(number, **row, info=json.loads(info) if info else {})


def _trajectory(row: dict[str, Any], turns: list[Turn]) -> Trajectory:
    if row["payload"] is None:
        raise ConfigError(
            "task.no_such_task",
            f"Task {row['gym']}/{row['task_id']} was not stored with the run, so its conversations cannot be "
            "scored again.",
        )
    payload = json.loads(row["payload"])
    task = Task(row["gym"], row["task_id"], row["split"], payload, row["task_source"], row["task_tier"])
    where = RolloutContext(row["stage"], row["step"], row["phase"], row["policy"], row["checkpoint"])
    return Trajectory(
        task,
        row["attempt"],
        row["horizon"],
        row["seed"],
        context=where,
        group=row["group_id"],
        messages=json.loads(row["messages"]),
        turns=turns,
        stop_reason=row["stop_reason"],
        score=row["score"],
        user=row["user_name"],
        traj_id=row["traj_id"],
    )
