"""Retries of failed requests to a model server: which failures are retried, and after how long."""

from __future__ import annotations

import email.utils
import random
import re
import time
from typing import Any

_KEY = re.compile(r"\b(?:sk|key|hf|xai|gsk)[-_][A-Za-z0-9*_\-]{6,}")
_TOO_LONG = re.compile(
    r"context[ _-]?(?:length|window|size)|max_model_len|max_(?:completion_)?tokens is too large", re.IGNORECASE
)
"""The wording of OpenAI, vLLM, SGLang and llama.cpp for a request that exceeds the context."""
_RETRYABLE_STATUS = frozenset({408, 409, 425, 429})
MAX_PAUSE = 30.0
"""Maximum seconds, even when a server asks for more, because the episode has its own time-out."""

# Only spreads retries in time: no result of an experiment depends on it.
_jitter = random.Random()


class Failure(Exception):
    """A failed HTTP attempt. kind: its name in the ledger. hint: a message to the model for the next attempt.

    refused: the server does not accept a field of the request. too_long: prompt and limit do not fit into the model's
    context. sent: the server may have worked on the request and may charge for it.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        retryable: bool,
        refused: bool = False,
        too_long: bool = False,
        retry_after: float | None = None,
        hint: str | None = None,
        sent: bool = True,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable
        self.refused = refused
        self.too_long = too_long
        self.retry_after = retry_after
        self.hint = hint
        self.sent = sent


def read_failure(error: Exception, *, sent: bool) -> Failure:
    """Convert an exception of the HTTP client to a failure. It never holds a header or a request, so never a key.

    sent: True if the whole request was sent.
    """
    # Imported late as in the client: whoever calls this has loaded the library.
    from openai import APIConnectionError, APIStatusError, APITimeoutError

    if isinstance(error, (APITimeoutError, TimeoutError)):
        return Failure("Timeout", "no reply in time", retryable=True, sent=sent)
    if isinstance(error, APIStatusError):
        retry_after = _retry_after(error.response.headers)
        return _of_status(error.status_code, str(error.message), getattr(error, "code", None), retry_after)
    if isinstance(error, APIConnectionError):
        return Failure("Connection", "the connection failed", retryable=True, sent=sent)
    # The library does not wrap exceptions of the transport while a body is read.
    return Failure("Connection", f"the reply broke off ({type(error).__name__})", retryable=True)


def stated_failure(value: Any) -> Failure | None:
    """Return the failure that a body of status 200 states in place of a completion (``{"error": ...}``), None without one.

    A number as its code is read as the status that it stands for.
    """
    if not isinstance(value, dict) or value.get("choices"):
        return None
    error = value.get("error") or (value if value.get("object") == "error" else value.get("detail"))
    if not error:
        return None
    stated = error if isinstance(error, dict) else {"message": error}
    message, code = stated.get("message") or stated, stated.get("code") or stated.get("status")
    if str(code).isdecimal() and 400 <= int(str(code)[:4]) < 600:
        return _of_status(int(str(code)), str(message), stated.get("type"), None)
    return Failure("Stated", f"the server says: {_one_line(message)}", retryable=code != "insufficient_quota")


def _of_status(status: int, message: str, code: Any, retry_after: float | None) -> Failure:
    """Return the failure of a status. code: the name that the server gives its error."""
    retryable = (status in _RETRYABLE_STATUS or status >= 500) and code != "insufficient_quota"
    reason, refused = f"HTTP {status}: {_one_line(message)}", status in (400, 422)
    too_long = refused and _TOO_LONG.search(f"{code} {' '.join(message.split())}") is not None
    if too_long:
        reason = (
            f"the conversation does not fit the server's context: lower the horizon or serve a longer one; {reason}"
        )
    return Failure(
        f"HTTP{status}",
        reason,
        retryable=retryable,
        refused=refused and not too_long,
        too_long=too_long,
        retry_after=retry_after,
        sent=status >= 500,  # below, the server says that it did nothing
    )


def _one_line(message: Any) -> str:
    return " ".join(str(message).split())[:120]


def pause_before(failures: int, first: float, retry_after: float | None) -> float:
    """Return the seconds before the next attempt. The pause doubles with jitter, and is at least what the server
    asked for, up to the maximum.
    """
    backoff = min(MAX_PAUSE, first * 2.0 ** (failures - 1)) * _jitter.uniform(0.5, 1.0)
    return backoff if retry_after is None else min(MAX_PAUSE, max(retry_after, backoff))


def redact(text: str, key: str) -> str:
    """Remove the key, and anything that looks like one, from the text: servers may echo it."""
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
