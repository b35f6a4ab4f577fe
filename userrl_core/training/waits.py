"""Count of a reply's self-corrections, by the word that TARL counts (tables 1 and 2)."""

from __future__ import annotations

import re

_WAIT = re.compile(r"\bwait\b", re.IGNORECASE | re.ASCII)


def waits(reply: str) -> int:
    """Return how often a reply contains the word "wait", in any case; the query `replies` counts the same."""
    return len(_WAIT.findall(reply))
