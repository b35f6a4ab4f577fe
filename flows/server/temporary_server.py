"""Prefect's temporary server, ended by the command that started it and by nobody else.

Ctrl-C, and a TERM of `timeout`, reach every process of a command's group: the temporary server would die at once, and the command,
which has to say there that its flow run has ended, would ask it in vain for minutes. And TERM ends Python without what stops that
server, which then stays.
"""

from __future__ import annotations

import subprocess
from functools import partial
from types import SimpleNamespace

from flows.server.settings import temporary_server
from userrl.machine.interrupts import leave_on_term


def stop_in_order() -> None:
    """Before a flow is run by a command of ours, in its main thread: TERM ends it as Ctrl-C does, and the server last."""
    leave_on_term()
    if temporary_server():
        from prefect.server.api import server  # late: half a second, which only a temporary server needs

        # Prefect has no setting for it: the module's own Popen gets a session apart.
        apart = SimpleNamespace(**vars(subprocess))
        apart.Popen = partial(subprocess.Popen, start_new_session=True)
        setattr(server, "subprocess", apart)  # noqa: B010 (typed as a module)
