"""What can go wrong with one reply of a model server: a table of 42 kinds, sent by `tests.mock_server`.

Each kind makes of a good reply's bytes what goes over the wire instead. None of them is an answer of the model, so none may
become a reward; a kind under ``STATED`` is an answer with a false count of tokens, so none of those may be believed.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Wire:
    """One reply as it is sent. length: the stated one; None: the true one. raw: the body holds status and headers too.

    then: what happens after the body. ``keep`` the connection, ``close`` it, ``reset`` it, ``hang`` until the client has had
    enough, or ``drip`` a byte at a time for as long.
    """

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    length: int | None = None
    raw: bool = False
    then: Literal["keep", "close", "reset", "hang", "drip"] = "keep"


Fault = Callable[[bytes], Wire]


def _status(code: int, **headers: str) -> Fault:
    body = json.dumps({"error": {"message": f"no, {code}", "type": "mock", "code": None}}).encode()
    return lambda good: Wire(body, code, {name.replace("_", "-"): value for name, value in headers.items()})


def _body(body: bytes) -> Fault:
    return lambda good: Wire(body)


def _choice(choice: Any) -> Fault:
    return _body(json.dumps({"choices": [choice]}).encode())


def _message(**message: Any) -> Fault:
    return _choice({"message": {"role": "assistant", **message}, "finish_reason": "stop"})


def _usage(**usage: Any) -> Fault:
    return lambda good: Wire(json.dumps({**json.loads(good), "usage": usage}).encode())


FAULTS: dict[str, Fault] = {
    # The server says no, for a moment or for good.
    "400": _status(400),
    "401": _status(401),
    "404": _status(404),
    "408": _status(408),
    "422": _status(422),
    "429": _status(429, retry_after="0"),
    "429 and no time": _status(429, retry_after="soon"),
    "429 and a time long ago": _status(429, retry_after="Thu, 01 Jan 1970 00:00:00 GMT"),
    "500": _status(500),
    "502 of a proxy": lambda good: Wire(b"<html>Bad Gateway</html>", 502, {"content-type": "text/html"}),
    "503": _status(503),
    "529": _status(529),
    "302 to nowhere": _status(302),
    "204": lambda good: Wire(b"", 204),
    # A body that is no chat completion.
    "empty body": _body(b""),
    "half a body": lambda good: Wire(good[: len(good) // 2]),
    "a web page": lambda good: Wire(b"<html>Sign in</html>", headers={"content-type": "text/html"}),
    "null": _body(b"null"),
    "a list": _body(b"[]"),
    "no UTF-8": _body(b"\xff\xfe\xfa"),
    "5,000 brackets": _body(b"[" * 5000),
    "an error with status 200": _body(b'{"error": {"message": "overloaded"}}'),
    "no choices": _body(b'{"choices": []}'),
    "choices null": _body(b'{"choices": null}'),
    "a choice without a message": _choice({"finish_reason": "stop"}),
    "a message that is a number": _choice({"message": 3}),
    # A message that says nothing, or nothing that can be read.
    "content null": _message(content=None),
    "content a number": _message(content=3.5),
    "content parts without text": _message(content=[{"type": "text", "text": 4}]),
    "tool calls a number": _message(content=None, tool_calls=7),
    "tool calls without a function": _message(content=None, tool_calls=[{"id": "call_0", "type": "function"}]),
    # The connection.
    "closed before the reply": lambda good: Wire(raw=True, then="close"),
    "reset in the reply": lambda good: Wire(good[:20], length=len(good), then="reset"),
    "closed in the reply": lambda good: Wire(good, length=len(good) + 100, then="close"),
    "no HTTP": lambda good: Wire(b"\x16\x03\x01 hello\r\n\r\n", raw=True, then="close"),
    "a broken chunk": lambda good: Wire(
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n" + good, raw=True, then="close"
    ),
    "packed": lambda good: Wire(gzip.compress(good), headers={"content-encoding": "gzip"}),
    "hangs before the reply": lambda good: Wire(raw=True, then="hang"),
    "drips": lambda good: Wire(length=10**6, then="drip"),
    # A good answer with a count of tokens that cannot be true.
    "usage below zero": _usage(prompt_tokens=-1000, completion_tokens=-1000),
    "usage of a trillion": _usage(prompt_tokens=10**12, completion_tokens=10**12),
    "usage in words": _usage(prompt_tokens="many", completion_tokens=True),
}

STATED = ("usage below zero", "usage of a trillion", "usage in words")
