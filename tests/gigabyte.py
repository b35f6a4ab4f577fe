"""A reply of a megabyte that unpacks to a gigabyte, and how much memory may be taken while one is read."""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

CHUNK, CHUNKS = b" " * 2**24, 64


@cache
def gzipped_gigabyte() -> bytes:
    """Blocks that stand for themselves, so that one is packed and repeated; no end, which nobody should come to."""
    packer = zlib.compressobj(wbits=31)
    first, block = (packer.compress(CHUNK) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    return first + block * (CHUNKS - 1)


@contextmanager
def little_memory(most: int = 2**27) -> Iterator[None]:
    """Fails where more than that was allocated at any moment."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most, f"{peak >> 20} MB"
