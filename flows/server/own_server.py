"""Detection of this home's Prefect server: it takes the home's password and has the home's folder.

A server of another home may use the usual port. It is left alone, because it has another password and ends with its own
home.
"""

from __future__ import annotations

import os
import time
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from flows.server.password import URL, dotenv_url, is_loopback, listens, own_password, password
from flows.server.shared_server import SharedServer
from userrl.machine.home import home, number_in_environment
from userrl.machine.slots import held
from userrl_core.errors import ConfigError
from userrl_core.user_path import user_path

PORT = 4311
SERVER_SECONDS = 300
"""Seconds to wait for a server. A busy machine takes minutes to import Prefect."""
BUSY_ANSWERS = 12
"""Unanswered requests, of 5 s each, after which a server that is up counts as another program."""


def default_port() -> int:
    """Return the port of this home's server: ``$USERRL_PORT``, else 4311."""
    return number_in_environment("USERRL_PORT", PORT, 1, 65535)


def find_server() -> str | None:
    """Return the API address of this folder's or home's running server, or None. This process's Prefect will use it."""
    env_url = os.environ.get(URL)
    urls = dict.fromkeys(
        [dotenv_url(home()), f"http://127.0.0.1:{default_port()}/api", configured_url()]
    )  # each is asked once
    url = env_url if env_url and listens(env_url) else None
    if not env_url:
        url = next((candidate for candidate in urls if candidate and _is_ours(candidate)), None)
    if url is not None:
        os.environ[URL] = url
    return url


def need_server() -> None:
    """Let this process's Prefect use the running server (`find_server`). Raises ConfigError if none runs."""
    if find_server() is None:
        raise ConfigError(
            "server.not_running", "No Prefect server runs here. Start one with `userrl up` in another terminal."
        )


def configured_url() -> str | None:
    """Return the server address in the working directory's prefect.toml. Raises ConfigError for a file that is no settings."""
    file = Path("prefect.toml")
    if not file.is_file():
        return None
    try:
        settings = tomllib.loads(file.read_text(encoding="utf-8")).get("api", {})
    except ValueError as error:
        raise ConfigError("file.unreadable", f"{file.absolute()} is not readable TOML ({error}). Correct it.") from None
    value = settings.get("url") if isinstance(settings, dict) else None
    return str(value) if value else None


def awaited_state(port: int) -> str:
    """Return `server_state`, after waiting for a server of this home that is too busy to answer."""
    state, patience = server_state(port), time.monotonic() + SERVER_SECONDS
    while state == "taken" and held(SharedServer(port).file("keeper")) and time.monotonic() < patience:
        time.sleep(0.25)
        state = server_state(port)
    return state


def server_state(port: int, host: str = "127.0.0.1") -> str:
    """Return ``free``, ``ours`` (a healthy Prefect server of this home), ``open`` (ours without a password) or ``taken``."""
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    if not listens(url):
        return "free"
    try:
        settings = _settings(url, None)
        state = "open"
    except httpx2.HTTPStatusError as error:
        if error.response.status_code != 401:
            return "taken"
        try:
            settings, state = _settings(url, password(home())), "ours"
        except (httpx2.HTTPError, ValueError):
            return "taken"  # another home's, with another password
    except (httpx2.HTTPError, ValueError):
        return "taken"  # also if it does not speak HTTP, or the answer is not a Prefect server's settings
    try:
        # A server started by hand in this folder has a relative home.
        return state if user_path(str(settings["home"])).resolve() == home() else "taken"
    except (KeyError, TypeError):
        return "taken"


def takes(url: str, secret: str) -> bool:
    """Return whether the Prefect server at an address takes a password. A server too busy to answer is asked again."""
    for _ in range(BUSY_ANSWERS):
        try:
            return bool(_settings(url, secret))
        except httpx2.HTTPStatusError:
            return False
        except (httpx2.HTTPError, ValueError):
            time.sleep(0.1)
    return False


def _is_ours(url: str) -> bool:
    """Return whether the server at an address is for this home. A server on another machine, or one with a chosen
    password, is not questioned.
    """
    if not is_loopback(url) or own_password():
        return listens(url)
    return awaited_state(urlsplit(url).port or 80) in ("ours", "open")


def _settings(url: str, secret: str | None) -> dict[str, object]:
    user, _, password_ = (secret or "").partition(":")
    auth = None if secret is None else (user, password_)
    answer = httpx2.get(f"{url}/api/admin/settings", auth=auth, timeout=5, trust_env=False)
    settings: dict[str, object] = answer.raise_for_status().json()
    return settings
