"""Conversations of another tool, stored as a run of kind ``imported``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from analysis.foreign.conversation import ForeignCall, ForeignConversation
from userrl_core.chats.values import broken
from userrl_core.key_names import without_keys
from warehouse.files import encode
from warehouse.files.layout import claim, run_dir
from warehouse.files.runs import IMPORTED, read_run, register_copy
from warehouse.upkeep.exchange.staging import staging
from warehouse.write.turn_log import TurnLog
from warehouse.write.wal import SEGMENT_ROWS

PHASE = "evaluate"
"""The phase of imported conversations: the one whose scores are compared."""
NOT_STORED = "not_stored"
"""The event with the number of parts and fields of the file, by name, that have no stored form, and of values that are keys."""
ABOUT_FILE = "about_file"
"""The event with what the file says of all its conversations."""
FIELD_OF: Mapping[str, str] = {NOT_STORED: "counts", ABOUT_FILE: "facts"}
"""The field of each event that describes an imported file."""


def imported_run(root: Path, run_id: str) -> dict[str, Any] | None:
    """Return the row of an imported run, or None for an unknown one."""
    row = read_run(run_dir(root, run_id))
    return row if row is not None and row.get("kind") == IMPORTED else None


def store(
    root: Path, run_id: str, conversations: Iterable[ForeignConversation], *, format: str, name: str, **fields: Any
) -> None:
    """Store all conversations as a new run, or none of them.

    format: stored in ``source``. name: the run's name, and the policy of conversations whose file names no model. fields:
    further columns of `runs`. Raises ConfigError for a broken conversation, LogError when the run cannot be written.
    """
    target = run_dir(root, run_id)
    with staging(root) as staging_folder:
        if target.exists():
            return
        folder = staging_folder / target.name
        row = register_copy(root, folder, run_id, {"name": name, **fields, "kind": IMPORTED})
        with TurnLog(folder, row, claim(folder / "incarnations"), claim(folder / "writers"), SEGMENT_ROWS) as log:
            _write(log, conversations, format, name)


def _write(log: TurnLog, conversations: Iterable[ForeignConversation], format: str, name: str) -> None:
    attempt_keys: set[tuple[str, str, str, int]] = set()
    attempts: Counter[tuple[str, str, str]] = Counter()
    unread: Counter[str] = Counter()
    facts: Mapping[str, Any] = {}
    for item in conversations:
        policy = item.policy or name
        task = (item.gym, item.task_id, policy)
        attempt = attempts[task] if item.attempt is None else item.attempt
        attempts[task] += 1
        if (*task, attempt) in attempt_keys:
            broken(item.where, f"attempt {attempt + 1} at task {item.task_id} occurs twice in the file")
        attempt_keys.add((*task, attempt))
        unread += item.unread
        if not item.turns:  # the last turn would hold them
            unread.update(f"field {key}" for key in {**item.info, **item.info.get("row", {})} if key != "row")
        try:
            log.imported(
                _trajectory(item, format, policy, attempt),
                [_turn(item, number, unread) for number in range(len(item.turns))],
                _calls(item),
                _storable(item.payload, unread),
            )
        except (RecursionError, TypeError):
            broken(item.where, "it is nested too deeply")
        facts = item.file or facts
    if facts:  # complete only now
        log.event(ABOUT_FILE, facts=_storable(facts, unread))
    if unread:
        log.event(NOT_STORED, counts=dict(unread.most_common()))


def _trajectory(item: ForeignConversation, format: str, policy: str, attempt: int) -> dict[str, Any]:
    rewards = [turn.reward for turn in item.turns if turn.reward is not None]
    admitted = item.reject_reason is None
    return {
        "phase": PHASE,
        "gym": item.gym,
        "task_id": item.task_id,
        "attempt": attempt,
        "group_id": f"{policy}/{item.gym}/{item.task_id}",
        "tier": "",
        "source": f"{IMPORTED}:{format}",
        "seed": item.seed,
        "policy": policy,
        "user_name": item.user,
        "turns": len(item.turns),
        "stop_reason": item.ending,
        "score": item.score if admitted else None,
        "return_sum": sum(rewards) if rewards and len(rewards) == len(item.turns) and admitted else None,
        "admitted": admitted,
        "reject_reason": item.reject_reason,
        "prompt_tokens": _total(item.prompt_tokens, [turn.prompt_tokens for turn in item.turns]),
        "completion_tokens": _total(item.completion_tokens, [turn.completion_tokens for turn in item.turns]),
        "policy_seconds": _total(item.seconds, [turn.seconds for turn in item.turns]),
        "messages": encode.text(item.opening),
    }


def _total(total: float | None, parts: Sequence[float | None]) -> float | None:
    """Return the sum that the file gives, or the sum over turns if all turns have a value."""
    if total is not None or not parts:
        return total
    values = [part for part in parts if part is not None]
    return sum(values) if len(values) == len(parts) else None


def _turn(item: ForeignConversation, number: int, unread: Counter[str]) -> dict[str, Any]:
    turn = item.turns[number]
    info = {**turn.info, **item.info} if number == len(item.turns) - 1 else turn.info
    return {
        "turn": number + 1,
        "choice": turn.choice,
        "content": turn.content,
        "thought": turn.thought,
        "message": turn.message,
        "observation": turn.observation,
        "reward": turn.reward,
        "prompt_tokens": turn.prompt_tokens,
        "completion_tokens": turn.completion_tokens,
        "policy_seconds": turn.seconds,
        "info": encode.text(_storable(info, unread)) if info else None,
    }


def _storable(value: Any, unread: Counter[str]) -> Any:
    return _in_words(without_keys(value, unread))


def _in_words(value: Any) -> Any:
    """Return a value of JSON in which numbers that are not finite are words (``nan``, ``inf``): encoded, they would be null."""
    if isinstance(value, Mapping):
        return {key: _in_words(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_in_words(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _calls(item: ForeignConversation) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number, turn in enumerate(item.turns, 1):
        _add(rows, number, turn.calls)
    _add(rows, len(item.turns) + 1, item.calls)
    return rows


def _add(rows: list[dict[str, Any]], turn: int, calls: list[ForeignCall]) -> None:
    rows += [{"turn": turn, "n": n, **asdict(call)} for n, call in enumerate(calls, 1)]
