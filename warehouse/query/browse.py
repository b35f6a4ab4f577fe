"""Trajectories for people: filtered and sorted lists in pages, one conversation, one group.

A page is found by the key of the row before it (the sorted value and traj_id), never by counting rows from the
beginning. The last page of millions therefore costs as much as the first one. Every query has its own cursor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import orjson

from userrl_core.errors import ConfigError
from userrl_core.suggest import nearest
from warehouse.query.warehouse import Warehouse
from warehouse.schema import literal

Row = dict[str, Any]

SORTS: Mapping[str, str] = {
    "newest": "logged_at",
    "step": "step",
    "score": "score",
    "return": "return_sum",
    "turns": "turns",
    "tokens": "completion_tokens",
    "seconds": "policy_seconds + env_seconds",
}
"""The sort orders of a list."""

LISTED = (
    *(
        "traj_id",
        "run_id",
        "stage",
        "step",
        "phase",
        "gym",
        "tier",
        "task_id",
        "attempt",
        "group_id",
        "policy",
        "user_name",
    ),
    *("turns", "score", "return_sum", "stop_reason", "admitted", "reject_reason", "completion_tokens", "logged_at"),
)
"""The columns of a list."""

FAILED = "failed"
"""A pseudo stop reason: every scored trajectory that did not end in its gym's success."""

FOUND = 500
"""Maximum number of turns in a text search, the newest first."""


@dataclass(frozen=True, slots=True)
class Filter:
    """The conditions on listed trajectories; None lets all pass.

    stop: a stop reason, or `FAILED`. score_from, score_to: bounds of the score, both included. text: words, or "a
    phrase", in a turn. reject_reason: its beginning. label: ``name=value``, of the
    conversation or of one of its turns.
    """

    run: str | None = None
    stage: str | None = None
    step: int | None = None
    phase: str | None = None
    gym: str | None = None
    policy: str | None = None
    user: str | None = None
    task: str | None = None
    group: str | None = None
    score_from: float | None = None
    score_to: float | None = None
    stop: str | None = None
    reject_reason: str | None = None
    text: str | None = None
    label: str | None = None

    @classmethod
    def read(cls, texts: Mapping[str, str]) -> Filter:
        """Create a filter from texts by name, as in a URL; empty texts and other names are ignored.

        Raises ConfigError for a text that should be a number.
        """
        kinds: dict[str, type] = {"step": int, "score_from": float, "score_to": float}
        values: Row = {}
        for field in fields(cls):
            if text := texts.get(field.name, "").strip():
                try:
                    values[field.name] = kinds.get(field.name, str)(text)
                except ValueError:
                    raise ConfigError("argument.malformed", f"{field.name} is '{text[:40]}'. Give a number.") from None
        return cls(**values)

    def given(self) -> Row:
        """Return the conditions that are not None, by name."""
        return {
            condition.name: value for condition in fields(self) if (value := getattr(self, condition.name)) is not None
        }


@dataclass(frozen=True, slots=True)
class Page:
    """The rows of one page in order. before, after: True if there are rows before or after it."""

    rows: list[Row]
    before: bool
    after: bool


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """One trajectory with its turns in order.

    trajectory: its row; for an unfinished trajectory the values from its turns, with the rest null. task: the payload
    that was played, None where the run did not log it.
    """

    trajectory: Row
    turns: list[Row]
    run: Row
    task: Any

    @property
    def mean_advantage(self) -> float | None:
        """The mean advantage over the turns. None without credited turns."""
        advantages = [turn["advantage"] for turn in self.turns if turn["advantage"] is not None]
        return sum(advantages) / len(advantages) if advantages else None


