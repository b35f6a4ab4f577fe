"""What a server sends is read up to a limit: a reply of a few kilobytes may unpack to gigabytes, or never end."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2

MOST_BYTES = 32 * 2**20
"""Of one reply: a chat completion of a million tokens is a tenth of it."""


async def bounded(response: httpx2.Response) -> None:
    """Event hook of an HTTP client that asks for plain replies: a packed one is refused, a long one is cut off.

    Raises httpx2.RemoteProtocolError, which counts as a lost connection.
    """
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        await response.aclose()
        raise httpx2.RemoteProtocolError("the reply is compressed, though a plain one was asked for")
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _Bounded(response.stream)


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        async for chunk in self._stream:
            read += len(chunk)
            if read > MOST_BYTES:
                raise httpx2.RemoteProtocolError(f"the reply is longer than {MOST_BYTES >> 20} MB")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
