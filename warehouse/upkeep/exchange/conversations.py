"""Conversations as plain data: out of the warehouse, into JSON lines or Parquet. `own_exports` reads them back.

A conversation is its row of `trajectories`, its rows of `turns` and `model_calls`, its task, and its run's row.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

import orjson
import polars as pl

from userrl_core.gyms.prompt import turns_left_as_in
from userrl_core.interact import TOOL_NAME, render_any_call
from userrl_core.records import Flag
from userrl_core.replaced_file import replacing
from warehouse.files.encode import cleaned
from warehouse.files.runs import IMPORTED, find_run
from warehouse.query.warehouse import Warehouse
from warehouse.upkeep.exchange.imported import FIELD_OF

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
CONSENTED = (
    """((policy IS DISTINCT FROM 'human' AND user_name IS DISTINCT FROM 'human') OR traj_id IN (FROM consented()))"""
)
SELECTED = "run_id = $run AND ($phase IS NULL OR phase = $phase) AND ($policy IS NULL OR policy = $policy)"
_THOUGHT = re.compile(r"\s*(?:<think>)?(.*?)</think>\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Reply:
    """An agent's reply in parts. calls: id, name and arguments of each call; none of a plain reply and of one without a
    readable call.
    """

    reasoning: str
    text: str
    calls: list[tuple[str, str, dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class ExportedConversation:
    """One conversation. run, trajectory, turns and calls: rows of the tables. task: the row of `tasks` where it was
    logged, else empty. file: what the run's events say of the file that it was imported from, by kind; with the first
    conversation of an export only.
    """

    run: Mapping[str, Any]
    trajectory: Mapping[str, Any]
    turns: list[dict[str, Any]]
    calls: list[dict[str, Any]]
    task: Mapping[str, Any]
    file: Mapping[str, Any] = field(default_factory=dict)

    @property
    def imported(self) -> bool:
        """Return True for a conversation that another tool recorded: its turns have calls of any tool, or none."""
        return (self.trajectory["source"] or "").startswith(f"{IMPORTED}:")

    @property
    def timed(self) -> bool:
        """Return True if its rows were logged while it was held, and not when a file was imported."""
        return self.run.get("kind") != IMPORTED

    @property
    def opening(self) -> list[dict[str, str]]:
        """Return the messages before the first reply."""
        return list(orjson.loads(self.trajectory["messages"] or "[]"))

    @property
    def messages(self) -> list[dict[str, str]]:
        """Return the chat as the policy saw it: the opening, then its replies and the observations."""
        messages = self.opening
        for turn in self.turns:
            messages.append({"role": "assistant", "content": turn["message"] or ""})
            if (observation := self.shown(turn)) is not None:
                answered = self.imported and self.reply(turn).calls
                messages.append({"role": "tool" if answered else "user", "content": observation})
        return messages

    def reply(self, turn: Mapping[str, Any]) -> Reply:
        """Return the parts of a turn's reply."""
        reasoning, text, calls = (_imported_parts if self.imported else _own_parts)(turn)
        ids = (f"turn-{turn['turn']}" + f"-{n}" * (n > 1) for n in range(1, len(calls) + 1))
        return Reply(
            reasoning,
            text,
            [(call_id, name, _arguments(value)) for call_id, (name, value) in zip(ids, calls, strict=True)],
        )

    def shown(self, turn: Mapping[str, Any]) -> str | None:
        """Return what came back from a turn as the agent saw it, with the turns that it had left if it was shown them.

        None if nothing came back: at the end, and between two replies of another tool's agent.
        """
        observation = turn["observation"] or ""
        if not observation and (self.imported or turn is self.turns[-1]):
            return None
        if turn is self.turns[-1] or not (turn["flags"] or 0) & Flag.TURNS_LEFT:
            return observation
        return observation + turns_left_as_in(self.opening[-1]["content"], self.trajectory["horizon"] - turn["turn"])


def conversations(
    warehouse: Warehouse, run: str, *, phase: str | None = "evaluate", policy: str | None = None
) -> Iterator[ExportedConversation]:
    """Yield a run's finished trajectories in the order of their ids. phase, policy: include only these; None includes all.

    A person's conversation without consent is left out.
    """
    row = find_run(warehouse.root, run)
    relation = warehouse.sql(
        f"SELECT * FROM trajectories WHERE {SELECTED} AND {CONSENTED} ORDER BY traj_id",
        run=row["run_id"],
        phase=phase,
        policy=policy,
    )
    rows = relation.pl().to_dicts()
    events = warehouse.rows(
        "SELECT kind, fields FROM events WHERE run_id = $run AND list_contains($kinds, kind) ORDER BY seq",
        run=row["run_id"],
        kinds=list(FIELD_OF),
    )
    file = {event["kind"]: json.loads(event["fields"])[FIELD_OF[event["kind"]]] for event in events}
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
                about, trajectory, turns.get(traj_id, []), calls.get(traj_id, []), tasks.get(key, {}), file
            )
            file = {}


def without_consent(
    warehouse: Warehouse, run: str, *, phase: str | None = "evaluate", policy: str | None = None
) -> int:
    """Return the number of conversations that `conversations` leaves out, because a person did not consent."""
    (row,) = warehouse.rows(
        f"SELECT count(*) AS n FROM trajectories WHERE {SELECTED} AND NOT {CONSENTED}",
        run=find_run(warehouse.root, run)["run_id"],
        phase=phase,
        policy=policy,
    )
    return int(row["n"])


_Parts: TypeAlias = tuple[str, str, list[tuple[str, Any]]]
"""Reasoning, text, and name and arguments of each call."""


def _own_parts(turn: Mapping[str, Any]) -> _Parts:
    """Return the parts of a reply in a gym. A gym has our tool alone, and plays the first call of a reply."""
    text, calls = turn["message"] or "", list[tuple[str, Any]]()
    if turn["choice"] is not None:
        calls = [(TOOL_NAME, {"choice": turn["choice"], "content": turn["content"]})]
        text = text.partition("<tool_call>")[0].removesuffix("\n")
    match = _THOUGHT.match(text)
    return (match[1].strip(), text[match.end() :], calls) if match else ("", text, calls)


def _imported_parts(turn: Mapping[str, Any]) -> _Parts:
    """Return the parts of another tool's reply. Its text was stored with its calls, and its reasoning with its text."""
    text, thought, content = (turn[column] or "" for column in ("message", "thought", "content"))
    if content == text:
        return thought, text, []
    choice = turn["choice"] or ""
    text, _, later = text.partition(cleaned(render_any_call(choice, content)))
    text = text.removesuffix("\n")
    return thought.removesuffix(text).removesuffix("\n"), text, [(choice, content), *_rendered_calls(later)]


def _rendered_calls(text: str) -> list[tuple[str, Any]]:
    """Return name and arguments of calls that `render_any_call` wrote: the second of three lines is JSON. [] for others."""
    try:
        calls = [json.loads(line) for line in text.split("\n")[2::3]]
        return [(call["name"], call["arguments"]) for call in calls]
    except (ValueError, RecursionError, KeyError, TypeError):
        return []


def _arguments(value: Any) -> dict[str, Any]:
    """Return the arguments of a call as an object. Others, which may be any text, are its field ``arguments``."""
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    return value if isinstance(value, dict) else {"arguments": value}


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
