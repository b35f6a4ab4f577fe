"""Conversations as plain data: out of the warehouse, into JSON lines or Parquet, and back into a warehouse.

A conversation is its row of `trajectories`, its rows of `turns` and `model_calls`, its task, and its run's row.
Reading it back gives the same scores, rewards and token ids under the same run id, with new ids of trajectories.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from userrl_core.errors import ConfigError
from userrl_core.records import ModelCall, RolloutContext, Task, Trajectory, Turn
from warehouse.files.layout import run_dir
from warehouse.files.runs import find_run
from warehouse.query.warehouse import Warehouse
from warehouse.write.turn_log import TurnLog

RUN_COLUMNS = (
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
                    {"role": "user", "content": turn["observation"] or ""},
                )
            ),
        ]


def conversations(
    warehouse: Warehouse, run: str, *, phase: str | None = "evaluate", policy: str | None = None
) -> Iterator[ExportedConversation]:
    """Yield a run's finished trajectories in the order of their ids. phase, policy: include only these; None includes all."""
    row = find_run(warehouse.root, run)
    where = "run_id = $run AND ($phase IS NULL OR phase = $phase) AND ($policy IS NULL OR policy = $policy)"
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


def write_messages(found: Iterable[ExportedConversation], path: Path) -> int:
    """Write one JSON line per conversation: ``messages`` in the common format, and under ``userrl`` all stored data.
    Return their number.
    """
    count = 0
    with path.open("wb") as file:
        for each in found:
            line = {
                "messages": each.messages,
                "score": each.trajectory["score"],
                "userrl": {field.name: getattr(each, field.name) for field in fields(each)},
            }
            file.write(orjson.dumps(line, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n")
            count += 1
    return count


def write_parquet(found: Iterable[ExportedConversation], path: Path) -> int:
    """Write one row per conversation: the chat as a list, and the same JSON as in the messages. Return their number."""
    rows = [
        {
            "run_id": each.run["run_id"],
            "gym": each.trajectory["gym"],
            "task_id": each.trajectory["task_id"],
            "policy": each.trajectory["policy"],
            "score": each.trajectory["score"],
            "messages": each.messages,
            "rewards": [turn["reward"] for turn in each.turns],
            "userrl": orjson.dumps({field.name: getattr(each, field.name) for field in fields(each)}).decode(),
        }
        for each in found
    ]
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(path)
    return len(rows)


def read_conversations(path: Path) -> Iterator[ExportedConversation]:
    """Read a file of `write_messages` or `write_parquet`. Raises ConfigError for any other file."""
    try:
        with path.open("rb") as file:
            packed = file.read(4) == b"PAR1"
        if packed:
            texts: Iterable[str | bytes] = pl.read_parquet(path, columns=["userrl"])["userrl"]
            rows = [orjson.loads(text) for text in texts]
        else:
            rows = [orjson.loads(line)["userrl"] for line in path.read_bytes().splitlines() if line.strip()]
        found = [ExportedConversation(**row) for row in rows]
    except (OSError, ValueError, KeyError, TypeError, pl.exceptions.PolarsError) as error:
        raise ConfigError(
            "file.unreadable",
            f"{path} contains no conversations that userrl wrote ({type(error).__name__}). Give a file of "
            "`userrl warehouse export --format messages` or parquet.",
        ) from error
    return iter(found)


def bring_in(root: Path, found: Iterable[ExportedConversation]) -> dict[str, int]:
    """Log conversations as runs of this warehouse, under their own run ids. Return the number of conversations per run.

    Raises ConfigError, before anything is written, for a run that exists already.
    """
    by_run: dict[str, list[ExportedConversation]] = {}
    for item in found:
        by_run.setdefault(str(item.run["run_id"]), []).append(item)
    if there := [run for run in by_run if (run_dir(root, run) / "run.json").exists()]:
        raise ConfigError("import.run_exists", f"Run {there[0]} is already in this warehouse. Nothing was imported.")
    for run, own in by_run.items():
        about = {column: value for column, value in own[0].run.items() if column != "run_id" and value is not None}
        with TurnLog.open(root, run, run_fields=about) as log:
            tasks = {trajectory.task.key: trajectory.task for trajectory in map(_trajectory, own)}
            log.tasks([task for task in tasks.values() if task.payload])
            for item in own:
                trajectory = _trajectory(item)
                log.begin(trajectory)
                for turn in trajectory.turns:
                    log.turn(trajectory, turn)
                log.end(trajectory)
                credited = [(turn["shaped"], turn["advantage"]) for turn in item.turns]
                if credited and all(shaped is not None and value is not None for shaped, value in credited):
                    shaped, advantages = zip(*credited, strict=True)
                    log.credits(trajectory.traj_id or 0, shaped, advantages)
    return {run: len(own) for run, own in by_run.items()}


def _trajectory(exported: ExportedConversation) -> Trajectory:
    row, calls = exported.trajectory, exported.calls
    payload = orjson.loads(exported.task["payload"]) if exported.task else {}
    task = Task(row["gym"], row["task_id"], row["split"], payload, row["source"], row["tier"])
    trajectory = Trajectory(
        task,
        row["attempt"],
        row["horizon"],
        row["seed"],
        RolloutContext(row["stage"], row["step"], row["phase"], row["policy"], row["checkpoint"]),
        row["group_id"],
        orjson.loads(row["messages"] or "[]"),
        stop_reason=row["stop_reason"],
        score=row["score"],
        admitted=row["admitted"],
        reject_reason=row["reject_reason"],
        user=row["user_name"] or "",
    )
    trajectory.turns = [
        Turn(
            turn["turn"],
            turn["choice"],
            turn["content"],
            turn["thought"],
            turn["message"],
            turn["observation"],
            turn["reward"],
            turn["flags"],
            turn["prompt_tokens"],
            turn["completion_tokens"],
            turn["policy_seconds"],
            turn["env_seconds"],
            turn["token_ids"],
            turn["logprobs"],
            orjson.loads(turn["info"] or "{}"),
            [_call(call) for call in calls if call["turn"] == turn["turn"]],
        )
        for turn in exported.turns
    ]
    trajectory.unfinished_calls = [_call(call) for call in calls if call["turn"] > len(exported.turns)]
    return trajectory


def _call(row: Mapping[str, Any]) -> ModelCall:
    """Return a stored call. A call of an earlier version lacks a prompt, and its tokens are the server's count."""
    call_fields = {field.name: row[field.name] for field in fields(ModelCall) if field.name in row}
    prompt = orjson.loads(row["prompt"]) if row.get("prompt") else None
    return ModelCall(**call_fields | {"prompt": prompt, "estimated": bool(row.get("estimated"))})
