"""Our own start of Prefect's server: no question asked, nothing reported to anyone, locked with the home's password.

``python -m flows.server.prefect_server PORT [HOST [NAME ...]]``. Prefect's own start command asks about profiles in a terminal and
serves any ``Host``; its application is the same.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from base64 import b64encode
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError

from flows.server.front_door import LOOPBACK, FrontDoor, serve
from flows.server.password import dotenv_url, is_loopback, listens, locked, password, write_dotenv
from flows.server.settings import configured_url
from userrl.machine.home import home, quiet
from userrl_core.errors import ConfigError

PORT = 4311
BODY_BYTES = 64 * 2**20
"""Flow runs send their logs and artifacts in one request each."""


def server_environment(port: int, host: str = "127.0.0.1") -> dict[str, str]:
    """What the server, and every process that speaks to it, has in its environment."""
    reached = "127.0.0.1" if host in ("0.0.0.0", "::", "localhost") else host
    return quiet() | {
        "PREFECT_HOME": str(home()),
        "PREFECT_API_URL": f"http://{reached}:{port}/api",
        "PREFECT_SERVER_API_HOST": host,
        "PREFECT_SERVER_API_PORT": str(port),
        "USERRL_HOME": str(home()),
        "PWD": str(Path.cwd()),
        **locked(password(home())),
    }


def run_server(port: int, host: str = "127.0.0.1", names: Sequence[str] = ()) -> None:
    """Serve until a signal. names: under which the server may be asked for besides this machine's own."""
    if not is_loopback(f"http://{host}") and not names:
        raise ConfigError(f"To listen on {host}, say under which names it is reached: --name gpu-server.example.")
    environment = server_environment(port, host)
    os.environ.update(environment)
    write_dotenv(environment["PREFECT_API_AUTH_STRING"], environment["PREFECT_API_URL"], home())
    from prefect.server.api.server import create_app  # Prefect reads its settings when it is imported

    app = create_app(final=True)
    serve(FrontDoor(app, hosts=(*LOOPBACK, *names), body=BODY_BYTES), host, port)


def server_state(port: int) -> str:
    """``free``, ``ours`` (a healthy Prefect server with this home), ``open`` (ours, but without a password) or ``taken``."""
    url = f"http://127.0.0.1:{port}"
    if not listens(url):
        return "free"
    try:
        settings = _settings(url, None)
        state = "open"
    except HTTPError as error:
        if error.code != 401:
            return "taken"
        try:
            settings, state = _settings(url, password(home())), "ours"
        except (URLError, OSError, HTTPException, ValueError):
            return "taken"  # another home's, with another password
    except (URLError, OSError, HTTPException, ValueError):
        return "taken"  # also where no HTTP is spoken, or what is said is no server's settings
    try:
        # A relative home is that of a server started by hand in this folder.
        return state if Path(str(settings["home"])).expanduser().resolve() == home() else "taken"
    except (KeyError, TypeError):
        return "taken"


def find_server() -> str | None:
    """The API of the server that runs for this folder or home, None when none does; this process's Prefect will ask that one.

    Call before `settle`, which otherwise takes the address in prefect.toml alone.
    """
    named = os.environ.get("PREFECT_API_URL")
    port = os.environ.get("USERRL_PORT", PORT)
    places = [named] if named else [dotenv_url(home()), f"http://127.0.0.1:{port}/api", configured_url()]
    url = next((place for place in places if place and listens(place)), None)
    if url is not None:
        os.environ["PREFECT_API_URL"] = url
    return url


def _settings(url: str, secret: str | None) -> dict[str, object]:
    request = urllib.request.Request(f"{url}/api/admin/settings")
    if secret is not None:
        request.add_header("Authorization", "Basic " + b64encode(secret.encode()).decode())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=5) as answer:
        settings: dict[str, object] = json.load(answer)
    return settings


if __name__ == "__main__":
    run_server(int(sys.argv[1]), (sys.argv[2:] or ["127.0.0.1"])[0], sys.argv[3:])
