"""tau-bench's 200 recorded airline conversations as trajectories, in the form of an import."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from userrl_core.records import Task, Trajectory, Turn


def recorded(root: Path) -> list[Trajectory]:
    """Return the conversations in the file's order. root: the folder of tau-bench's data."""
    rows = json.loads((root / "trajectories_gpt-4o-airline.json").read_text(encoding="utf-8"))
    return [_trajectory(row) for row in rows]


def _trajectory(row: dict[str, Any]) -> Trajectory:
    turns: list[Turn] = []
    opening = []
    for message in row["traj"]:
        text = message.get("content") or ""
        if message["role"] == "assistant":
            call = (message.get("tool_calls") or [None])[0]
            choice, content = (call["function"]["name"], call["function"]["arguments"]) if call else ("message", text)
            turns.append(Turn(len(turns) + 1, choice, content, text if call else "", text, "", None))
        elif turns:
            turns[-1].observation = text
        else:
            opening.append({"role": message["role"], "content": text})
    return Trajectory(
        Task("tau-bench", str(row["task_id"]), "test", row["info"]["task"], "imported:tau-bench"),
        row["trial"],
        30,
        0,
        messages=opening,
        turns=turns,
        stop_reason="success" if row["reward"] == 1.0 else None,
        score=row["reward"],
    )
