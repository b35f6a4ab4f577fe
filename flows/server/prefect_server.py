"""Our own start of Prefect's server: without questions or telemetry, and locked with the home's password.

``python -m flows.server.prefect_server PORT [HOST [NAME ...]]``. Prefect's own start command asks about profiles in a
terminal and accepts any ``Host``. The application is the same.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.server.front_door import LOOPBACK, FrontDoor, bound, serve
from flows.server.password import is_loopback, locked, password, write_dotenv
from userrl.machine.home import home, quiet
from userrl_core.errors import ConfigError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

BODY_BYTES = 64 * 2**20
"""Maximum size of a request. A flow run sends its logs or an artifact in one request."""


def server_environment(port: int, host: str = "127.0.0.1") -> dict[str, str]:
    """Return the environment of the server and of every process that connects to it."""
    reached = "127.0.0.1" if host in ("0.0.0.0", "::", "localhost") else host
    return quiet() | {
        "PREFECT_HOME": str(home()),
        "PREFECT_API_URL": f"http://{f'[{reached}]' if ':' in reached else reached}:{port}/api",
        "PREFECT_SERVER_API_HOST": host,
        "PREFECT_SERVER_API_PORT": str(port),
        "USERRL_HOME": str(home()),
        "PWD": str(Path.cwd()),
        **locked(password(home())),
    }


def run_server(port: int, host: str = "127.0.0.1", names: Sequence[str] = ()) -> None:
    """Serve until a signal. names: additional accepted host names."""
    check_names(host, names)
    environment = server_environment(port, host)
    os.environ.update(environment)
    write_dotenv(environment["PREFECT_API_AUTH_STRING"], environment["PREFECT_API_URL"], home())
    from prefect.server.api.server import create_app  # Prefect reads its settings when it is imported

    app: Any = create_app(final=True)
    for part in (app, app.api_app):
        part.add_exception_handler(Exception, _failed)
    with bound(host, port) as door_socket:
        serve(FrontDoor(app, hosts=(*LOOPBACK, *names), body=BODY_BYTES), door_socket)


def check_names(host: str, names: Sequence[str]) -> None:
    """Raise ConfigError if a server that other machines reach has no host name."""
    if not is_loopback(f"http://{host}") and not names:
        raise ConfigError(
            "argument.missing", f"To listen on {host}, give the names it is reached by: --name gpu-server.example."
        )


async def _failed(request: Request, error: Exception) -> Response:
    """Answer 503 if the database takes no connection. Prefect's clients repeat a request after a 503, and give up at its 500."""
    from prefect.server.api.server import custom_internal_exception_handler
    from starlette.responses import JSONResponse

    if isinstance(error, OSError):
        return JSONResponse({"exception_message": "The database takes no connection."}, status_code=503)
    return await custom_internal_exception_handler(request, error)


if __name__ == "__main__":
    run_server(int(sys.argv[1]), (sys.argv[2:] or ["127.0.0.1"])[0], sys.argv[3:])
