"""A recipe's values on one line, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from curricula.recipe import Replaced


def shown(value: Any) -> str:
    """Format a value on one line, without empty parts."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {shown(v)}" for k, v in value.items() if v not in (None, {}, [])) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(shown, value)) + "]"
    if value is None:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)


def replacement(row: Replaced) -> str:
    """Format a replacement: the old and the new value with their authors."""
    return f"{row.key}: {shown(row.old)} ({row.where}) -> {shown(row.new)} ({row.by})"
