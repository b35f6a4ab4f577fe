"""The settings of Prefect in a process of ours: the server it talks to, and the password it uses.

Imported before Prefect, so that a flow called as a plain Python function finds a server or makes a temporary one.
"""

from __future__ import annotations

import logging
import os
import tomllib
from pathlib import Path

from flows.server.password import (
    CLIENT,
    SERVER,
    dotenv_url,
    is_loopback,
    listens,
    locked,
    made,
    own_password,
    password,
    password_file,
)
from userrl.machine.home import home, quiet_process
from userrl_core.errors import UserRLError


def settle() -> None:
    """Apply the quiet settings to this process, and let Prefect use a temporary server where none listens.

    Call before Prefect is imported. A worker and `prefect deploy` set PREFECT_API_URL themselves; it stays. A server of this
    machine is spoken to with this home's password unless another was chosen, a temporary one has a password of its own.
    """
    quiet_process()
    os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
    noted, configured = dotenv_url(home()), configured_url()
    places = [place for place in (noted, configured) if place]
    url = next((place for place in places if listens(place)), None)
    if "PREFECT_API_URL" not in os.environ and places and (url is None or url != (noted or configured)):
        os.environ["PREFECT_API_URL"] = url or ""  # an empty URL means a temporary server
    _log_in(os.environ.get("PREFECT_API_URL", url))
    for name in ("prefect.flow_runs", "prefect.task_runs"):
        logging.getLogger(name).addFilter(_one_sentence)
    if temporary_server():
        # With an empty URL Prefect finds no place to send events to, and says so with a traceback each time.
        for name in ("prefect.events.utilities", "prefect._internal.concurrency"):
            logging.getLogger(name).addFilter(_silent)


def temporary_server() -> bool:
    """Whether flows of this process run on a server of their own that ends with them."""
    return os.environ.get("PREFECT_API_URL") == ""


def configured_url() -> str | None:
    """The server that prefect.toml in the working directory names."""
    file = Path("prefect.toml")
    if not file.is_file():
        return None
    value = tomllib.loads(file.read_text()).get("api", {}).get("url")
    return str(value) if value else None


def _log_in(url: str | None) -> None:
    if temporary_server():
        if not {CLIENT, SERVER} <= os.environ.keys():
            os.environ.update(locked(made()))
    elif url and is_loopback(url) and not own_password() and password_file(home()).is_file():
        os.environ[CLIENT] = password(home())


def _one_sentence(record: logging.LogRecord) -> bool:
    """An error that is a sentence for a person needs no stack beside it."""
    if record.exc_info and isinstance(record.exc_info[1], UserRLError):
        record.exc_info = None
    return True


def _silent(record: logging.LogRecord) -> bool:
    """A filter, since Prefect resets levels when it sets up its logging."""
    return False
