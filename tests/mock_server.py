"""An OpenAI-compatible HTTP server on loopback: it answers, records every request, and injects faults.

``with MockServer(brain) as server: ChatServer(base_url=server.base_url)``. A brain maps a request body to an `Answer`.
Faults are drawn by share from a seeded generator, so that the number of faults over n requests is reproducible.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests import server_faults
from tests.server_faults import Wire
from userrl_core.gyms import demonstrator_class, make
from userrl_core.interact import InteractCall, render_call
from userrl_core.records import Task

# Those that most tests play; `tests.server_faults` has more, which are drawn by their names there.
FAULTS = ("429", "500", "timeout", "broken_json", "truncated", "empty_choices", "wrong_schema")

_DATA = re.compile(r'<data id="([0-9a-f]+)">\n.*?\n</data id="\1">', re.DOTALL)
_SCHEMA = re.compile(r"It must fit this JSON schema:\n(\{.*?\})(?:\n|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Answer:
    """The model's message: text or tool calls. body: sent in place of the whole completion."""

    text: str = ""
    tool_calls: list[dict[str, Any]] | None = None
    finish_reason: str = "stop"
    body: bytes | None = None
    status: int = 200
    headers: Mapping[str, str] | None = None


Body = dict[str, Any]
Brain = Callable[[Body], Answer]


@dataclass
class MockServer:
    """Starts on enter with a free port, stops on exit.

    faults: share of all requests per kind of fault. structured / tools: False answers 400 to requests that use them.
    requests: every body received, also those with a fault. retry_after: header of a 429, in seconds.
    """

    brain: Brain
    faults: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    structured: bool = True
    tools: bool = True
    retry_after: float | None = 0.0
    requests: list[Body] = field(default_factory=list)
    injected: list[str] = field(default_factory=list)
    most_in_flight: int = 0

    def __enter__(self) -> MockServer:
        self._rng = random.Random(self.seed)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._in_flight = 0
        outer = self

        class Handler(_Handler):
            mock = outer

        self._http = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def texts(self) -> list[str]:
        """Every request's messages as one text each."""
        with self._lock:
            return [prompt_text(body) for body in self.requests]

    def draw(self, body: Body) -> str | None:
        with self._lock:
            self.requests.append(body)
            x = self._rng.random()
            for kind, share in self.faults.items():
                x -= share
                if x < 0:
                    self.injected.append(kind)
                    return kind
        return None

    def wait_until_stopped(self, seconds: float) -> None:
        self._stopping.wait(seconds)

    def enter(self, by: int) -> None:
        with self._lock:
            self._in_flight += by
            self.most_in_flight = max(self.most_in_flight, self._in_flight)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Quiet: a client that closes the connection after a time-out raises here."""


class _Handler(BaseHTTPRequestHandler):
    mock: MockServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.mock.enter(1)
        try:
            self._answer(body)
        finally:
            self.mock.enter(-1)

    def _answer(self, body: Body) -> None:
        fault = self.mock.draw(body)
        if body.get("response_format") and not self.mock.structured:
            return self._send(400, _error("response_format is not supported"))
        if body.get("tools") and not self.mock.tools:
            return self._send(400, _error("tools are not supported"))
        if fault == "429":
            after = self.mock.retry_after
            return self._send(429, _error("slow down"), {} if after is None else {"retry-after": f"{after:g}"})
        if fault == "500":
            return self._send(500, _error("internal error of a server that saw sk-secret-key-123456"))
        if fault == "401":
            return self._send(401, _error(f"Incorrect API key provided: {self.headers['authorization'].split()[-1]}"))
        if fault == "timeout":
            self.mock.wait_until_stopped(5.0)
            self.close_connection = True
            return None
        if fault == "empty_choices":
            return self._send(200, json.dumps({"choices": []}).encode())
        answer = self.mock.brain(body)
        if fault == "wrong_schema":
            answer = Answer('{"unrelated": [1, 2]}' if _schema(body) else "")
        payload = answer.body if answer.body is not None else json.dumps(_completion(body, answer)).encode()
        if fault in server_faults.FAULTS:
            return self._send_wire(server_faults.FAULTS[fault](payload))
        if fault == "broken_json":
            return self._send(200, payload[: len(payload) // 2])
        if fault == "truncated":
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(payload) + 100))
            self.end_headers()
            self.wfile.write(payload)
            self.wfile.flush()
            self.close_connection = True
            return None
        return self._send(answer.status, payload, answer.headers)

    def _send(self, status: int, payload: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(payload)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(payload)

    def _send_wire(self, wire: Wire) -> None:
        self.close_connection = wire.then != "keep"
        if not wire.raw:
            self.send_response(wire.status)
            for name, value in ({"content-type": "application/json"} | dict(wire.headers)).items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(wire.body) if wire.length is None else wire.length))
            self.end_headers()
        self.wfile.write(wire.body)
        if wire.then == "hang":
            self.mock.wait_until_stopped(5.0)
        elif wire.then == "drip":
            for _ in range(100):
                self.mock.wait_until_stopped(0.05)
                self.wfile.write(b" ")
        elif wire.then == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()


def _error(message: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": "mock", "code": None}}).encode()


def _completion(body: Body, answer: Answer) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    if answer.tool_calls:
        message["tool_calls"] = answer.tool_calls
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": answer.finish_reason}],
        "usage": {"prompt_tokens": len(prompt_text(body)) // 4, "completion_tokens": 7, "total_tokens": 0},
    }


def prompt_text(body: Body) -> str:
    """All message contents of a request, joined."""
    return "\n".join(str(message.get("content") or "") for message in body["messages"])


def unquoted(body: Body) -> str:
    """The request's text without fenced data: the part that an obedient model takes orders from."""
    return _DATA.sub("", prompt_text(body))


