"""Conversations as plain data: out of the warehouse, into JSON lines or Parquet. `own_exports` reads them back.

A conversation is its row of `trajectories`, its rows of `turns` and `model_calls`, its task, and its run's row.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from userrl_core.gyms.prompt import turns_left_as_in
from userrl_core.records import Flag
from userrl_core.replaced_file import replacing
from warehouse.files.runs import find_run
from warehouse.query.warehouse import Warehouse

RUN_COLUMNS = (
    "kind",
    "name",
    "recipe",
    "recipe_hash",
    "seed",
    "backend",
    "profile",
    "shaping",
    "score",
    "gamma",
    "k",
    "form",
    "ddof",
    "horizon",
    "code_version",
    "parent",
    "created",
)
AT_ONCE = 500
"""Trajectories whose turns are fetched in one query."""


@dataclass(frozen=True, slots=True)
class ExportedConversation:
    """One conversation. run, trajectory, turns and calls: rows of the tables. task: the row of `tasks` where it was
    logged, else empty.
    """

    run: Mapping[str, Any]
    trajectory: Mapping[str, Any]
    turns: list[dict[str, Any]]
    calls: list[dict[str, Any]]
    task: Mapping[str, Any]

    @property
    def messages(self) -> list[dict[str, str]]:
        """Return the chat as the policy saw it: the opening, then its replies and the observations."""
        opening = orjson.loads(self.trajectory["messages"] or "[]")
        return [
            *opening,
            *(
                message
                for turn in self.turns
                for message in (
                    {"role": "assistant", "content": turn["message"] or ""},
                    {"role": "user", "content": self.shown(turn)},
                )
            ),
        ]

    def shown(self, turn: Mapping[str, Any]) -> str:
        """Return what came back from a turn as the agent saw it, with the turns that it had left if it was shown them."""
        observation = turn["observation"] or ""
        if turn is self.turns[-1] or not (turn["flags"] or 0) & Flag.TURNS_LEFT:
            return observation
        opening = orjson.loads(self.trajectory["messages"])[-1]["content"]
        return observation + turns_left_as_in(opening, self.trajectory["horizon"] - turn["turn"])


def conversations(
    warehouse: Warehouse, run: str, *, phase: str | None = "evaluate", policy: str | None = None
) -> Iterator[ExportedConversation]:
    """Yield a run's finished trajectories in the order of their ids. phase, policy: include only these; None includes all.

    A person's conversation without consent is left out.
    """
    row = find_run(warehouse.root, run)
    where = "run_id = $run AND ($phase IS NULL OR phase = $phase) AND ($policy IS NULL OR policy = $policy)"
    where += " AND ((policy IS DISTINCT FROM 'human' AND user_name IS DISTINCT FROM 'human') OR traj_id IN (FROM consented()))"
    relation = warehouse.sql(
        f"SELECT * FROM trajectories WHERE {where} ORDER BY traj_id", run=row["run_id"], phase=phase, policy=policy
    )
    rows = relation.pl().to_dicts()
    tasks = {
        (task["gym"], task["task_id"], task["version"]): task
        for task in warehouse.sql("SELECT * FROM tasks WHERE run_id = $run", run=row["run_id"]).pl().to_dicts()
    }
    about = {column: row.get(column) for column in RUN_COLUMNS} | {"run_id": row["run_id"]}
    for first in range(0, len(rows), AT_ONCE):
        part = rows[first : first + AT_ONCE]
        ids = [trajectory["traj_id"] for trajectory in part]
        turns, calls = (
            _by_trajectory(
                warehouse, f"SELECT * FROM {table} WHERE traj_id IN (SELECT unnest($ids)) ORDER BY {order}", ids
            )
            for table, order in (("turns", "traj_id, turn"), ("model_calls", "traj_id, turn, n"))
        )
        for trajectory in part:
            key = (trajectory["gym"], trajectory["task_id"], trajectory["task_version"])
            traj_id = trajectory["traj_id"]
            yield ExportedConversation(
                about, trajectory, turns.get(traj_id, []), calls.get(traj_id, []), tasks.get(key, {})
            )


def _by_trajectory(warehouse: Warehouse, text: str, ids: list[int]) -> dict[int, list[dict[str, Any]]]:
    rows: dict[int, list[dict[str, Any]]] = {}
    for row in warehouse.sql(text, ids=ids).pl().to_dicts():
        rows.setdefault(row["traj_id"], []).append(row)
    return rows


def write_messages(exported: Iterable[ExportedConversation], path: Path) -> int:
    """Write one JSON line per conversation: ``messages`` in the common format, and under ``userrl`` all stored data.
    Return their number.
    """
    count = 0
    with replacing(path) as file:
        for conversation in exported:
            line = {
                "messages": conversation.messages,
                "score": conversation.trajectory["score"],
                "userrl": {field.name: getattr(conversation, field.name) for field in fields(conversation)},
            }
            file.write(orjson.dumps(line, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n")
            count += 1
    return count


def write_parquet(exported: Iterable[ExportedConversation], path: Path) -> int:
    """Write one row per conversation: the chat as a list, and the same JSON as in the messages. Return their number."""
    rows = [
        {
            "run_id": conversation.run["run_id"],
            "gym": conversation.trajectory["gym"],
            "task_id": conversation.trajectory["task_id"],
            "policy": conversation.trajectory["policy"],
            "score": conversation.trajectory["score"],
            "messages": conversation.messages,
            "rewards": [turn["reward"] for turn in conversation.turns],
            "userrl": orjson.dumps(
                {field.name: getattr(conversation, field.name) for field in fields(conversation)}
            ).decode(),
        }
        for conversation in exported
    ]
    content = io.BytesIO()  # polars reports a full disk in words of its own
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(content)
    with replacing(path) as file:
        file.write(content.getbuffer())
    return len(rows)
