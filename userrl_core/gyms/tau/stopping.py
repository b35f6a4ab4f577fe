"""The rule for a customer's end of the conversation: only after the agent answered the last request or declined it.

A customer simulated by a model tends to stop too early: at a question of the agent, or while the agent announces an
action. Such a stop would turn a failure of the customer into a failure of the agent.
"""

from __future__ import annotations

import re

STOP = "###STOP###"
STOP_TOKEN = re.compile(r"#{2,3}STOP#{2,3}")
"""Both spellings: tau-bench's ``###STOP###`` and TARL's ``##STOP##``."""

WAITING = re.compile(
    r"\b(one moment|a moment|let me|please wait|hold on|i will now|i'll now|i am going to)\b", re.IGNORECASE
)
CLOSING = re.compile(r"\b(anything|something) else\b|\bfurther\b", re.IGNORECASE)
_CANNOT = re.compile(
    r"\b(cannot|can't|can not|unable|not able|not possible|impossible|not allowed|no longer possible)\b", re.IGNORECASE
)


def asks(message: str) -> bool:
    """Return whether the agent wants an answer. "Is there anything else?" does not count."""
    return "?" in message and not CLOSING.search(message)


def announces(message: str) -> bool:
    """Return whether the agent announces an action."""
    return bool(WAITING.search(message)) and not CLOSING.search(message)


def may_stop(message: str) -> bool:
    """Return whether the conversation may end at this message of the agent."""
    return bool(_CANNOT.search(message)) or not (asks(message) or announces(message))
