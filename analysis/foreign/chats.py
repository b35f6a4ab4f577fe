"""Plain conversations: OpenAI's and Anthropic's chats (``{"messages": [...]}``) and ShareGPT (``{"conversations": [...]}``).

Import and supervised training read the same rows. For import a row may also give ``score`` or ``reward``, ``model``,
``task_id`` and ``usage``. Without a score a conversation is stored as not admitted: it can be read, and no average counts
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from analysis.foreign.conversation import ForeignConversation, other_fields, scored
from analysis.foreign.dialogue import divided, task_of_opening
from userrl_core.chats.rows import messages_of
from userrl_core.chats.stream import items
from userrl_core.chats.values import count, mapping, name_of

ROW = frozenset(("messages", "conversations", "system", "score", "reward", "model", "task_id", "usage"))
"""The fields of a row that import reads by name. It stores the others with the last turn."""
USAGE = ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens", "total_tokens")
"""The fields of ``usage`` of OpenAI and of Anthropic that are read, and the sum of both."""


def read_chats(path: Path) -> Iterator[ForeignConversation]:
    """Yield the conversations of a file with one chat per line, of a JSON list of chats, or of one chat."""
    for where, row in items(path):
        yield _conversation(where, row, messages_of(row, where))


def _conversation(where: str, row: Mapping[str, Any], messages: list[Any]) -> ForeignConversation:
    chat = divided(messages, where)
    field = "score" if row.get("score") is not None else "reward"
    score, reason = scored(row.get(field), where, "score")
    usage = mapping(row.get("usage") or {}, where, "usage")
    texts = [key for key, value in other_fields(row, ROW).items() if isinstance(value, str | list | dict)]
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
        prompt_tokens=_tokens(usage, ("prompt_tokens", "input_tokens"), where, chat.unread),
        completion_tokens=_tokens(usage, ("completion_tokens", "output_tokens"), where, chat.unread),
        unread=chat.unread,
        silent=chat.silent,
        elsewhere=texts,
    )
    conversation.keep(other_fields(row, ROW - {"reward"} | {field}), **{field: row.get(field)})
    conversation.count(usage, USAGE, "usage.")
    conversation.add_sum_of_calls()
    return conversation


def _tokens(usage: Mapping[str, Any], keys: tuple[str, str], where: str, unread: Counter[str]) -> int | None:
    return next((count(usage[key], where, f"usage.{key}", unread) for key in keys if usage.get(key) is not None), None)
