"""Preference pairs: two attempts at one task, of which one did better."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from userrl_core.distill import read_chat, to_chat
from userrl_core.errors import TaskError
from userrl_core.records import Trajectory

Pair = tuple[Trajectory, Trajectory]
"""(chosen, rejected)"""


def preference_pairs(trajectories: Iterable[Trajectory], *, margin: float = 0.0, per_task: int = 1) -> list[Pair]:
    """Best against worst attempt at each task, second best against second worst, and so on up to per_task pairs.

    Only admitted attempts with at least one turn; the scores of a pair differ by more than margin. Ties are broken by
    fewer turns, then attempt and seed, so the order of arrival changes nothing but the order of the tasks.
    """
    attempts: dict[str, list[Trajectory]] = defaultdict(list)
    for trajectory in trajectories:
        if trajectory.admitted and trajectory.score is not None and trajectory.turns:
            attempts[trajectory.task.key].append(trajectory)
    pairs: list[Pair] = []
    for known in attempts.values():
        ranked = sorted(known, key=lambda t: (-(t.score or 0.0), len(t.turns), t.attempt, t.seed))
        for k in range(min(per_task, len(ranked) // 2)):
            chosen, rejected = ranked[k], ranked[-1 - k]
            if (chosen.score or 0.0) - (rejected.score or 0.0) > margin:
                pairs.append((chosen, rejected))
    return pairs


def write_pairs(path: Path, pairs: Iterable[Pair]) -> int:
    """Write pairs as JSON lines, whole or not at all; returns how many."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    count = 0
    with partial.open("w", encoding="utf-8") as file:
        for chosen, rejected in pairs:
            file.write(
                json.dumps({"chosen": to_chat(chosen), "rejected": to_chat(rejected)}, ensure_ascii=False) + "\n"
            )
            count += 1
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    return count


def read_pairs(path: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Read pairs of chats; raises TaskError naming the file, the line and what is wrong with it."""
    try:
        # JSON keeps U+2028 and its like inside of texts, and splitlines would end a line there.
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"The pairs in {path} cannot be read: {error}.") from error
    pairs = []
    # Behind the last line's end there is no line more.
    for number, line in enumerate(lines if lines[-1] else lines[:-1], 1):
        where = f"{path}, line {number}"
        try:
            value = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise TaskError(f"{where}: this is not JSON.") from error
        if not isinstance(value, dict) or not {"chosen", "rejected"} <= set(value):
            raise TaskError(f"{where}: a pair needs the fields 'chosen' and 'rejected'.")
        pairs.append(
            (read_chat(value["chosen"], f"{where}, chosen"), read_chat(value["rejected"], f"{where}, rejected"))
        )
    return pairs
