"""A recipe's values on one line, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from curricula.recipe import Replaced


def shown(value: Any) -> str:
    """A value on one line; what says nothing is left out."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {shown(v)}" for k, v in value.items() if v not in (None, {}, [])) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(shown, value)) + "]"
    if value is None:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)


def replacement(row: Replaced) -> str:
    """What was written, what counts, and who wrote each."""
    return f"{row.key}: {shown(row.old)} ({row.where}) -> {shown(row.new)} ({row.by})"