def trajectories(
    warehouse: Warehouse,
    filters: Filter,
    *,
    sort: str = "newest",
    descending: bool = True,
    after: int | None = None,
    before: int | None = None,
    size: int = 50,
) -> Page:
    """Return one page of the trajectories that pass the filter.

    after, before: the traj_id of the row that the page follows or precedes; it must be a row of the warehouse. Raises
    ConfigError for an unknown sort and for an impossible search.
    """
    if sort not in SORTS:
        raise ConfigError(
            "argument.unknown_value",
            f"Trajectories cannot be sorted by '{sort}'{nearest(sort, SORTS)}. Use {', '.join(SORTS)}.",
        )
    where, params = _condition(warehouse, filters)
    backwards = before is not None
    down = descending != backwards
    key = before if backwards else after
    if key is not None:
        where.append(_beyond(SORTS[sort], down=down, backwards=backwards))
        params |= {"key": key, "value": _sorted_value(warehouse, key, SORTS[sort])}
    direction = "DESC" if down else "ASC"
    text = (
        f"SELECT {', '.join(f't.{column}' for column in LISTED)} FROM trajectories t{_where(where)} "
        f"ORDER BY {SORTS[sort]} {direction} NULLS {'FIRST' if backwards else 'LAST'}, t.traj_id {direction} LIMIT {size + 1}"
    )
    rows = warehouse.rows(text, **params)
    more, rows = len(rows) > size, rows[:size]
    if backwards:
        rows.reverse()
    return Page(rows, before=more if backwards else key is not None, after=backwards or more)


def count(warehouse: Warehouse, filters: Filter) -> Row:
    """Return the number of trajectories that pass, and the mean score of admitted ones (``trajectories``, ``score``).

    The score is null unless all are of one run, gym, phase and agent: a mean over unlike scores means nothing.
    """
    where, params = _condition(warehouse, filters)
    text = (
        "SELECT count(*) AS trajectories, CASE WHEN count(DISTINCT (run_id, gym, phase, policy)) = 1 THEN "
        f"avg(score) FILTER (admitted) END AS score FROM trajectories t{_where(where)}"
    )
    return warehouse.rows(text, **params)[0]


def values(warehouse: Warehouse, run: str | None) -> dict[str, list[str]]:
    """Return the filter values: the distinct stages, phases, gyms, policies, users and stop reasons of a run, or of all."""
    names = {
        "stage": "stage",
        "phase": "phase",
        "gym": "gym",
        "policy": "policy",
        "user": "user_name",
        "stop": "stop_reason",
    }
    text = f"SELECT {', '.join(f'list_sort(list(DISTINCT {c})) AS {n}' for n, c in names.items())} FROM trajectories"
    row = warehouse.rows(text + (" WHERE run_id = $run" if run else ""), **({"run": run} if run else {}))[0]
    return {name: [str(value) for value in row[name] or [] if value] for name in names}


def conversation(warehouse: Warehouse, traj_id: int) -> StoredConversation | None:
    """Return one trajectory with all its rows, even a superseded one; None without rows for this id."""
    turns = warehouse.stored("turns", [traj_id])
    end_rows = warehouse.stored("trajectories", [traj_id])
    if not turns and not end_rows:
        return None
    turns.sort(key=lambda turn: turn["turn"])
    row = end_rows[0] if end_rows else _unfinished(turns)
    runs = warehouse.rows("FROM runs WHERE run_id = $run", run=row["run_id"])
    return StoredConversation(row, turns, runs[0] if runs else {}, _task(warehouse, row))


def conversations(warehouse: Warehouse, run: str, traj_ids: Sequence[int]) -> dict[int, StoredConversation]:
    """Return finished trajectories of one run with their turns and tasks, by id. Four queries, however many there are."""
    if not traj_ids:
        return {}
    rows = warehouse.stored("trajectories", list(traj_ids))
    turns: dict[int, list[Row]] = {row["traj_id"]: [] for row in rows}
    for turn in warehouse.stored("turns", list(turns)):
        turns[turn["traj_id"]].append(turn)
    runs = warehouse.rows("FROM runs WHERE run_id = $run", run=run)
    payloads: dict[tuple[str, str, str | None], Any] = {}
    text = (
        "SELECT gym, task_id, version, payload FROM store.tasks "
        "WHERE run_id = $run AND list_contains($tasks, task_id) ORDER BY seq DESC"
    )
    for task in warehouse.rows(text, run=run, tasks=[row["task_id"] for row in rows]):
        for version in (None, task["version"]):
            payloads[task["gym"], task["task_id"], version] = task["payload"]
    stored = {}
    for row in rows:
        key = row["gym"], row["task_id"]
        payload = payloads.get((*key, row["task_version"])) or payloads.get((*key, None))
        ordered = sorted(turns[row["traj_id"]], key=lambda turn: turn["turn"])
        stored[row["traj_id"]] = StoredConversation(
            row, ordered, runs[0] if runs else {}, orjson.loads(payload) if payload else None
        )
    return stored


