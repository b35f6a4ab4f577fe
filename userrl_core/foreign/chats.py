"""Plain conversations: OpenAI chat lines (``{"messages": [...]}``) and ShareGPT.

A line may also give ``score`` or ``reward``, ``model``, ``task_id`` and ``usage``. Without a score a conversation is
stored as not admitted: it can be read, and no average counts it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from userrl_core.errors import ConfigError, TaskError
from userrl_core.foreign.conversation import (
    ForeignConversation,
    broken,
    count,
    divided,
    mapping,
    name_of,
    scored,
    sequence,
    task_of_opening,
)
from userrl_core.foreign.stream import items
from userrl_core.sharegpt import chat_of


def read_openai_chat(path: Path) -> Iterator[ForeignConversation]:
    """Yield the conversations of a file with one chat per line, or of a JSON list of chats."""
    for where, row in items(path):
        if not isinstance(row.get("messages"), list):
            broken(where, "a chat needs a list 'messages'")
        yield _conversation(where, row, row["messages"])


def read_sharegpt(path: Path) -> Iterator[ForeignConversation]:
    """Yield the conversations of a ShareGPT file: a JSON list, or one conversation per line."""
    for where, row in items(path):
        if not isinstance(row.get("conversations"), list):
            broken(where, "a conversation of ShareGPT needs a list 'conversations'")
        try:
            chat = chat_of(row, where)
        except TaskError as error:
            raise ConfigError("import.broken_file", f"{error} Nothing was imported.") from None
        yield _conversation(where, row, chat["messages"])


def _conversation(where: str, row: Mapping[str, Any], messages: Any) -> ForeignConversation:
    chat = divided(sequence(messages, where, "messages"), where)
    value = row["score"] if row.get("score") is not None else row.get("reward")
    score, reason = scored(value, where, "score")
    usage = mapping(row.get("usage") or {}, where, "usage")
    conversation = ForeignConversation(
        where,
        "chat",
        name_of(row.get("task_id")) or task_of_opening(chat.opening),
        {"messages": chat.opening} if chat.opening else {},
        chat.opening,
        chat.turns,
        score=score,
        policy=name_of(row.get("model")),
        reject_reason=reason,
        prompt_tokens=count(usage.get("prompt_tokens"), where, "usage.prompt_tokens"),
        completion_tokens=count(usage.get("completion_tokens"), where, "usage.completion_tokens"),
    )
    conversation.add_sum_of_calls()
    return conversation
