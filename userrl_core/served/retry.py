"""What may be tried again when a model server fails, and after how long."""

from __future__ import annotations

import email.utils
import random
import re
import time

_KEY = re.compile(r"\b(?:sk|key|hf|xai|gsk)[-_][A-Za-z0-9*_\-]{6,}")
_RETRY = frozenset({408, 409, 425, 429})
LONGEST_PAUSE = 30.0
"""Seconds; a server that asks for more gets this, since the conversation's own clock runs on."""

# Spread over attempts, not part of any experiment: outcomes do not depend on it.
_jitter = random.Random()


class Failure(Exception):
    """One attempt failed. kind: the ledger's name for it. hint: what to tell the model when it is asked again."""

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        retryable: bool,
        refused: bool = False,
        retry_after: float | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable
        self.refused = refused
        self.retry_after = retry_after
        self.hint = hint


def read_failure(error: Exception) -> Failure:
    """What an exception of the HTTP client means. Never holds a header or a request, so never a key."""
    from openai import APIConnectionError, APIStatusError, APITimeoutError

    if isinstance(error, (APITimeoutError, TimeoutError)):
        return Failure("Timeout", "no reply in time", retryable=True)
    if isinstance(error, APIStatusError):
        status = error.status_code
        quota = getattr(error, "code", None) == "insufficient_quota"
        retryable = (status in _RETRY or status >= 500) and not quota
        what = " ".join(str(error.message).split())[:120]
        return Failure(
            f"HTTP{status}",
            f"HTTP {status}: {what}",
            retryable=retryable,
            refused=status in (400, 422),
            retry_after=_retry_after(error.response.headers),
        )
    if isinstance(error, APIConnectionError):
        return Failure("Connection", "the connection failed", retryable=True)
    # What the transport raises while a body is being read arrives unwrapped.
    return Failure("Connection", f"the reply broke off ({type(error).__name__})", retryable=True)


def pause_before(tries: int, first: float, asked: float | None) -> float:
    """Seconds before attempt number ``tries`` + 1: doubling with full jitter, and never less than the server asked for."""
    backoff = min(LONGEST_PAUSE, first * 2.0 ** (tries - 1)) * _jitter.uniform(0.5, 1.0)
    return backoff if asked is None else min(LONGEST_PAUSE, max(asked, backoff))


def redact(text: str, key: str) -> str:
    """The text without the key, and without anything that looks like one (servers like to echo them)."""
    if len(key) > 4:
        text = text.replace(key, "***")
    return _KEY.sub("***", text)


def _retry_after(headers: object) -> float | None:
    get = getattr(headers, "get", None)
    value = get("retry-after") if get is not None else None
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(str(value)).timestamp() - time.time())
    except (TypeError, ValueError):
        return None