def model_calls(warehouse: Warehouse, traj_id: int, turn: int) -> list[Row]:
    """Return the calls of served models in one turn, in order."""
    calls = [call for call in warehouse.stored("model_calls", [traj_id]) if call["turn"] == turn]
    return sorted(calls, key=lambda call: call["n"])


def group(warehouse: Warehouse, traj_id: int) -> list[StoredConversation]:
    """Return this trajectory's group (one task in one step), by attempt; without run and task."""
    target_rows = warehouse.stored("trajectories", [traj_id])
    if not target_rows:
        return []
    return _alike_in(warehouse, target_rows[0], ("run_id", "stage", "step", "phase", "gym", "group_id"))


def rivals(warehouse: Warehouse, traj_id: int) -> list[StoredConversation]:
    """Return the conversations to compare this one with: its group, or after training all policies on its task.

    Without run and task, this conversation included.
    """
    target_rows = warehouse.stored("trajectories", [traj_id])
    if not target_rows or target_rows[0]["phase"] != "evaluate":
        return group(warehouse, traj_id)
    return _alike_in(warehouse, target_rows[0], ("run_id", "phase", "gym", "task_id", "task_version"))


def _alike_in(warehouse: Warehouse, row: Row, columns: Sequence[str]) -> list[StoredConversation]:
    """Return at most 64 trajectories with this row's values in the columns, by attempt, with their turns."""
    where = " AND ".join(f"{name} IS NOT DISTINCT FROM {literal(row[name])}" for name in columns)
    group_rows = warehouse.rows(f"FROM trajectories WHERE {where} ORDER BY attempt, traj_id LIMIT 64")
    by_id: dict[int, list[Row]] = {row["traj_id"]: [] for row in group_rows}
    for turn in warehouse.stored("turns", list(by_id)):
        by_id[turn["traj_id"]].append(turn)
    return [
        StoredConversation(row, sorted(by_id[row["traj_id"]], key=lambda t: t["turn"]), {}, None) for row in group_rows
    ]


def spread_groups(warehouse: Warehouse, run: str, *, limit: int = 50, condition: str = "true") -> list[Row]:
    """Return the group with the largest score difference of each gym and stage, the largest first.

    Each row has the best and the worst trajectory, and ``messages``: the messages before their first turn. condition: SQL of
    ours that keeps the trajectories that count.
    """
    text = (
        "FROM (SELECT stage, step, phase, gym, task_id, group_id, any_value(tier) AS tier, count(*) AS n, min(score) AS worst, "
        "max(score) AS best, max(score) - min(score) AS apart, arg_max(traj_id, score) AS best_id, "
        "arg_min(traj_id, score) AS worst_id, arg_max(stop_reason, score) AS best_stop, arg_min(stop_reason, score) AS worst_stop "
        f"FROM trajectories WHERE run_id = $run AND admitted AND {condition} GROUP BY ALL HAVING n > 1) "
        "QUALIFY row_number() OVER (PARTITION BY gym, stage ORDER BY apart DESC, step DESC, best_id DESC) = 1 "
        f"ORDER BY apart DESC, step DESC, best_id DESC LIMIT {limit}"
    )
    rows = warehouse.rows(text, run=run)
    best_ids = [row["best_id"] for row in rows]
    stored = warehouse.stored("trajectories", best_ids, "traj_id, messages") if rows else []
    messages = {row["traj_id"]: row["messages"] for row in stored}
    return [{**row, "messages": messages.get(row["best_id"])} for row in rows]


def parting(turns_by_trajectory: Sequence[Sequence[Row]]) -> list[int | None]:
    """Return, for each trajectory, the first turn that makes it different from all others; None for one that equals another."""
    texts = [[(t["choice"], t["content"], t["observation"]) for t in turns] for turns in turns_by_trajectory]
    first_differences: list[int | None] = []
    for n, turn_texts in enumerate(texts):
        shared = 0
        for m, other in enumerate(texts):
            if m != n:
                shared = max(shared, _alike(turn_texts, other))
        equal = any(turn_texts == other for m, other in enumerate(texts) if m != n)
        first_differences.append(None if equal else shared + 1)
    return first_differences


