"""Prefect's temporary server: this process's own, and ended only by the command that started it.

Ctrl-C, and the TERM of `timeout`, reach every process of a command's group. The temporary server would die at once, and
the command would try for minutes to report the end of its flow run to it. TERM also ends Python without the code that
stops the server, which would then stay.

Prefect chooses a free port, and the server binds it seconds later. If another server takes the port meanwhile, Prefect's
question about health is answered by that one, and its later requests end in 401. So a server is used only if it takes the
password that was made for it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable
from functools import partial, partialmethod
from types import SimpleNamespace
from typing import TYPE_CHECKING

import httpx

from flows.server.own_server import takes
from flows.server.password import SERVER
from flows.server.settings import temporary_server
from userrl.machine.interrupts import leave_on_term
from userrl_core.errors import ConfigError

if TYPE_CHECKING:
    from prefect.server.api.server import SubprocessASGIServer

PORTS = range(10_240, 32_768)
"""Ports of temporary servers, below those that Linux gives to clients."""
TRIES = 5
"""Ports to try. Each is taken by another server in the same seconds with a chance of one in thousands."""


def stop_in_order() -> None:
    """Make TERM act like Ctrl-C, and end the server last. Call this in the main thread before a command of ours runs a flow."""
    leave_on_term()
    if temporary_server():
        from prefect.server.api import (
            server,
        )  # imported here: takes half a second, and only a temporary server needs it

        # Prefect has no setting for it, so the module's Popen is replaced by one that starts a new session.
        patched = SimpleNamespace(**vars(subprocess))
        patched.Popen = partial(subprocess.Popen, start_new_session=True)
        setattr(server, "subprocess", patched)  # noqa: B010 (typed as a module)


def meet_no_other_server() -> None:
    """Let Prefect's temporary servers of this process start on ports that no other server takes. Can be called again."""
    from prefect.server.api.server import SubprocessASGIServer

    if SubprocessASGIServer._port_range is not PORTS:
        SubprocessASGIServer._port_range = PORTS
        start = SubprocessASGIServer.start
        SubprocessASGIServer.start = partialmethod(_start_own, start)  # type: ignore[assignment, method-assign]


def _start_own(server: SubprocessASGIServer, start: Callable[..., None], timeout: int | None = None) -> None:
    """Start a server on one port after another, until the one that answers is ours. Raises ConfigError if none is."""
    if server.running:
        return
    for _ in range(TRIES):
        with contextlib.suppress(httpx.HTTPError):  # another program has the port
            start(server, timeout)
            if takes(server.address, os.environ[SERVER]):
                return
        if (process := server.server_process) is not None:
            process.kill()
            process.wait()
        server.port, server.server_process, server.running = None, None, False
    raise ConfigError(
        "server.not_started", "Other servers took the ports of Prefect's temporary server. Run the command again."
    )
