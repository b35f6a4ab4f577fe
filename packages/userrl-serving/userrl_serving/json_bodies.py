"""A check of JSON bodies before an application reads them.

Python's own reader takes numbers that are none, and text that cannot be written as UTF-8. An answer that repeats them could
not be sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_DEPTH = 100
"""The most lists and objects inside each other. What repeats a value deeper than some hundreds cannot be written."""


class JsonBodies:
    """An application behind the check. A body with such a value is answered by status 400 and ``{"error": ...}``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body, message = b"", await receive()
        while message["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
            message = await receive()
        try:
            if body:
                read_body(body)
        except json.JSONDecodeError:
            pass  # the application has its own answer to what is no JSON at all
        except (ValueError, RecursionError) as error:
            await JSONResponse({"error": f"Invalid JSON: {str(error)[:200]}."}, 400)(scope, receive, send)
            return
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return messages.pop() if messages else await receive()

        await self._app(scope, again, send)


def read_body(text: str | bytes) -> Any:
    """Return the value of a JSON text that can be written again as UTF-8.

    Raises ValueError for a text that is no JSON. NaN, infinite numbers, numbers of thousands of digits and halves of characters
    are no JSON here, nor is a text that is nested deeper than `MAX_DEPTH`: that, or RecursionError.
    """
    value = json.loads(text)
    level, depth = [value], 1
    while level := [item for part in level if isinstance(part, (dict, list)) for item in _items(part)]:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError("it is nested too deeply")
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    return value


def _items(part: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return part.values() if isinstance(part, dict) else part
