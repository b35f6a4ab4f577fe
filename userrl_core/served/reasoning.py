"""What a model that thinks aloud says in the end: a simulated user's or judge's thoughts are for nobody else's eyes."""

from __future__ import annotations

from userrl_core.served.retry import Failure

_OPEN, _CLOSE = "<think>", "</think>"
_HINT = (
    f"Your reply could not be used: it did not come to an end of its thoughts. Think less, then reply after {_CLOSE}."
)


def spoken(text: str) -> str:
    """What follows the last ``</think>``; the text itself where no thought is marked.

    The opening tag is not needed: some chat templates put it into the prompt. Raises Failure (retryable, with a hint) for a
    thought that is never closed, and where nothing is said.
    """
    _, closed, rest = text.rpartition(_CLOSE)
    if _OPEN in rest or not rest.strip():
        raise Failure("Thought", "the reply is a thought and nothing more", retryable=True, hint=_HINT)
    return rest.strip() if closed else rest
