"""Replies of a server that is asked as the released code asks: without a schema, with the form described in the prompt."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from userrl_core.errors import JudgeError, UserError
from userrl_core.records import Message, ModelCall
from userrl_core.served.client import ChatServer, client_for
from userrl_core.served.structured import objects

ATTEMPTS = 3
"""Most requests for one reply that can be read (released code: 3, of requests that fail)."""
T = TypeVar("T")


async def ask(
    server: ChatServer,
    messages: Sequence[Message],
    read: Callable[[str], T],
    *,
    role: Literal["user", "judge"],
    ledger: list[ModelCall],
) -> T:
    """Return what ``read`` makes of the reply. An unreadable reply (ValueError) is requested again, with the same messages.

    Raises UserError or JudgeError by role.
    """
    reason = ""
    for _ in range(ATTEMPTS):
        answer = await client_for(server).complete(messages, role=role, ledger=ledger)
        try:
            return read(answer.text)
        except ValueError as error:
            reason = str(error)
    text = f"{server.model} gave no readable reply in {ATTEMPTS} attempts ({reason})"
    if role == "user":
        raise UserError("user.no_reply", text)
    raise JudgeError("judge.no_reply", text)


def read_object(text: str, *keys: str) -> dict[str, Any]:
    """Return the first object in a reply that has the keys: JSON, or a Python literal as the released code reads it.

    Raises ValueError.
    """
    candidates = objects(text)
    start, end = text.find("{"), text.rfind("}")
    if 0 <= start < end:
        try:
            literal = ast.literal_eval(text[start : end + 1])
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            literal = None
        candidates += [literal] if isinstance(literal, dict) else []
    for candidate in candidates:
        if all(key in candidate for key in keys):
            return candidate
    raise ValueError(f"no object with {', '.join(keys)}")


def read_text(value: Any) -> str:
    """Return a text of a reply's object. Raises ValueError if it is no text, or blank."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a field that must hold text does not")
    return value


def spoken(content: str, choice: str = "action") -> str:
    """Return the content without its choice in brackets, which some agents put before it and the released code removes."""
    return content.strip().removeprefix(f"[{choice}]").strip()
