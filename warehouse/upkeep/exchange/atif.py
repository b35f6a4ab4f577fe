"""The Agent Trajectory Interchange Format (ATIF v1.4, the format of Harbor): one JSON object a conversation.

Steps count from 1: the opening messages, then for each turn the agent's reply with its calls and their observation.
Without a readable call, the observation is the user's next message. The steps of an import have no times.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from warehouse.files.layout import write_atomically
from warehouse.upkeep.exchange.conversations import ExportedConversation

VERSION = "ATIF-v1.4"
SOURCES = {"system": "system", "developer": "system", "assistant": "agent"}
"""The sources of the opening's messages, by role; any other role is the user's."""


def write_atif(conversations: Iterable[ExportedConversation], folder: Path) -> int:
    """Write one file per conversation, named by its id. Return their number."""
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for conversation in conversations:
        path = folder / f"{conversation.trajectory['traj_id']}.json"
        write_atomically(path, orjson.dumps(trajectory(conversation), option=orjson.OPT_INDENT_2))
        count += 1
    return count


def trajectory(conversation: ExportedConversation) -> dict[str, Any]:
    """Return the ATIF object of one conversation."""
    row = conversation.trajectory
    steps: list[dict[str, Any]] = [
        {"source": SOURCES.get(message["role"], "user"), "message": message["content"] or ""}
        for message in conversation.opening
    ]
    for turn in conversation.turns:
        steps += _steps(conversation, turn)
    for number, step in enumerate(steps, 1):
        step["step_id"] = number
    costs = [call["price"] for call in conversation.calls if call["role"] == "policy" and call["price"] is not None]
    return {
        "schema_version": VERSION,
        "session_id": str(row["traj_id"]),
        "agent": {
            "name": "userrl",
            "version": conversation.run["code_version"] or "unknown",
            "model_name": row["policy"],
        },
        "steps": steps,
        "final_metrics": {
            "total_prompt_tokens": row["prompt_tokens"],
            "total_completion_tokens": row["completion_tokens"],
            **({"total_cost_usd": sum(costs)} if costs else {}),
            "total_steps": len(steps),
        },
        "extra": {
            **{
                key: row[key]
                for key in ("run_id", "gym", "task_id", "attempt", "score", "return_sum", "stop_reason", "admitted")
            },
            "checkpoint": row["checkpoint"],
            "user_model": row["user_name"],
            "horizon": row["horizon"],
        },
    }


def _steps(conversation: ExportedConversation, turn: dict[str, Any]) -> list[dict[str, Any]]:
    reply, observation = conversation.reply(turn), conversation.shown(turn)
    agent: dict[str, Any] = {
        "source": "agent",
        **({"timestamp": datetime.fromtimestamp(turn["logged_at"], UTC).isoformat()} if conversation.timed else {}),
        "message": reply.text,
        **({"reasoning_content": reply.reasoning} if reply.reasoning else {}),
        "metrics": {
            "prompt_tokens": turn["prompt_tokens"],
            "completion_tokens": turn["completion_tokens"],
            **({"completion_token_ids": turn["token_ids"]} if turn["token_ids"] else {}),
            **({"logprobs": turn["logprobs"]} if turn["logprobs"] else {}),
            "extra": {"reward": turn["reward"], "shaped": turn["shaped"], "advantage": turn["advantage"]},
        },
    }
    if not reply.calls:
        return [agent] if observation is None else [agent, {"source": "user", "message": observation}]
    agent["tool_calls"] = [
        {"tool_call_id": call_id, "function_name": name, "arguments": arguments}
        for call_id, name, arguments in reply.calls
    ]
    if observation is not None:
        agent["observation"] = {"results": [{"source_call_id": reply.calls[0][0], "content": observation}]}
    return [agent]
