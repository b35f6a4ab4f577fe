"""Calls of asynchronous gyms from synchronous code: one event loop in its own thread, started on first use.

Unlike ``asyncio.run``, a thread also works inside a running loop (a notebook, an asynchronous test). Clients of model
servers also keep their connections between calls.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from functools import lru_cache
from typing import Any, TypeVar

T = TypeVar("T")


def complete(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine, block, and return its result or raise its exception."""
    return asyncio.run_coroutine_threadsafe(coroutine, _loop()).result()


@lru_cache(maxsize=1)
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="userrl-gyms", daemon=True).start()
    return loop
