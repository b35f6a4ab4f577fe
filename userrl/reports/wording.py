"""Words for people on how a conversation ended. Stored and queried stop reasons stay as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from userrl_core.number_format import number

ENDED = {
    "success": "solved",
    "horizon": "out of turns",
    "gave_up": "ended unsolved",
    "format": "unreadable reply",
    "length": "reply cut at its limit",
    "error": "error",
    "ended": "ended",
}
"""Words by stop reason."""

_DEMONSTRATOR = re.compile(r"scripted\(skill=([\d.]+)\)")


def ended(stop_reason: str | None, turns: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return a word or two for a stop reason. turns: used to tell a wrong answer from other endings."""
    if stop_reason == "gave_up" and turns and turns[-1]["choice"] == "answer" and not turns[-1]["reward"]:
        return "answered wrong"
    return ENDED.get(str(stop_reason), str(stop_reason))


def outcome(row: Mapping[str, Any], turns: Sequence[Mapping[str, Any]] = (), *, sentence: bool = False) -> str:
    """Return how a conversation ended, with its score and turns. turns: as in `ended`. sentence: begin with a capital."""
    allowed = "" if row["horizon"] is None else f" of {row['horizon']}"
    if row["stop_reason"] is None:
        text = "in progress"
    elif not row["admitted"]:
        text = f"not scored: {row['reject_reason']}"
    else:
        text = f"{ended(row['stop_reason'], turns)}, score {number(row['score'])}, {row['turns']}{allowed} turns"
    return text[0].upper() + text[1:] if sentence else text


def has_failed(row: Mapping[str, Any]) -> bool:
    """Return whether a conversation was scored but did not end in success, as `warehouse.query.browse.FAILED` defines it."""
    return bool(row["admitted"]) and row["stop_reason"] not in (None, "success")


def opening_words(messages: str | None, otherwise: str, *, longest: int = 60) -> str:
    """Return the first words of a task: the user's message before turn 1, cut at the end of a word.

    messages: the column of a trajectory. otherwise: returned if there is no such message.
    """
    texts = [message["content"] for message in json.loads(messages or "[]") if message["role"] == "user"]
    text = " ".join(str(texts[0] if texts else "").split())
    if len(text) <= longest:
        return text or otherwise
    return f"{text[: longest + 1].rpartition(' ')[0] or text[:longest]} …"


def attempt(row: Mapping[str, Any]) -> str:
    """Name an attempt, counted from 1 as turns are. The column counts from 0."""
    return f"attempt {row['attempt'] + 1}"


def other_side(name: str) -> str:
    """Name a policy or user for people."""
    if match := _DEMONSTRATOR.fullmatch(name):
        return f"the demonstrator, skill {match[1]}"
    return "the rule user" if name == "rule" else name


def sentences_of(value: Any) -> list[str]:
    """Return a task's fields as sentences, one for each field: its name, then its value in words."""
    if not isinstance(value, Mapping):
        return [_words(value)]
    return [
        f"{_name(key).capitalize()}: {_words(part)}." for key, part in value.items() if part not in (None, "", [], {})
    ]


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(
            f"{_name(key)} {_words(part)}" for key, part in value.items() if part not in (None, "", [], {})
        )
    if isinstance(value, (list, tuple)):
        nested = any(isinstance(part, (Mapping, list, tuple)) for part in value)
        return (" | " if nested else ", ").join(map(_words, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value).rstrip(".")


def _name(key: object) -> str:
    return str(key).replace("_", " ")
