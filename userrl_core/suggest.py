"""The nearest known word to a misspelt one, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: object, names: Iterable[object]) -> str:
    """Return `` (did you mean 'x'?)``, or an empty string when nothing is near. A key of YAML need not be a text."""
    close = difflib.get_close_matches(str(name), [*map(str, names)], n=1, cutoff=0.5)
    return f" (did you mean '{close[0]}'?)" if close else ""
