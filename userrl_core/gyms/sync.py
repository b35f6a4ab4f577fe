"""Calling asynchronous gyms from synchronous code: one event loop in a thread of its own, started on first use.

A thread rather than ``asyncio.run``: it works inside a running loop too (a notebook, an asynchronous test), and clients of
model servers keep their connections from one call to the next.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from functools import lru_cache
from typing import Any, TypeVar

T = TypeVar("T")


def complete(coroutine: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result; blocks until it is there, and raises what it raised."""
    return asyncio.run_coroutine_threadsafe(coroutine, _loop()).result()


@lru_cache(maxsize=1)
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="userrl-gyms", daemon=True).start()
    return loop
