"""The password of a home's Prefect server, and the settings that lock the server with it.

A client of the server's API can run commands as the user who started its worker. So the server requires a password,
random for each home. It is stored in ``$USERRL_HOME/server.password``, and in the ``.env`` of the working folder for
`prefect` commands typed by hand (Prefect's settings read it). Only their owner can read these files. Processes get the
password by environment, never as an argument.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from userrl_core.replaced_file import sync

URL = "PREFECT_API_URL"
CLIENT, SERVER = "PREFECT_API_AUTH_STRING", "PREFECT_SERVER_API_AUTH_STRING"
"""The settings that hold the password: Prefect's client, Prefect's server."""

CHOSEN = "USERRL_SERVER_PASSWORD"
"""The environment variable of a password chosen by a person, as ``NAME:SECRET``. Otherwise a password is generated."""

DOORS: Mapping[str, str] = {
    "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
    "PREFECT_CLIENT_CSRF_SUPPORT_ENABLED": "true",
    "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": "",
    "PREFECT_SERVER_UI_API_URL": "/api",
}
"""Settings that keep pages of other sites from the API, and let the server's own pages use it at any address."""

_BEGIN, _END = "# userrl: the server at ", "# userrl: end"


def made() -> str:
    """Return a new password in the form of basic authentication."""
    return f"userrl:{secrets.token_urlsafe(32)}"


def password_file(home: Path) -> Path:
    """Return the file of the home's password."""
    return home / "server.password"


def password(home: Path) -> str:
    """Return the home's password, generated at first use, unless a person chose one (``$USERRL_SERVER_PASSWORD``)."""
    return os.environ.get(CHOSEN) or kept(password_file(home), made)


def kept(path: Path, new: Callable[[], str]) -> str:
    """Return the secret in a file that only its owner can read. The secret is generated at first use."""
    if path.is_file() and path.stat().st_size == 0:  # earlier versions did not sync it, and a power cut emptied it
        path.unlink(missing_ok=True)
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        _write_private(draft, new() + "\n")
        try:
            os.link(draft, path)  # of two simultaneous processes one wins, and both read its password
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        sync(path.parent)
    path.chmod(0o600)
    return path.read_text().strip()


def locked(secret: str) -> dict[str, str]:
    """Return the environment of a locked server and of its clients."""
    return {CLIENT: secret, SERVER: secret, **DOORS}


def own_password() -> bool:
    """Return whether a person chose a password for clients, in the environment or in ``.env`` outside our lines."""
    return CLIENT in os.environ or _names(_split(Path(".env"))[0], CLIENT)


def write_dotenv(secret: str, url: str, home: Path, file: Path = Path(".env")) -> None:
    """Let `prefect` commands in the working folder use the server of `home` at `url`.

    All other lines stay. Nothing is written if the person set a password there, or while another server noted there runs.
    """
    other_lines, ours = _split(file)
    if _names(other_lines, CLIENT):
        return
    if ours and ours.split(" ")[0] != url and listens(ours.split(" ")[0]):
        return
    address = [] if _names(other_lines, URL) else [f'{URL}="{url}"']
    block = [f"{_BEGIN}{url} of {home}", *address, f'{CLIENT}="{secret}"', f'{SERVER}="{secret}"', _END]
    file = file.resolve()
    draft = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    _write_private(draft, "\n".join([*other_lines, *block]) + "\n")
    draft.replace(file)


def dotenv_url(home: Path) -> str | None:
    """Return this home's server that `write_dotenv` noted last in the working folder."""
    url, _, of = _split(Path(".env"))[1].partition(" of ")
    return url if of == str(home) else None


def is_loopback(url: str) -> bool:
    """Return whether an address belongs to this machine."""
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")


def listens(url: str) -> bool:
    """Return whether a server accepts connections at an address."""
    try:
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 80), timeout=1.0):
            return True
    except (OSError, ValueError):  # ValueError: no port
        return False


def _names(lines: Sequence[str], variable: str) -> bool:
    return any(line.removeprefix("export ").partition("=")[0].strip() == variable for line in lines)


def _split(file: Path) -> tuple[list[str], str]:
    """Return a file's lines that are not ours, and the rest of our first line (``URL of HOME``), or an empty text."""
    other_lines: list[str] = []
    ours, within = "", False
    text = file.read_bytes().decode(errors="surrogateescape") if file.is_file() else ""
    for line in (
        text.removesuffix("\n").split("\n") if text else []
    ):  # other lines keep each byte, also a CR at their end
        if line.startswith(_BEGIN):
            ours, within = line.removeprefix(_BEGIN), True
        elif within:
            within = line != _END
        else:
            other_lines.append(line)
    return other_lines, ours


def _write_private(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode(errors="surrogateescape"))
        file.flush()
        os.fsync(file.fileno())
