"""How often a reply corrects itself, by the word that TARL counts (tables 1 and 2)."""

from __future__ import annotations

import re

_WAIT = re.compile(r"\bwait\b", re.IGNORECASE | re.ASCII)


def waits(reply: str) -> int:
    """How often a reply holds the word "wait", in any case; the query `replies` counts the same."""
    return len(_WAIT.findall(reply))