def shared_turns(first: Sequence[Row], second: Sequence[Row]) -> int:
    """Return the number of identical first turns of two trajectories."""
    first_turns, second_turns = (
        [(t["choice"], t["content"], t["observation"]) for t in turns] for turns in (first, second)
    )
    return _alike(first_turns, second_turns)


def _alike(first: Sequence[Any], second: Sequence[Any]) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )


def _beyond(sorted_by: str, *, down: bool, backwards: bool) -> str:
    """Return SQL that keeps the rows beyond ($value, $key). Null sorts last in both directions; on the way back, first."""
    further = "<" if down else ">"
    of_equal = f"t.traj_id {further} $key"
    of_value = f"{sorted_by} {further} $value OR ({sorted_by} = $value AND {of_equal})"
    of_null = f"{sorted_by} IS NULL AND {of_equal}"
    if backwards:
        of_null = f"({of_null}) OR {sorted_by} IS NOT NULL"
    else:
        of_value = f"{of_value} OR {sorted_by} IS NULL"
    return f"CASE WHEN $value IS NULL THEN {of_null} ELSE {of_value} END"


def _sorted_value(warehouse: Warehouse, key: int, sorted_by: str) -> float | None:
    rows = warehouse.stored("trajectories", [key], f"CAST({sorted_by} AS DOUBLE) AS value")
    if not rows:
        raise ConfigError(
            "run.no_such_trajectory", f"There is no trajectory {key} to continue from. Begin at the first page."
        )
    value = rows[0]["value"]
    return None if value is None else float(value)


def _condition(warehouse: Warehouse, filters: Filter) -> tuple[list[str], Row]:
    columns = {
        "run": "run_id", "stage": "stage", "step": "step", "phase": "phase", "gym": "gym", "policy": "policy",
        "user": "user_name", "task": "task_id", "group": "group_id", "stop": "stop_reason",
    }  # fmt: skip
    conditions = filters.given()
    where = [f"t.{columns[name]} = ${name}" for name in conditions if name in columns]
    if filters.stop == FAILED:
        where[where.index("t.stop_reason = $stop")] = "t.admitted AND t.stop_reason <> 'success'"
        del conditions["stop"]
    if filters.score_from is not None:
        where.append("t.score >= $score_from")
    if filters.score_to is not None:
        where.append("t.score <= $score_to")
    if filters.reject_reason is not None:
        where.append("starts_with(t.reject_reason, $reject_reason)")
    if filters.text is not None:
        traj_ids = warehouse.trajectories_with(filters.text, limit=FOUND, run=filters.run)
        where.append(f"t.traj_id IN ({', '.join(map(str, traj_ids)) or 'NULL'})")
    if filters.label is not None:
        conditions["label_name"], _, conditions["label_value"] = filters.label.partition("=")
        where.append("t.traj_id IN (SELECT traj_id FROM labels WHERE name = $label_name AND value = $label_value)")
    return where, {name: value for name, value in conditions.items() if name not in ("text", "label")}


def _where(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _unfinished(turns: Sequence[Row]) -> Row:
    shared = ("traj_id", "run_id", "stage", "step", "phase", "gym", "task_id", "attempt", "group_id")
    return {**dict.fromkeys((*LISTED, "messages", "horizon", "task_version"))} | {k: turns[0][k] for k in shared}


def _task(warehouse: Warehouse, row: Row) -> Any:
    text = (
        "SELECT payload FROM store.tasks WHERE run_id = $run AND gym = $gym AND task_id = $task "
        "ORDER BY version IS NOT DISTINCT FROM $version DESC, seq LIMIT 1"
    )
    params = {"run": row["run_id"], "gym": row["gym"], "task": row["task_id"], "version": row["task_version"]}
    rows = warehouse.rows(text, **params)
    return orjson.loads(rows[0]["payload"]) if rows and rows[0]["payload"] else None
