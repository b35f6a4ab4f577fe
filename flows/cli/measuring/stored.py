"""Conversations as the warehouse holds them, as records again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any


def stored_conversations(run_id: str, phase: str, gyms: Sequence[str] | None) -> Iterator[Any]:
    """A run's finished, admitted conversations, with their turns. Raises ConfigError for one whose task was not stored."""
    from flows.machine.home import warehouse_dir
    from userrl_core.errors import ConfigError
    from userrl_core.records import RolloutContext, Task, Trajectory, Turn
    from warehouse import open_warehouse

    text = """select t.*, k.payload, k.tier as task_tier, k.source as task_source from trajectories t
              left join tasks k on k.run_id = t.run_id and k.gym = t.gym and k.task_id = t.task_id
                                and k.version = t.task_version
              where t.run_id = $run and t.phase = $phase and t.admitted
                    and ($gyms is null or list_contains($gyms, t.gym)) order by t.traj_id"""
    said = """select traj_id, turn, choice, content, thought, message, observation, reward, flags, prompt_tokens,
                     completion_tokens, info
              from turns where run_id = $run and phase = $phase order by traj_id, turn"""
    with open_warehouse(warehouse_dir()) as warehouse:
        rows = warehouse.sql(text, run=run_id, phase=phase, gyms=list(gyms) if gyms else None).pl().to_dicts()
        turns: dict[int, list[Turn]] = {}
        for row in warehouse.sql(said, run=run_id, phase=phase).pl().to_dicts():
            traj_id, number, info = row.pop("traj_id"), row.pop("turn"), row.pop("info")
            turns.setdefault(traj_id, []).append(Turn(number, **row, info=json.loads(info) if info else {}))
    for row in rows:
        if row["payload"] is None:
            raise ConfigError(
                f"Task {row['gym']}/{row['task_id']} was not stored with the run, so nothing can be scored with it."
            )
        task = Task(
            row["gym"], row["task_id"], row["split"], json.loads(row["payload"]), row["task_source"], row["task_tier"]
        )
        where = RolloutContext(row["stage"], row["step"], row["phase"], row["policy"], row["checkpoint"])
        yield Trajectory(
            task,
            row["attempt"],
            row["horizon"],
            row["seed"],
            context=where,
            group=row["group_id"],
            messages=json.loads(row["messages"]),
            turns=turns.get(row["traj_id"], []),
            stop_reason=row["stop_reason"],
            score=row["score"],
            user=row["user_name"],
        )
