"""When a customer may end the conversation: once the agent has answered what was asked last, or said that it cannot.

A customer played by a model likes to stop too early: at a question of the agent, or while the agent says that it will do
something. Such a stop would make a failure of the agent out of a failure of the customer.
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
    """Whether the agent wants an answer: a question other than whether there is anything else."""
    return "?" in message and not CLOSING.search(message)


def announces(message: str) -> bool:
    """Whether the agent says that it is about to do something."""
    return bool(WAITING.search(message)) and not CLOSING.search(message)


def may_stop(message: str) -> bool:
    """Whether the conversation may end at this message of the agent."""
    return bool(_CANNOT.search(message)) or not (asks(message) or announces(message))
