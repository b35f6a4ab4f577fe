"""The password of a home's Prefect server, and the settings that lock the server with it.

Whoever may use the server's API may run commands as the user who started its worker. So the server wants a password, a random one
per home: in ``$USERRL_HOME/server.password`` and, for `prefect` commands typed by hand, in the ``.env`` of the working folder,
which Prefect's settings read; both are for their owner's eyes alone. Processes get it by environment, never as an argument.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

URL = "PREFECT_API_URL"
CLIENT, SERVER = "PREFECT_API_AUTH_STRING", "PREFECT_SERVER_API_AUTH_STRING"
"""The settings that hold the password, of Prefect's clients and of its server."""

CHOSEN = "USERRL_SERVER_PASSWORD"
"""The environment variable of a password that is chosen rather than made, as ``NAME:SECRET``."""

DOORS: Mapping[str, str] = {
    "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
    "PREFECT_CLIENT_CSRF_SUPPORT_ENABLED": "true",
    "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": "",
    "PREFECT_SERVER_UI_API_URL": "/api",
}
"""No other site's page may call the API, and the server's own pages do at whatever address they were opened."""

_BEGIN, _END = "# userrl: the server at ", "# userrl: end"


def made() -> str:
    """A new password, in the shape that basic authentication asks for."""
    return f"userrl:{secrets.token_urlsafe(32)}"


def password_file(home: Path) -> Path:
    """Where a home keeps its password."""
    return home / "server.password"


def password(home: Path) -> str:
    """The home's password, made when it is first asked for, unless a person chose one (``$USERRL_SERVER_PASSWORD``)."""
    return os.environ.get(CHOSEN) or kept(password_file(home), made)


def kept(path: Path, new: Callable[[], str]) -> str:
    """The secret in a file of its owner's alone, made when it is first asked for."""
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        _write_private(draft, new() + "\n")
        try:
            os.link(draft, path)  # of two processes at once one wins, and both read its password
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    path.chmod(0o600)
    return path.read_text().strip()


def locked(secret: str) -> dict[str, str]:
    """The environment of a locked server and of its clients."""
    return {CLIENT: secret, SERVER: secret, **DOORS}


def own_password(environment: Mapping[str, str] = os.environ, file: Path = Path(".env")) -> bool:
    """Whether the person chose a password for clients: in the environment, or in ``.env`` outside the lines that are ours."""
    if CLIENT in environment:
        return True
    return _names(_split(file)[0], CLIENT)


def write_dotenv(secret: str, url: str, home: Path, file: Path = Path(".env")) -> None:
    """Let `prefect` commands in the working folder use the server of `home` at `url`.

    Every other line stays. Nothing is written where the person set a password there, or while another server whose address
    stands there still runs.
    """
    kept, ours = _split(file)
    if _names(kept, CLIENT):
        return
    if ours and ours.split(" ")[0] != url and listens(ours.split(" ")[0]):
        return
    address = [] if _names(kept, URL) else [f'{URL}="{url}"']
    block = [f"{_BEGIN}{url} of {home}", *address, f'{CLIENT}="{secret}"', f'{SERVER}="{secret}"', _END]
    file = file.resolve()
    draft = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    _write_private(draft, "\n".join([*kept, *block]) + "\n")
    draft.replace(file)


def dotenv_url(home: Path, file: Path = Path(".env")) -> str | None:
    """The server of this home that `write_dotenv` noted last in the working folder."""
    url, _, of = _split(file)[1].partition(" of ")
    return url if of == str(home) else None


def is_loopback(url: str) -> bool:
    """Whether an address is this machine's own."""
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")


def listens(url: str) -> bool:
    """Whether anything takes connections at an address."""
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 80), timeout=1.0):
            return True
    except OSError:
        return False


def _names(lines: Sequence[str], variable: str) -> bool:
    return any(line.removeprefix("export ").partition("=")[0].strip() == variable for line in lines)


def _split(file: Path) -> tuple[list[str], str]:
    """A file's lines that are not ours, and what our first one says (``URL of HOME``), empty where there is none."""
    kept: list[str] = []
    ours, within = "", False
    for line in file.read_text().splitlines() if file.is_file() else []:
        if line.startswith(_BEGIN):
            ours, within = line.removeprefix(_BEGIN), True
        elif within:
            within = line != _END
        else:
            kept.append(line)
    return kept, ours


def _write_private(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
