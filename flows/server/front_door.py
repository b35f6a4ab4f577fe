"""Checks in front of every HTTP server of ours: the origin, size and duration of a request.

A page of another site can send requests to this machine (``Origin`` shows it), and can point its own name here (``Host``
shows it). Any client can send without end, or never finish. All of these are refused before the application sees them.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import secrets
import socket
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import h11
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from flows.server.password import kept
from userrl_core.errors import ConfigError

TOKEN = "USERRL_SERVE_TOKEN"
"""The environment variable of a token chosen by a person. Otherwise a token is generated."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
HEADER_BYTES = 16 * 2**10
BODY_BYTES = 2**20
HEADER_SECONDS = 10.0
"""Seconds from the connection, or the first byte of a further request, to the end of its headers."""
BODY_SECONDS = 30.0
POLICY = (
    b"frame-ancestors 'none'; object-src 'none'; base-uri 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    b"worker-src 'self' blob:"  # Prefect's pages lay out timelines and read Markdown in workers made of blobs of their own
)
"""The Content-Security-Policy of every answer: no framing, no plugins, no scripts of other origins.

Inline scripts and eval stay allowed, since NiceGUI and Prefect's pages start by inline scripts and NiceGUI runs its own by eval.
Without worker-src, workers fall under script-src, and Prefect's timelines, artifacts and descriptions stay empty. Only a script
of the page can make a blob of its origin, so no other origin gains by it.
"""
CONNECTIONS = 256
"""Connections per address. Beyond it, the one that has sent an unfinished request for longest is closed, else one without
a request.
"""


@dataclass(frozen=True, slots=True)
class FrontDoor:
    """The application behind its checks.

    hosts: accepted host names. token: required in ``Authorization: Bearer``, unless None. body: maximum bytes of a request's
    body. seconds: time limit for receiving the body.
    """

    app: ASGIApp
    hosts: Collection[str] = LOOPBACK
    token: str | None = field(default=None, repr=False)
    body: int = BODY_BYTES
    seconds: float = BODY_SECONDS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on with its whole body."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        headers = scope["headers"]
        refusal = self._stranger(headers)
        if refusal is None and scope["type"] == "http":
            try:
                receive = await self._read(headers, receive)
            except _TooLarge:
                refusal = 413, f"A request's body may have {self.body} bytes."
            except TimeoutError:
                refusal = 408, f"The request's body did not arrive within {self.seconds:g} s."
            except ConnectionError:
                return
        if refusal is None:
            await self.app(scope, receive, _unframed(send))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await _answer(send, *refusal)

    def _stranger(self, headers: list[tuple[bytes, bytes]]) -> tuple[int, str] | None:
        """Return status and sentence if the request comes from elsewhere or has too large headers, else None."""
        if sum(len(name) + len(value) for name, value in headers) > HEADER_BYTES:
            return 431, f"A request's headers may have {HEADER_BYTES} bytes."
        hosts, origins, tokens = (_values(headers, name) for name in (b"host", b"origin", b"authorization"))
        if len(hosts) != 1 or _host(hosts[0]) not in self.hosts:
            return 421, f"This server answers as {', '.join(self.hosts)} alone."
        if any(origin not in (f"http://{hosts[0]}", f"https://{hosts[0]}") for origin in origins):
            return 403, "Pages of other sites may not use this server."
        if not _may_load(headers):
            return 403, "Pages of other sites may link to this server and may not load anything from it."
        if self.token is not None and not any(
            hmac.compare_digest(token.encode(), f"Bearer {self.token}".encode()) for token in tokens
        ):
            return 401, "This server wants its token: Authorization: Bearer TOKEN."
        return None

    async def _read(self, headers: list[tuple[bytes, bytes]], receive: Receive) -> Receive:
        """Read the whole body. Raises _TooLarge, TimeoutError, or ConnectionError if the client left."""
        if any(not size.isdigit() or int(size) > self.body for size in _values(headers, b"content-length")):
            raise _TooLarge
        parts, length, more = [], 0, True
        async with asyncio.timeout(self.seconds):
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    raise ConnectionError
                parts.append(message.get("body", b""))
                length += len(parts[-1])
                more = message.get("more_body", False)
                if length > self.body:
                    raise _TooLarge
        messages = deque([{"type": "http.request", "body": b"".join(parts), "more_body": False}])

        async def replay() -> Message:
            return messages.popleft() if messages else await receive()

        return replay


