"""Plain conversations: OpenAI's and Anthropic's chats (``{"messages": [...]}``) and ShareGPT (``{"conversations": [...]}``).

Import and supervised training read the same rows. For import a row may also give ``score`` or ``reward``, ``model``,
``task_id`` and ``usage``. Without a score a conversation is stored as not admitted: it can be read, and no average counts
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from analysis.foreign.conversation import ForeignConversation, scored
from analysis.foreign.dialogue import Chat, divided, task_of_opening
from userrl_core.chats.message import MARKS, is_read
from userrl_core.chats.rows import messages_of
from userrl_core.chats.stream import items
from userrl_core.chats.values import count, mapping, name_of

ROW = frozenset(("messages", "conversations", "system", "score", "reward", "model", "task_id", "usage"))
"""The fields of a row that import reads by name. It stores the others with the last turn."""


def read_chats(path: Path) -> Iterator[ForeignConversation]:
    """Yield the conversations of a file with one chat per line, of a JSON list of chats, or of one chat."""
    for where, row in items(path):
        yield _conversation(where, row, messages_of(row, where))


def _conversation(where: str, row: Mapping[str, Any], messages: list[Any]) -> ForeignConversation:
    chat = divided(messages, where)
    value = row["score"] if row.get("score") is not None else row.get("reward")
    score, reason = scored(value, where, "score")
    usage = mapping(row.get("usage") or {}, where, "usage")
    _keep_other_fields(chat, messages)
    others = {key: value for key, value in row.items() if key not in ROW and value not in (None, "", [], {})}
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
        info={"row": others} if others else {},
        unread=chat.unread,
    )
    conversation.add_sum_of_calls()
    return conversation


def _keep_other_fields(chat: Chat, messages: list[Any]) -> None:
    """Store further fields of the agent's messages with their turns, and count those of all other messages."""
    for turn, source in zip(chat.turns, chat.sources, strict=True):
        other_fields = {
            key: value
            for key, value in source.items()
            if not is_read(key, value) or (key in (*MARKS, "name") and value is not None)
        }
        if other_fields:
            turn.info["message"] = other_fields
    for message in messages:
        if message["role"] != "assistant":
            chat.unread.update(f"field {key}" for key, value in message.items() if not is_read(key, value))