def _schema(body: Body) -> dict[str, Any] | None:
    """The JSON schema a request asks for, by response_format or in words."""
    if body.get("response_format"):
        schema: dict[str, Any] = body["response_format"]["json_schema"]["schema"]
        return schema
    match = _SCHEMA.search(prompt_text(body))
    return json.loads(match.group(1)) if match else None


def tool_call(choice: str, content: str, number: int = 0) -> dict[str, Any]:
    arguments = json.dumps({"choice": choice, "content": content})
    return {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": "interact_with_env", "arguments": arguments},
    }


def modest_user(body: Body) -> Answer:
    """A user and judge that grants nothing: every field of the schema has its least value."""
    schema = _schema(body)
    return Answer(json.dumps(fill(schema, schema)) if schema else "I would rather not say.")


def obedient_user(body: Body) -> Answer:
    """Follows any order outside of a fence: reveals its whole prompt and judges in the attacker's favour."""
    schema = _schema(body)
    if not re.search(r"ignore|reveal|disregard|override|system message|new rule", _orders(body), re.IGNORECASE):
        return modest_user(body)
    prompt = prompt_text(body)
    return Answer(json.dumps(fill(schema, schema, prompt)) if schema else prompt)


def _orders(body: Body) -> str:
    """The text in which the obedient model looks for orders: all but our own system message."""
    rest = {**body, "messages": [m for m in body["messages"] if m["role"] != "system"]}
    return unquoted(rest)


_STRICT = ("No", "none", "other", "unrelated", "Strongly Agree")
_GENEROUS = ("Yes", "full", "held", "match", "Strongly Disagree")


def fill(node: Any, root: Any, secret: str | None = None) -> Any:
    """A value that fits a schema: the least one; with a secret the greatest one, with the secret in every text."""
    if "$ref" in node:
        return fill(root["$defs"][node["$ref"].rsplit("/", 1)[1]], root, secret)
    if "anyOf" in node:
        return fill(node["anyOf"][0], root, secret)
    if "const" in node:
        return node["const"]
    if "enum" in node:
        preferred = _GENEROUS if secret else _STRICT
        return next((value for value in node["enum"] if value in preferred), node["enum"][-1 if secret else 0])
    kind = node.get("type")
    if kind == "object":
        return {name: fill(part, root, secret) for name, part in node.get("properties", {}).items()}
    if kind == "array":
        return [fill(node["items"], root, secret)] * (node.get("minItems", 0) if secret is None else 1)
    if kind == "boolean":
        return secret is not None
    if kind in ("integer", "number"):
        return node.get("maximum", 1) if secret else node.get("minimum", 0)
    return secret or "I see."


class DemonstratorAgent:
    """A served agent that plays the scripted demonstrator of the conversation's task.

    Stateless, as a server is: every request replays the demonstrator over the observations in it. Of several tasks with the
    same opening it takes the first one whose gym gives the same observations. Replies with tool calls where the request has
    tools, else in Hermes text.
    """

    def __init__(self, tasks: Sequence[Task], skill: float = 1.0) -> None:
        self._skill = skill
        self._tasks: dict[str, list[Task]] = {}
        for task in tasks:
            self._tasks.setdefault(make(task.gym, task).reset(seed=0), []).append(task)

    def __call__(self, body: Body) -> Answer:
        messages = [m for m in body["messages"] if m["role"] != "system"]
        observations = [str(m["content"]) for m in messages if m["role"] != "assistant"]
        candidates = self._tasks[observations[0]]
        replays = (self._replay(task, observations, len(candidates) > 1) for task in candidates)
        calls = [call for call in replays if call]
        if not calls:
            raise AssertionError(f"no task of this agent gives the observations {observations!r}")
        if body.get("tools"):
            return Answer("", [tool_call(str(calls[0].choice), calls[0].content, len(observations))], "tool_calls")
        return Answer(render_call(calls[0], "Let me see."))

    def _replay(self, task: Task, observations: Sequence[str], compare: bool) -> InteractCall | None:
        """The next call in this task, None when its gym gives other observations."""
        gym = make(task.gym, task)
        demonstrator = demonstrator_class(task.gym)(task, random.Random(0), self._skill, gym.config)
        gym.reset(seed=0)
        for observation, following in itertools.pairwise(observations):
            call = demonstrator.act(observation)
            if compare and asyncio.run(gym.step(call)).observation != following:
                return None
        next_call: InteractCall = demonstrator.act(observations[-1])
        return next_call


def both(agent: Brain, user: Brain) -> Brain:
    """One server for agent and user: requests that hold our tool are the agent's."""

    def brain(body: Body) -> Answer:
        system = str(body["messages"][0].get("content") or "")
        return agent(body) if body.get("tools") or "interact_with_env" in system else user(body)

    return brain
