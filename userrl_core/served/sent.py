"""Whether a request's last byte went out: one that was cancelled or refused a connection before cost nothing."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx2


class Sent:
    """Of the request that the running task makes next; true once it was sent whole."""

    def __init__(self) -> None:
        self._whole = False
        _current.set(self)

    def __bool__(self) -> bool:
        return self._whole

    async def note(self, event: str, info: object) -> None:
        """What the transport did."""
        self._whole = self._whole or event.endswith(".send_request_body.complete")


_current: ContextVar[Sent] = ContextVar("sent")


async def watched(request: httpx2.Request) -> None:
    """Event hook of an HTTP client: the transport tells the task's `Sent` what it does."""
    request.extensions["trace"] = _current.get().note
