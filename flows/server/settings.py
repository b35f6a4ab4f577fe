"""Prefect's settings in a process of ours: the server it uses, and the password.

Import this before Prefect, so that a flow called as a plain function finds a server or starts a temporary one.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from pathlib import Path

from flows.server.own_server import configured_url, find_server
from flows.server.password import (
    CLIENT,
    SERVER,
    URL,
    dotenv_url,
    is_loopback,
    locked,
    made,
    own_password,
    password,
    password_file,
)
from userrl.machine.home import home, quiet_process
from userrl_core.errors import UserRLError
from userrl_core.processes import end_with_parent

ENDS_WITH_WORKER = "USERRL_FLOW_ENDS_WITH_WORKER"
"""Set for the worker of `make run`. Prefect leaves a flow run running when its worker is killed, and after a kill -9 of the
command nobody else would end it before the next command. The flow's process takes the variable away, so that its own
children are not watched twice."""


def settle() -> None:
    """Apply the quiet settings to this process, and let Prefect use a temporary server if none of this home runs.

    Call this before Prefect is imported. A worker and `prefect deploy` set PREFECT_API_URL themselves, and it is kept. A
    server on this machine gets this home's password unless another was chosen. A temporary server has its own.
    """
    quiet_process()
    if os.environ.pop(ENDS_WITH_WORKER, ""):
        end_with_parent()
    os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
    if URL not in os.environ and _runs_none(home()) and (dotenv_url(home()) or configured_url()):
        os.environ[URL] = ""  # a temporary server
    _log_in(os.environ.get(URL))
    for name in ("prefect.flow_runs", "prefect.task_runs"):
        logging.getLogger(name).addFilter(_one_sentence)
        logging.getLogger(name).addFilter(_stopped)
    if temporary_server():
        # With an empty URL Prefect cannot send events, and logs a traceback each time.
        for name in ("prefect.events.utilities", "prefect._internal.concurrency"):
            logging.getLogger(name).addFilter(_silent)


@cache
def _runs_none(home: Path) -> bool:
    """Return whether no server of a home answers. Each module with flows settles, and a stranger on the port takes 10 s to ask."""
    return find_server() is None


def temporary_server() -> bool:
    """Return whether this process's flows use a temporary server that ends with them."""
    return os.environ.get(URL) == ""


def _log_in(url: str | None) -> None:
    if temporary_server():
        if not {CLIENT, SERVER} <= os.environ.keys():
            os.environ.update(locked(made()))
    elif url and is_loopback(url) and not own_password() and password_file(home()).is_file():
        os.environ[CLIENT] = password(home())


def _one_sentence(record: logging.LogRecord) -> bool:
    """Drop the stack trace of an error that is a sentence for a person."""
    if record.exc_info and isinstance(record.exc_info[1], UserRLError):
        record.exc_info = None
    return True


def _stopped(record: logging.LogRecord) -> bool:
    """Call the end by a signal a stop, and drop the line with the state that the run had before.

    Prefect calls it a crash, also where a person cancelled the run. The server knows which of them it was.
    """
    text = record.getMessage()
    if text.startswith(_ABORTED):
        record.msg, record.args, record.levelno, record.levelname = _STOPPED, (), logging.INFO, "INFO"
    return not text.startswith(_UNFINISHED)


_ENDS = ("aborted by an interrupt", "aborted by a termination", "cancelled by the runtime")
_ABORTED = tuple(f"Crash detected! Execution was {how}" for how in _ENDS)
_STOPPED = "Stopped: it was cancelled, or its worker ended. Started again with the same parameters, it continues."
_UNFINISHED = (
    "Finished in state Running(",
    "Finished in state Cancelling(",
    *(f"Finished in state Crashed('Execution was {how}" for how in _ENDS),
)


def _silent(record: logging.LogRecord) -> bool:
    """Drop every record. This is a filter because Prefect resets levels when it sets up logging."""
    return False
