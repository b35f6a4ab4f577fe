"""Prefect's temporary server, ended only by the command that started it.

Ctrl-C, and the TERM of `timeout`, reach every process of a command's group. The temporary server would die at once, and
the command would try for minutes to report the end of its flow run to it. TERM also ends Python without the code that
stops the server, which would then stay.
"""

from __future__ import annotations

import subprocess
from functools import partial
from types import SimpleNamespace

from flows.server.settings import temporary_server
from userrl.machine.interrupts import leave_on_term

PORTS = range(10_240, 32_768)
"""Ports of temporary servers, below those that Linux gives to clients."""


def stop_in_order() -> None:
    """Make TERM act like Ctrl-C, and end the server last. Call this in the main thread before a command of ours runs a flow."""
    leave_on_term()
    if temporary_server():
        from prefect.server.api import (
            server,
        )  # imported here: takes half a second, and only a temporary server needs it

        # Prefect has no setting for it, so the module's Popen is replaced by one that starts a new session.
        apart = SimpleNamespace(**vars(subprocess))
        apart.Popen = partial(subprocess.Popen, start_new_session=True)
        setattr(server, "subprocess", apart)  # noqa: B010 (typed as a module)
        # Of Prefect's 1,000 ports two runs that start at once may choose the same, and one is refused by the other's server.
        server.SubprocessASGIServer._port_range = PORTS
