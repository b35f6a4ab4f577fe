"""Attribution of a deviation to a turn, by rules over the texts of messages and the arguments of calls.

A wrong write often follows from an earlier message: the agent refused an action of the gold solution, or offered one
outside it. The rules recognise refusals and claims by their words, and an offer by its ids and numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from userrl_core.records import Turn

REFUSES = re.compile(
    r"\b(cannot|can't|can not|unable|not able|not possible|impossible|not allowed|no longer possible|unfortunately|not eligible)\b",
    re.IGNORECASE,
)
CLAIMS = re.compile(
    r"\b(done|settled|all set|taken care of|completed|confirmed|(has|have) (now |just |already )?been|"
    r"(i|we)('ve| have) (now |just |already |successfully )?\w+ed|successfully)\b",
    re.IGNORECASE,
)
HANDOVER = "transfer"
"""Prefix of the names of tools that hand over to a person."""


def refuses(turn: Turn) -> bool:
    """Return whether the turn says that something cannot be done, or hands the customer over to a person."""
    if turn.choice == "answer":
        return str(turn.info.get("tool", "")).startswith(HANDOVER)
    return (turn.choice == "action" and bool(REFUSES.search(turn.content or ""))) or (
        turn.content or ""
    ).strip() == "no"


def claims(turn: Turn) -> bool:
    """Return whether a message reports that something was done."""
    return turn.choice == "action" and bool(CLAIMS.search(turn.content or ""))


def offered(turns: Sequence[Turn], wrong: Mapping[str, Any], gold: Iterable[Mapping[str, Any]]) -> int | None:
    """Return the first message that names the wrong ids or numbers of a write, unless the customer had named them; else None.

    wrong: arguments of the write. gold: arguments of the gold writes.
    """
    right = set().union(*(values(call_arguments) for call_arguments in gold))
    foreign = values(wrong) - right
    customer_text = " ".join(turn.observation or "" for turn in turns if turn.choice == "action")
    agent_values = {value for value in foreign if value not in customer_text}
    for turn in turns:
        if turn.choice == "action" and any(value in (turn.content or "") for value in agent_values):
            return turn.number
    return None


def values(arguments: Any) -> set[str]:
    """Return the ids and numbers among a call's arguments: texts of three characters or more with a digit in them."""
    if isinstance(arguments, Mapping):
        return set().union(*(values(item) for item in arguments.values()), set())
    if isinstance(arguments, list):
        return set().union(*(values(item) for item in arguments), set())
    text = str(arguments)
    return {text} if len(text) >= 3 and any(character.isdigit() for character in text) else set()
