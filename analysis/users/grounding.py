"""Identifiers in a user's words, and whether the user could know them.

An identifier has at least four characters and at least one digit. Ordinals such as 20th do not count. The user knows its
facts and everything that the agent said before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from analysis.users.conversation import Message

_IDENTIFIER = re.compile(r"\b(?=\w*\d)\w{4,}\b")
_ORDINAL = re.compile(r"\d+(st|nd|rd|th)", re.IGNORECASE)


def identifiers(text: str) -> set[str]:
    """Return the different identifiers in a text."""
    return {identifier for identifier in _IDENTIFIER.findall(text) if not _ORDINAL.fullmatch(identifier)}


def normalised(text: str) -> str:
    """Return a text's letters and digits in lower case."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def said_identifiers(messages: Iterable[Message], facts: str) -> Iterator[tuple[Message, str, bool]]:
    """Yield each identifier of a user's message, once a message, and whether the user could know it."""
    known_text = normalised(facts)
    for message in messages:
        if message.speaker == "agent":
            known_text += normalised(message.text)
            continue
        for identifier in sorted(identifiers(message.text)):
            yield message, identifier, normalised(identifier) in known_text


def leaves(value: Any) -> list[str]:
    """Return the texts and numbers in a call's arguments, as texts."""
    if isinstance(value, Mapping):
        return [leaf for item in value.values() for leaf in leaves(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in leaves(item)]
    if value is None or isinstance(value, bool):
        return []
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return [str(value)]
