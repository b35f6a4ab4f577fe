"""A size limit on replies of servers: a reply of a few kilobytes may unpack to gigabytes, or never end.

Used by every client of a foreign server: served models, environment servers, web search.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx2

MAX_BYTES = 32 * 2**20
"""Maximum size of one reply. A chat completion of a million tokens takes a tenth of it."""
PLAIN = {"Accept-Encoding": "identity"}
"""Headers of a client with these hooks."""


class Unbounded(httpx2.RemoteProtocolError):
    """A reply that is not read to its end; counts as a lost connection. Its text follows the server's name in a sentence."""


async def bounded(response: httpx2.Response) -> None:
    """Refuse a compressed reply and cut off a long one. An event hook for an HTTP client that asks for plain replies.

    Raises Unbounded. Reading the response may raise it too.
    """
    if _packed(response):
        await response.aclose()
        raise Unbounded("sent a compressed reply, though a plain one was asked for")
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _Bounded(response.stream)


def bounded_blocking(response: httpx2.Response) -> None:
    """Do the same for a blocking client."""
    if _packed(response):
        response.close()
        raise Unbounded("sent a compressed reply, though a plain one was asked for")
    assert isinstance(response.stream, httpx2.SyncByteStream)
    response.stream = _BoundedBlocking(response.stream)


def _packed(response: httpx2.Response) -> bool:
    return response.headers.get("content-encoding", "identity").lower() != "identity"


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        bytes_read = 0
        async for chunk in self._stream:
            bytes_read = _added(bytes_read, chunk)
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class _BoundedBlocking(httpx2.SyncByteStream):
    def __init__(self, stream: httpx2.SyncByteStream) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        bytes_read = 0
        for chunk in self._stream:
            bytes_read = _added(bytes_read, chunk)
            yield chunk

    def close(self) -> None:
        self._stream.close()


def _added(bytes_read: int, chunk: bytes) -> int:
    bytes_read += len(chunk)
    if bytes_read > MAX_BYTES:
        raise Unbounded(f"sent a reply that is longer than {MAX_BYTES >> 20} MB")
    return bytes_read
