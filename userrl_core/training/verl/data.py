"""Parquet files for verl: tasks for RL (gyms and single-turn problems in one schema) and conversations for SFT.

verl's own data set renders each message of a conversation by itself and trains on every reply. `ChatDataset` reads the
conversations for verl's SFT trainer instead, with the tokens and the mask of the local backend.

A stage's training file holds exactly its rows in the order of its steps, ``batch`` rows a step. verl reads them
without shuffling, so only the recipe assigns tasks to steps. A resumed stage gets a file of the
remaining steps, so verl's own dataloader state is never needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from userrl_core.errors import TaskError
from userrl_core.records import Message, Phase, Task
from userrl_core.replaced_file import replacing

if TYPE_CHECKING:
    from userrl_core.training.local.text.calls import CallStyle
    from userrl_core.training.local.text.chat import ChatFormat

AGENT = "userrl"

RL_SCHEMA = pa.schema(
    [
        ("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("data_source", pa.string()),
        ("agent_name", pa.string()),
        ("ability", pa.string()),
        ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
        ("extra_info", pa.struct([("index", pa.int64()), ("split", pa.string()), ("task", pa.string())])),
        ("userrl", pa.string()),
    ]
)
"""One schema for all tasks, so that one file can mix gyms. ``userrl`` is JSON with the task's location and the phase."""


def rl_row(task: Task, index: int, phase: Phase, tasks_file: Path) -> dict[str, Any]:
    """Return one task as a row. The prompt column only names the task: the gym writes the opening when it is reset."""
    return {
        "prompt": [{"role": "user", "content": task.key}],
        "data_source": task.gym,
        "agent_name": AGENT,
        "ability": task.gym,
        "reward_model": {"style": "rule", "ground_truth": ""},
        "extra_info": {"index": index, "split": task.split, "task": task.key},
        "userrl": json.dumps({"tasks": str(tasks_file), "task": task.key, "phase": phase}, ensure_ascii=False),
    }


def write_rl_parquet(path: Path, tasks: Sequence[Task], phase: Phase, tasks_file: Path) -> int:
    """Write rows in this order, each naming a task of ``tasks_file``. Return their number. Raises TaskError without tasks."""
    if not tasks:
        raise TaskError("task.none_left", f"There are no tasks for {path.name}. verl needs at least one row.")
    rows = [rl_row(task, index, phase, tasks_file) for index, task in enumerate(tasks)]
    _write(path, pa.Table.from_pylist(rows, schema=RL_SCHEMA))
    return len(rows)


def write_sft_parquet(path: Path, chats: Iterable[Mapping[str, Any]], style: CallStyle | None = None) -> int:
    """Write conversations (`userrl_core.distill.to_chat`) in the format of verl's SFT trainer. Return their number.

    style: of the model that reads them; None: calls in JSON, tools for the template. Raises TaskError without conversations.
    """
    rows = [_sft_row(chat, style) for chat in chats]
    if not rows:
        raise TaskError("demonstrations.too_few", "There are no demonstrations to train on. Distil some first.")
    fields = [("role", pa.string()), ("content", pa.string()), ("name", pa.string()), ("train", pa.bool_())]
    given = {key for row in rows for message in row["messages"] for key in message}
    message = pa.struct([field for field in fields if field[0] in given])
    columns: dict[str, Any] = {"messages": pa.array([row["messages"] for row in rows], pa.list_(message))}
    if any(row["tools"] for row in rows):
        # Inferred, not declared: a tool is a JSON schema, and all gyms share its shape.
        columns["tools"] = pa.array([row["tools"] for row in rows])
    _write(path, pa.table(columns))
    return len(rows)


class ChatDataset:
    """The conversations of a Parquet file for verl's SFT trainer (``data.custom_cls``)."""

    def __init__(
        self, parquet_files: Any, tokenizer: Any, config: Any, processor: Any = None, max_samples: int = -1
    ) -> None:
        files = [parquet_files] if isinstance(parquet_files, str) else list(parquet_files)
        self._chats = [chat for file in files for chat in pq.read_table(file).to_pylist()]
        self._chats = self._chats[: max_samples if max_samples > 0 else None]
        self._cutoff = config.max_length
        self._tokenizer = tokenizer
        self._thinking = config.get("apply_chat_template_kwargs", {}).get("enable_thinking")

    def __len__(self) -> int:
        """Return the number of conversations."""
        return len(self._chats)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return one conversation as tensors of shape [L]: its tokens, their positions, and 1 for the agent's tokens."""
        import torch

        encoded = self._format.chat(self._chats[index], self._cutoff)
        ids = torch.tensor(encoded.ids)
        mask = torch.tensor([int(turn >= 0) for turn in encoded.turns])
        return {"input_ids": ids, "position_ids": torch.arange(len(ids)), "loss_mask": mask}

    @cached_property
    def _format(self) -> ChatFormat:
        from userrl_core.training.local.text.chat import ChatFormat
        from userrl_core.training.local.text.tokenizer import set_thinking

        set_thinking(self._tokenizer, self._thinking)
        return ChatFormat(self._tokenizer)


def _sft_row(chat: Mapping[str, Any], style: CallStyle | None) -> dict[str, list[Any]]:
    messages = [_plain(message) for message in chat["messages"]]
    if style is None:
        return {"messages": messages, "tools": _tools(chat)}
    first = next((i for i, message in enumerate(messages) if message["role"] == "assistant"), len(messages))
    opening, tools = style.opening(messages[:first], _tools(chat))
    return {"messages": [*opening, *map(style.following, messages[first:])], "tools": tools}


def _plain(message: Mapping[str, Any]) -> Message:
    return {key: message[key] for key in ("role", "content", "name", "train") if message.get(key) is not None}


def _tools(chat: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [dict(tool) for tool in chat.get("tools") or ()]


def _write(path: Path, table: pa.Table) -> None:
    with replacing(path) as file:
        pq.write_table(table, file)
