"""Attribution of a deviation to a turn, by rules over the texts of messages and the arguments of calls.

A wrong write often follows from an earlier message: the agent refused an action of the gold solution, or offered one
outside it. The rules recognise refusals and claims by their words, and an offer by its ids and numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
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
_NEEDS = re.compile(r"\b(i|we)(.ll| will| would)? (also )?(need|require)\b|\bwithout\b|\?", re.IGNORECASE)
_ASKS = re.compile(r"\?|\b(confirm|proceed|would you|shall i|let me know|i('ll| will))\b", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_GENERAL = frozenset(
    {
        "update",
        "modify",
        "change",
        "set",
        "send",
        "get",
        "reservation",
        "order",
        "booking",
        "pending",
        "delivered",
        "user",
        "item",
    }
)
"""Words in the names of tools that tell no two apart."""
HANDOVER = "transfer"
"""Prefix of the names of tools that hand over to a person."""


def refuses(turn: Turn) -> bool:
    """Return whether the turn says that something cannot be done, or hands the customer over to a person."""
    if turn.choice == "answer":
        return str(turn.info.get("tool", "")).startswith(HANDOVER)
    return (turn.choice == "action" and bool(REFUSES.search(turn.content or ""))) or (
        turn.content or ""
    ).strip() == "no"


def declines(turn: Turn, subjects: Set[str], others: Set[str]) -> bool:
    """Return whether the turn refuses something. A message that regrets that it needs a fact does not.

    subjects, others: `tool_subjects` of the writes that may have been refused, and of the other ones. A sentence that names only
    others is no refusal.
    """
    text = turn.content or ""
    if not refuses(turn) or turn.choice == "answer" or text.strip() == "no":
        return refuses(turn)
    sentences = [s.lower() for s in _SENTENCE.split(text) if REFUSES.search(s) and not _NEEDS.search(s)]
    return any(
        any(subject in sentence for subject in subjects) or not any(other in sentence for other in others)
        for sentence in sentences
    )


def tool_subjects(tools: Iterable[str]) -> set[str]:
    """Return the words that tell tools apart in messages, without a plural s: cancel, flight, passenger."""
    return {token.removesuffix("s") for tool in tools for token in tool.split("_")} - _GENERAL


def proposal_of(messages: Sequence[Turn], wrong: Mapping[str, Any], gold: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the number of the message that proposed a wrong write, or None.

    messages: the agent's, before the write. wrong: its arguments. gold: arguments of the gold writes of the same tool. It is the
    last of those that name the most values that no gold write has; where gold has no such write, the last message if it asks.
    """
    if not gold:
        return messages[-1].number if messages and _ASKS.search(messages[-1].content or "") else None
    right = set().union(*(leaf_texts(arguments) for arguments in gold))
    named = [
        (sum(_names(turn.content or "", leaf) for leaf in leaf_texts(wrong) - right), turn.number) for turn in messages
    ]
    count, number = max(named, default=(0, 0))
    return number if count else None


def _names(message: str, leaf: str) -> bool:
    return bool(re.search(rf"(?<!\w){re.escape(leaf)}(?!\w)", message.replace("_", " ").lower()))


def leaf_texts(arguments: Any) -> set[str]:
    """Return the texts and numbers among a call's arguments, in lower case and with spaces."""
    return {text.replace("_", " ").lower() for text in _leaves(arguments)}


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
    return {text for text in _leaves(arguments) if len(text) >= 3 and any(map(str.isdigit, text))}


def _leaves(arguments: Any) -> Iterator[str]:
    if isinstance(arguments, (Mapping, list)):
        for item in arguments.values() if isinstance(arguments, Mapping) else arguments:
            yield from _leaves(item)
    else:
        yield str(arguments)
