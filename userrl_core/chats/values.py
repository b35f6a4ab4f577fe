"""Read a value of a file that another tool wrote, or refuse the file in one sentence."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, NoReturn

from userrl_core.errors import ConfigError

NO_VALUE: tuple[Any, ...] = (None, "", [], {})
"""The values of a field that says nothing."""
NOT_FINITE = frozenset(sign + word for sign in ("", "+", "-") for word in ("nan", "inf", "infinity"))
"""Numbers that are not finite, as other tools write them as text."""


class BrokenFile(ConfigError):
    """A file that cannot be imported. fact: its place and the problem, for readers that do not import."""

    def __init__(self, code: str, fact: str) -> None:
        super().__init__(code, f"{fact} Nothing was imported.")
        self.fact = fact

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, self.fact)


def broken(where: str, problem: str) -> NoReturn:
    """Raise the error of a file that cannot be imported. problem: the rest of the sentence."""
    raise BrokenFile("import.broken_file", f"{where}: {problem}.")


def mapping(value: Any, where: str, name: str) -> dict[str, Any]:
    """Return a JSON object, or raise ConfigError. name: its name in the message."""
    if not isinstance(value, dict):
        broken(where, f"{name} is not a JSON object")
    return value


def sequence(value: Any, where: str, name: str) -> list[Any]:
    """Return a JSON list, [] for null, or raise ConfigError."""
    if value is None:
        return []
    if not isinstance(value, list):
        broken(where, f"{name} is not a list")
    return value


def number(value: Any, where: str, name: str, unread: Counter[str] | None = None) -> float | None:
    """Return a finite number, or raise ConfigError, also for true and false. None for null and for a number that is not
    finite, which is counted in ``unread``.
    """
    if value is None:
        return None
    infinite = isinstance(value, str) and value.strip().lower() in NOT_FINITE
    if not infinite and (isinstance(value, bool) or not isinstance(value, (int, float))):
        broken(where, f"{name} is not a number")
    try:
        result = math.nan if infinite else float(value)
    except OverflowError:
        result = math.inf
    if math.isfinite(result):
        return result
    if unread is not None:
        unread[f"field {name}"] += 1
    return None


def count(
    value: Any, where: str, name: str, unread: Counter[str] | None = None, *, maximum: int = 2**31 - 1
) -> int | None:
    """Return a whole number from 0 to ``maximum``, None as `number` does, or raise ConfigError."""
    result = number(value, where, name, unread)
    if result is None:
        return None
    if not result.is_integer() or not 0 <= int(value) <= maximum:
        broken(where, f"{name} is not a whole number from 0 to {maximum}")
    return int(value)


def name_of(value: Any) -> str:
    """Return an identifier as text: a string, or the JSON text of another value; "" for null, true and false."""
    return value if isinstance(value, str) else "" if value is None or isinstance(value, bool) else compact_json(value)


def compact_json(value: Any) -> str:
    """Return the JSON text of a value that was read from JSON. NaN and large integers stay as they were read."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace").decode()  # without lone surrogates
