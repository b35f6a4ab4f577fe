"""Scores and intervals as text, by the same rules everywhere: three decimals, a dash for null, U+2212 as minus."""

from __future__ import annotations

import math
from typing import Protocol

NULL = "–"


class Limits(Protocol):
    """An estimate between its limits."""

    @property
    def estimate(self) -> float:
        """The value."""

    @property
    def low(self) -> float:
        """The lower limit."""

    @property
    def high(self) -> float:
        """The upper limit."""


def number(value: float | None, digits: int = 3, *, sign: bool = False) -> str:
    """Return ``0.125``, with a sign ``+0.125``; a dash for null, nan and the infinite. A value that rounds to zero is
    unsigned.
    """
    if value is None or not math.isfinite(value):
        return NULL
    text = f"{value:z.{digits}f}"
    signed = f"+{text}" if sign and float(text) > 0 else text
    return signed.replace("-", "−")


def with_error(value: float | None, error: float | None, digits: int = 3) -> str:
    """Return ``0.125 ± 0.010``, or the value alone where its standard error is not known."""
    return number(value, digits) if error is None else f"{number(value, digits)} ± {number(error, digits)}"


def with_limits(interval: Limits, digits: int = 3, *, sign: bool = False) -> str:
    """Return ``0.125 [0.100, 0.150]``; only the values if an interval has too few for limits.

    Dashes stand for limits that a single task or seed does not have.
    """
    if values := getattr(interval, "values", ()):
        return ", ".join(number(value, digits, sign=sign) for value in values)
    return f"{number(interval.estimate, digits, sign=sign)} {limits(interval, digits, sign=sign)}"


def limits(interval: Limits, digits: int = 3, *, sign: bool = False) -> str:
    """Return the limits alone, ``[0.100, 0.150]``."""
    return f"[{number(interval.low, digits, sign=sign)}, {number(interval.high, digits, sign=sign)}]"


def p_value(p: float) -> str:
    """Return p with three significant digits; a dash without a test."""
    return NULL if math.isnan(p) else f"{p:.3g}"
