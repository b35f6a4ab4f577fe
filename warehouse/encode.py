"""Rows as JSON: quick for what is usual, and never stopped by what a model may write.

What is no finite number becomes null, which is what orjson makes of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


def line(row: Mapping[str, Any]) -> bytes:
    """One row as a JSON object, without the newline."""
    try:
        return orjson.dumps(row, option=_OPTIONS)
    except (orjson.JSONEncodeError, UnicodeEncodeError):
        return orjson.dumps(cleaned(row), option=_OPTIONS, default=str)


def text(value: Any) -> str:
    """JSON text of anything; what JSON does not know becomes its string."""
    try:
        return orjson.dumps(value, option=_OPTIONS, default=str).decode()
    except (orjson.JSONEncodeError, UnicodeEncodeError):
        return orjson.dumps(cleaned(value), option=_OPTIONS, default=str).decode()


def cleaned(value: Any) -> Any:
    """Lone surrogates become "?", integers beyond 64 bits strings: a model's reply must not stop the log."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, Mapping):
        return {cleaned(key): cleaned(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [cleaned(item) for item in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return str(value)
    return value
