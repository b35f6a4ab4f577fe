"""Detection of sent requests: a request that was cancelled or refused a connection before its last byte cost nothing."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx2


class Sent:
    """A flag for the next request of the running task; true once it was sent whole."""

    def __init__(self) -> None:
        self._whole = False
        _current.set(self)

    def __bool__(self) -> bool:
        return self._whole

    async def note(self, event: str, info: object) -> None:
        """Record an event of the transport."""
        self._whole = self._whole or event.endswith(".send_request_body.complete")


_current: ContextVar[Sent] = ContextVar("sent")


async def watched(request: httpx2.Request) -> None:
    """Connect the transport's events to the task's `Sent`. An event hook of an HTTP client."""
    request.extensions["trace"] = _current.get().note
