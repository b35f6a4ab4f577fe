"""OpenEnv's own client, in the Python that has it: ``python client.py SERVER``. A session is a connection, thus an episode."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import urllib.request
from typing import Any, TextIO

os.environ["WEBSOCKETS_MAX_REDIRECTS"] = "1"  # the first request, and none elsewhere

from openenv.core import GenericEnvClient

Json = dict[str, Any]
DAY = 86_400.0
"""Seconds; the gym has the time limit."""


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Takes a redirect for the error that its status is."""

    def redirect_request(self, *_: Any) -> None:
        """Ask nowhere else."""


async def serve(server: str, out: TextIO) -> None:
    """Carry out requests until the input ends."""
    clients: dict[int, GenericEnvClient] = {}
    loop = asyncio.get_running_loop()
    running: set[asyncio.Task[None]] = set()

    def say(number: int, **answer: Any) -> None:
        out.write(json.dumps({"session": number, **answer}) + "\n")
        out.flush()

    async def carry_out(request: Json) -> None:
        number = request["session"]
        try:
            if "reset" in request:
                clients[number] = GenericEnvClient(server, message_timeout_s=DAY, max_message_size_mb=32.0)
                result = await clients[number].reset(**request["reset"])
            elif "step" in request:
                result = await clients[number].step(request["step"])
            else:
                await clients.pop(number).close()
                return
            say(number, observation=result.observation, reward=result.reward, done=result.done)
        except Exception as error:  # noqa: BLE001  told to the gym, and the other sessions continue
            is_unreadable = isinstance(error, (ValueError, LookupError, TypeError, AttributeError))
            reason = "the server's answer cannot be read: " if is_unreadable else ""
            if "reset" in request and type(error).__name__ == "ConnectionClosedOK":
                reason = "the server closed the connection before the reset, as one does that has no session left: "
            say(number, error=f"{reason}{type(error).__name__}: {error}")

    def begin(request: Json) -> None:
        task = loop.create_task(carry_out(request))
        running.add(task)
        task.add_done_callback(running.discard)

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(begin, json.loads(line))
        os._exit(0)

    try:
        with urllib.request.build_opener(NoRedirect).open(f"{server}/schema", timeout=30) as schema:
            say(0, action=json.loads(schema.read(1 << 20))["action"])
    except Exception as error:  # noqa: BLE001
        say(0, error=f"it got no schema of an action from {server}/schema: {type(error).__name__}: {error}")
        return
    threading.Thread(target=read, daemon=True).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    asyncio.run(serve(sys.argv[1], answers))
