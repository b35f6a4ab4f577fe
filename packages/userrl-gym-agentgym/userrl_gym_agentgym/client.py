"""Sessions with AgentGym environment servers: opened, reset, stepped and always closed.

A step is sent once. An unanswered request may have been carried out, so only a refused connection is tried again. Every open
session is listed in a file of this process until it is closed. The next process to start closes the sessions of dead ones.

Blocking on purpose: `Gym.reset` is synchronous, and `AgentGymGym` calls from threads where it can wait.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import httpx2
import psutil

from userrl_core.errors import UserError
from userrl_core.key_names import fits_a_header
from userrl_core.served.bounded import PLAIN, Unbounded, bounded_blocking
from userrl_gym_agentgym.protocols import Protocol

TOKEN = "USERRL_GYM_TOKEN"
"""Environment variable with the token for servers on other machines. Recipes hold no secrets."""

PAUSE = 0.2
"""Seconds before the first retry of a refused connection. Each further pause is twice as long."""


class Session:
    """One session on one server. Every method raises UserError with the server's own words if the server fails."""

    def __init__(self, protocol: Protocol, server: str, number: int, timeout: float, retries: int) -> None:
        self.protocol, self.server, self.number = protocol, server, number
        self._timeout, self._retries = timeout, retries
        self._was_reset = False
        self._closed = False

    def reset(self, item: int, **more: Any) -> str:
        """Begin a task and return the first observation."""
        body = {self.protocol.session: self.number, self.protocol.item: item, **(self.protocol.asked or {}), **more}
        answer = self._ask("POST", "/reset", body, again=True)
        self._was_reset = True
        return self.protocol.opening(answer)

    def step(self, action: str) -> dict[str, Any]:
        """Carry out one action and return the server's answer."""
        answer = self._ask("POST", "/step", {self.protocol.session: self.number, "action": action}, again=False)
        if not isinstance(answer, dict):
            raise UserError("gym.server_failed", f"{self.server}/step did not answer with a JSON object.")
        return answer

    def observe(self) -> Any:
        """Return the last observation from the server."""
        return self._ask("GET", "/observation", {self.protocol.session: self.number}, again=True)

    def close(self) -> None:
        """End the session, once. If the server is gone, there is nothing to close."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(UserError):
            if not self._was_reset:  # AgentGym's servers keep a session that was never reset
                self.reset(0)
        with contextlib.suppress(UserError):
            self._ask("POST", "/close", {self.protocol.session: self.number}, again=False)
        _OPEN.remove(self)

    def _ask(self, method: str, path: str, body: Any, *, again: bool) -> Any:
        return ask(self.server, method, path, body, timeout=self._timeout, retries=self._retries, again=again)


def open_session(
    protocol: Protocol, servers: Sequence[str], item: int, *, timeout: float = 60.0, retries: int = 3, **more: Any
) -> Session:
    """Open a session on the server with the fewest sessions of this process, or on the next one if it is down.

    Raises UserError if no server opens one.
    """
    _OPEN.close_leftovers()
    failures = []
    for server in _OPEN.by_load(servers):
        body = protocol.created(item)
        if more:
            body = {**(body or {}), **more}
        try:
            answer = ask(server, "POST", "/create", body, timeout=timeout, retries=retries, again=False)
            number = answer[protocol.session] if isinstance(answer, dict) else answer
            if not isinstance(number, int) or isinstance(number, bool):
                raise UserError("gym.server_failed", f"{server}/create did not answer with a session number.")
        except (UserError, KeyError) as error:
            failures.append(str(error))
            continue
        session = Session(protocol, server, number, timeout, retries)
        _OPEN.add(session)
        return session
    raise UserError("gym.server_failed", " ".join(failures) or "No environment server was given. Set servers.")


def ask(server: str, method: str, path: str, body: Any, *, timeout: float, retries: int, again: bool) -> Any:
    """Send one request and return its JSON. again: whether a lost request may be sent again.

    Raises UserError for a missing, too long or compressed answer, a status other than 200, an answer that is not JSON, and an
    ``error`` in it.
    """
    where = f"{server}{path}"
    for attempt in itertools.count():
        try:
            request_fields: dict[str, Any] = (
                {"params": body} if method == "GET" else {} if body is None else {"json": body}
            )
            response = _http().request(method, where, timeout=timeout, **request_fields)
            break
        except Unbounded as error:
            raise UserError("gym.server_failed", f"{where} {error}.") from None
        except httpx2.TransportError as error:
            # Refused: nothing was sent. Anything else may have been carried out.
            is_refused = isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout))
            if attempt >= retries or not (again or is_refused):
                raise UserError("gym.server_failed", f"{where} did not answer ({type(error).__name__}).") from None
            time.sleep(PAUSE * 2**attempt)
    if response.status_code != 200:
        raise UserError("gym.server_failed", f"{where} answered with status {response.status_code}.")
    try:
        answer = response.json()
    except (ValueError, RecursionError):
        raise UserError("gym.server_failed", f"{where} did not answer with JSON.") from None
    if isinstance(answer, dict) and "error" in answer:
        raise UserError("gym.server_failed", f"{where}: {str(answer['error'])[:200]}")
    return answer


@lru_cache(maxsize=1)
def _http() -> httpx2.Client:
    token = os.environ.get(TOKEN, "")
    if not fits_a_header(token):
        raise UserError("gym.server_failed", f"${TOKEN} contains a character that no token has. Set it again.")
    headers = PLAIN | ({"Authorization": f"Bearer {token}"} if token else {})
    limits = httpx2.Limits(max_connections=None)
    return httpx2.Client(limits=limits, trust_env=False, headers=headers, event_hooks={"response": [bounded_blocking]})


class _Open:
    """The open sessions of this process, and their file, which outlives the process."""

    def __init__(self) -> None:
        self._sessions: list[Session] = []
        self._lock = threading.Lock()
        self._looked = False
        self._turn: Callable[[], int] = itertools.count().__next__

    def by_load(self, servers: Sequence[str]) -> list[str]:
        """Return the servers ordered by their number of sessions from here. Equals take turns."""
        servers = [server.rstrip("/") for server in servers]
        with self._lock:
            start = self._turn()
            counts = [sum(session.server == server for session in self._sessions) for server in servers]
        order = sorted(range(len(servers)), key=lambda index: (counts[index], (index - start) % len(servers)))
        return [servers[index] for index in order]

    def add(self, session: Session) -> None:
        with self._lock:
            self._sessions.append(session)
            self._write()

    def remove(self, session: Session) -> None:
        with self._lock:
            if session in self._sessions:
                self._sessions.remove(session)
                self._write()

    def close_leftovers(self) -> None:
        """Close the sessions left open by dead processes, once in this process."""
        with self._lock:
            if self._looked:
                return
            self._looked = True
        for path in _folder().glob("[0-9]*-[0-9]*.json"):
            process, _, started = path.stem.partition("-")
            if not _alive(int(process), int(started)):
                for server, body in _left(path):
                    with contextlib.suppress(UserError):
                        ask(server, "POST", "/close", body, timeout=10.0, retries=0, again=False)
                path.unlink(missing_ok=True)

    def _write(self) -> None:
        path = _folder() / f"{os.getpid()}-{int(psutil.Process().create_time())}.json"
        rows = [[session.server, {session.protocol.session: session.number}] for session in self._sessions]
        if not rows:
            path.unlink(missing_ok=True)
            return
        partial = path.with_suffix(f".{threading.get_ident()}.tmp")
        partial.write_text(json.dumps(rows))
        partial.replace(path)


_OPEN = _Open()


def _folder() -> Path:
    """Return a folder owned by this user. Its contents are sent to servers, so nobody else may write there."""
    folder = Path(tempfile.gettempdir()) / f"userrl-agentgym-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise UserError("file.not_writable", f"{folder} belongs to another user. Remove it.")
    return folder


def _alive(process: int, started: int) -> bool:
    try:
        return int(psutil.Process(process).create_time()) == started
    except psutil.NoSuchProcess:
        return False


def _left(path: Path) -> Iterator[tuple[str, dict[str, int]]]:
    try:
        rows = json.loads(path.read_text())
    except (OSError, ValueError):
        return
    for server, body in rows:
        yield str(server), body
