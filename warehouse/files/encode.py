"""Encoding of rows as JSON: fast for ordinary values, and robust against anything a model may write.

A number that is not finite becomes null, as in orjson.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

_QUICK = orjson.OPT_SERIALIZE_NUMPY
_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


def line(row: Mapping[str, Any]) -> bytes:
    """Encode one row as a JSON object, without the newline."""
    try:
        # Keys are columns here; allowing others makes it half as slow again.
        return orjson.dumps(row, option=_QUICK)
    except (orjson.JSONEncodeError, UnicodeEncodeError):
        return orjson.dumps(cleaned(row), option=_OPTIONS, default=_as_text)


def text(value: Any) -> str:
    """Return the JSON text of any value; a value that JSON cannot represent becomes its string."""
    try:
        return orjson.dumps(value, option=_OPTIONS, default=str).decode()
    except (orjson.JSONEncodeError, UnicodeEncodeError):
        return orjson.dumps(cleaned(value), option=_OPTIONS, default=_as_text).decode()


_DEEPEST = 200
"""Levels of lists and mappings that are written. orjson refuses 255."""


def any_text(value: Any) -> str:
    """Return the JSON text as `text`, also of a value that contains itself or is deeper than 200 levels: "..." stands there."""
    try:
        return text(value)
    except (RecursionError, TypeError):
        return text(_cut(value, ()))


def _cut(value: Any, outer: tuple[Any, ...]) -> Any:
    if not isinstance(value, (Mapping, list, tuple)):
        return value
    if len(outer) >= _DEEPEST or any(value is each for each in outer):
        return "..."
    inner = (*outer, value)
    if isinstance(value, Mapping):
        return {key: _cut(item, inner) for key, item in value.items()}
    return [_cut(item, inner) for item in value]


def cleaned(value: Any) -> Any:
    """Replace lone surrogates by "?", and integers beyond 64 bits and keys such as tuples by strings: what a model or a gym
    says must not stop the log.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, Mapping):
        return {_key(key): cleaned(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [cleaned(item) for item in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return str(value)
    return value


def _key(key: Any) -> Any:
    return key if key is None or isinstance(key, bool) else cleaned(_as_text(key))


def _as_text(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001  a gym's own class may fail to give its text
        return f"({type(value).__name__})"


_INTEGERS = {"INTEGER": 2**31, "BIGINT": 2**63}
_FLOAT32 = 3.4028235677973366e38


def fitting(types: Mapping[str, str], row: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """Return the row with only the values that its columns can hold, and the number of values that became null.

    types: DuckDB type by column. Fields without a column are left out.
    """
    fitted, nulled = {}, 0
    for name, kind in types.items():
        value = row.get(name)
        fitted[name] = fitted_value = _fit(kind, value)
        if isinstance(value, list) and isinstance(fitted_value, list):
            nulled += sum(a is not None and b is None for a, b in zip(value, fitted_value, strict=True))
        else:
            nulled += value is not None and fitted_value is None
    return fitted, nulled


def _fit(kind: str, value: Any) -> Any:
    if kind.endswith("[]"):
        return [_fit(kind[:-2], item) for item in value] if isinstance(value, list) else None
    if kind == "VARCHAR":
        return value if value is None or isinstance(value, str) else text(value)
    if kind == "BOOLEAN":
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if kind in _INTEGERS:
        integer = int(value) if isinstance(value, int) or value.is_integer() else None
        return integer if integer is not None and -_INTEGERS[kind] <= integer < _INTEGERS[kind] else None
    return value if kind == "DOUBLE" or abs(value) < _FLOAT32 else None
