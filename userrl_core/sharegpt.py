"""Released SFT data in place of demonstrations: ShareGPT conversations and chats of messages, one JSON list or JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from userrl_core.distill import read_chat
from userrl_core.errors import TaskError
from userrl_core.gyms.released import read_rows

ROLES = {"human": "user", "gpt": "assistant", "function_call": "assistant", "observation": "tool", "system": "system"}
"""ShareGPT's names of who speaks."""


def read_conversations(path: Path) -> list[dict[str, Any]]:
    """The chats of a file. Raises TaskError naming the file, the entry and the problem."""
    return [
        read_chat(_messages(row, f"{path}, entry {n}"), f"{path}, entry {n}")
        for n, row in enumerate(read_rows(path), 1)
    ]


def _messages(row: Any, where: str) -> Any:
    """A ShareGPT row as a chat of messages; what holds messages already stays."""
    if not isinstance(row, dict) or "conversations" not in row:
        return row
    messages = [{"role": "system", "content": row["system"]}] if row.get("system") else []
    for turn in row["conversations"]:
        role = ROLES.get(str(turn.get("from"))) if isinstance(turn, dict) else None
        if role is None or not isinstance(turn.get("value"), str):
            raise TaskError(f"{where}: a turn needs value and from, one of {', '.join(ROLES)}.")
        messages.append({"role": role, "content": turn["value"]})
    tools = row.get("tools") or []
    try:
        return {"messages": messages, "tools": json.loads(tools) if isinstance(tools, str) else tools}
    except ValueError:
        raise TaskError(f"{where}: field 'tools' is not JSON.") from None
