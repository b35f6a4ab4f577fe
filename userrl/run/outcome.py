"""How a conversation ended, in words for people; the stop reasons that are stored and asked for stay as they are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

ENDED = {
    "success": "solved",
    "horizon": "out of turns",
    "gave_up": "ended unsolved",
    "format": "unreadable reply",
    "length": "reply cut at its limit",
    "error": "error",
}
"""By stop reason."""

_DEMONSTRATOR = re.compile(r"scripted\(skill=([\d.]+)\)")


def ended(stop_reason: str | None, turns: Sequence[Mapping[str, Any]] = ()) -> str:
    """In a word or two. turns: where they are at hand, a wrong answer is told from other ways of ending a conversation."""
    if stop_reason == "gave_up" and turns and turns[-1]["choice"] == "answer" and not turns[-1]["reward"]:
        return "answered wrong"
    return ENDED.get(str(stop_reason), str(stop_reason))


def has_failed(row: Mapping[str, Any]) -> bool:
    """Whether it was scored and did not end in what its gym calls a success, as `warehouse.query.browse.FAILED` has it."""
    return bool(row["admitted"]) and row["stop_reason"] not in (None, "success")


def attempt(row: Mapping[str, Any]) -> str:
    """Counted from 1, as turns are; the column counts from 0."""
    return f"attempt {row['attempt'] + 1}"


def other_side(name: str) -> str:
    """A policy or user as it is offered to people."""
    if found := _DEMONSTRATOR.fullmatch(name):
        return f"the demonstrator, skill {found[1]}"
    return "the rule user" if name == "rule" else name
