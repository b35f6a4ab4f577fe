"""Extraction of a reasoning model's final answer: only the answer of a user or judge is used."""

from __future__ import annotations

from userrl_core.served.retry import Failure

_OPEN, _CLOSE = "<think>", "</think>"
_HINT = (
    f"Your reply could not be used: it did not come to an end of its thoughts. Think less, then reply after {_CLOSE}."
)


def final_answer(text: str) -> str:
    """Return the text after the last ``</think>``; the whole text without reasoning.

    The opening tag may be missing, because some chat templates put it into the prompt. Raises Failure (retryable,
    with a hint) for reasoning that is not closed, and for an empty answer.
    """
    _, closing_tag, answer = text.rpartition(_CLOSE)
    if _OPEN in answer or not answer.strip():
        raise Failure("Thought", "the reply holds reasoning but no answer", retryable=True, hint=_HINT)
    return answer.strip() if closing_tag else answer