class PatientProtocol(H11Protocol):
    """HTTP/1.1 with a time limit for a request's headers, and a limit of connections per address."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit of the first request."""
        super().connection_made(transport)
        self._wait()
        mates = [
            other for other in self.connections if isinstance(other, PatientProtocol) and other._peer == self._peer
        ]
        if len(mates) > CONNECTIONS:
            others = {other: other._unfinished for other in mates if other is not self}
            unanswered = {other: since for other, since in others.items() if since is not None}
            min(unanswered, key=unanswered.__getitem__, default=self)._leave()

    def data_received(self, data: bytes) -> None:
        """Keep the time limit while headers are incomplete, and cancel it once they are complete."""
        if self.conn.their_state is h11.IDLE and self._deadline is None:
            self._wait()
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the time limit."""
        self._stop_waiting()
        super().connection_lost(exc)

    @property
    def _unfinished(self) -> tuple[bool, float] | None:
        """Whether no request has begun, and since when the connection waits; None while a whole request is answered."""
        state = self.conn.their_state
        if state not in (h11.IDLE, h11.SEND_BODY):
            return None
        return state is h11.IDLE and self._deadline is None, self._since

    @property
    def _peer(self) -> str:
        return self.client[0] if self.client else ""

    def _wait(self) -> None:
        self._since = self.loop.time()
        self._deadline = self.loop.call_later(HEADER_SECONDS, self._leave)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _leave(self) -> None:
        self._stop_waiting()
        self.transport.abort()


def guarded(app: ASGIApp, host: str, names: Sequence[str], home: Path, *, body: int = BODY_BYTES) -> FrontDoor:
    """Return the application for an address: open to this machine only, or to clients with the home's token.

    names: additional accepted host names. Raises ConfigError for a wildcard address without names.
    """
    if host in LOOPBACK:
        return FrontDoor(app, body=body)
    if not names and host in ("0.0.0.0", "::"):
        raise ConfigError(
            "argument.missing", f"To listen on {host}, give the names it is reached by: --name gpu-host.example."
        )
    token = os.environ.get(TOKEN) or kept(token_file(home), secrets.token_urlsafe)
    return FrontDoor(app, hosts=(*LOOPBACK, host, *names), token=token, body=body)


def token_file(home: Path) -> Path:
    """Return the file with the token for servers that other machines can reach."""
    return home / "serve.token"


@contextlib.contextmanager
def bound(host: str, port: int) -> Iterator[socket.socket]:
    """Take an address before the work that a server needs, such as loading a model. Nobody can connect yet.

    Raises ConfigError if another server has it, or the host has no such address.
    """
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as door_socket:
        door_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with _refused(host, port):
            door_socket.bind((host, port))
        yield door_socket


def serve(
    app: FrontDoor, door_socket: socket.socket, on_ready: Callable[[], object] = lambda: None, **settings: Any
) -> None:
    """Serve on a bound socket until SIGINT or SIGTERM. on_ready: called once clients can connect.

    Raises ConfigError if another server has begun to listen there meanwhile.
    """
    _listen(door_socket)
    on_ready()
    uvicorn.Server(_config(app, **settings)).run(sockets=[door_socket])


@contextlib.contextmanager
def served(app: FrontDoor, host: str, port: int) -> Iterator[None]:
    """Serve from a thread while the block runs. Raises ConfigError if the address cannot be listened on."""
    with bound(host, port) as door_socket, serving(app, door_socket):
        yield


@contextlib.contextmanager
def serving(app: FrontDoor, door_socket: socket.socket) -> Iterator[None]:
    """Serve on a bound socket from a thread while the block runs. Raises ConfigError as `serve` does."""
    _listen(door_socket)
    server = uvicorn.Server(_config(app))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [door_socket]}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(timeout=10.0)


def _config(app: FrontDoor, **settings: Any) -> uvicorn.Config:
    quiet: dict[str, Any] = {
        "log_level": "warning",
        "access_log": False,
        "server_header": False,
        "timeout_graceful_shutdown": 5,
    }
    limits: dict[str, Any] = {
        "http": PatientProtocol,
        "h11_max_incomplete_event_size": HEADER_BYTES,
        "ws_max_size": app.body,
    }
    return uvicorn.Config(app, **(limits | quiet | settings))


def _listen(door_socket: socket.socket) -> None:
    host, port = door_socket.getsockname()[:2]
    with _refused(host, port):
        door_socket.listen(2048)


@contextlib.contextmanager
def _refused(host: str, port: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(
            "server.port_taken",
            f"The server cannot listen on {host} port {port}: {error.strerror}. Choose another port.",
        ) from error


class _TooLarge(Exception):
    pass


def _values(headers: list[tuple[bytes, bytes]], name: bytes) -> list[str]:
    return [value.decode("latin-1").strip() for key, value in headers if key.lower() == name]


def _host(header: str) -> str | None:
    try:
        return urlsplit(f"//{header}").hostname
    except ValueError:
        return None


def _may_load(headers: list[tuple[bytes, bytes]]) -> bool:
    """Return True unless a browser says that a page of another origin loads this address as a part of itself.

    A link that a person follows is a top-level navigation and passes, as does a client that sends no Sec-Fetch headers.
    """
    sites, modes, targets = (
        _values(headers, name) for name in (b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest")
    )
    if all(site in ("same-origin", "none") for site in sites):
        return True
    return modes == ["navigate"] and targets == ["document"]


def _unframed(send: Send) -> Send:
    """Return a `send` that adds `POLICY` to every answer."""

    async def with_policy(message: Message) -> None:
        if message["type"] == "http.response.start":
            other_headers = [
                pair for pair in message.get("headers", ()) if pair[0].lower() != b"content-security-policy"
            ]
            message = {
                **message,
                "headers": [*other_headers, (b"content-security-policy", POLICY), (b"x-frame-options", b"DENY")],
            }
        await send(message)

    return with_policy


async def _answer(send: Send, status: int, sentence: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"{sentence}\n".encode()})
