"""One door to every OpenAI-compatible server: simulated users, judges and served policies all speak through it.

A `ChatClient` is shared by everybody who names the same server within one event loop; it limits concurrency, retries what
may pass (429, 5xx, time-outs, lost connections, unreadable or unfitting JSON), and writes one ledger row per call. What it
cannot repair becomes the error of the role that asked, so that a dead server is a null reward and never a zero.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from userrl_core.errors import ConfigError, JudgeError, PolicyError, UserError, UserRLError
from userrl_core.records import Message, ModelCall
from userrl_core.served.prices import price_of
from userrl_core.served.reasoning import spoken
from userrl_core.served.retry import Failure, pause_before, read_failure, redact
from userrl_core.served.structured import fit, instruct, response_format

if TYPE_CHECKING:
    from openai import AsyncOpenAI

Role = Literal["user", "judge", "policy"]


def _as_json(value: Any) -> Any:
    """A mapping as JSON with sorted keys, since only what is hashable can be part of a `ChatServer`."""
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            raise ValueError("this is neither a mapping nor a JSON object") from None
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ValueError("this is neither a mapping nor a JSON object")
    try:
        return orjson.dumps(dict(value), option=orjson.OPT_SORT_KEYS).decode()
    except TypeError as error:
        raise ValueError(f"this cannot be sent as JSON ({error})") from None


class ChatServer(BaseModel):
    """Where a model is served and how to call it. Hashable: equal settings share one client."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = "gpt-4o"
    """The model's name, as the server knows it (paper: gpt-4o)."""

    base_url: str | None = None
    """The server's ``/v1`` address; None means OPENAI_BASE_URL or OpenAI itself."""

    api_key_env: str = "OPENAI_API_KEY"
    """Name of the environment variable that holds the key; a server with a base_url needs none."""

    temperature: float | None = Field(default=0.0, ge=0.0, le=2.0)
    """Sampling temperature (released code: 0.0); None leaves it to the server."""

    max_tokens: int | None = Field(default=2048, gt=0)
    """Most tokens of a reply (released code: 2048)."""

    timeout: float = Field(default=30.0, gt=0)
    """Seconds that one attempt may take."""

    retries: int = Field(default=5, ge=0)
    """Attempts after the first."""

    concurrency: int = Field(default=32, ge=1)
    """Requests in flight at once on this server."""

    structured: Literal["auto", "json_schema", "off"] = "auto"
    """Structured outputs: tried and given up when the server refuses them (auto), always, or never."""

    backoff: float = Field(default=0.5, ge=0)
    """Seconds of the first pause between attempts; it doubles each time, with jitter, up to 30."""

    token_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """How this server calls the limit (OpenAI's reasoning models know only the second)."""

    extra_body: Annotated[str | None, BeforeValidator(_as_json)] = None
    """Further fields of every request: a mapping or a JSON object, kept as JSON. ``{"chat_template_kwargs":
    {"enable_thinking": false}}`` makes vLLM and SGLang serve Qwen3 without thinking."""


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """One usable answer.

    text: the message's content, "" beside tool calls; a user's or judge's without its thoughts. parsed: an instance of the
    asked schema, else None. tool_calls: as the API returned them. truncated: cut at the token limit.
    """

    text: str
    parsed: Any = None
    tool_calls: list[dict[str, Any]] | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    truncated: bool = False


class ToolsRefused(PolicyError):
    """The server answered 400 to a request with tools; the same may pass as plain text."""


ERRORS: dict[Role, type[UserRLError]] = {"user": UserError, "judge": JudgeError, "policy": PolicyError}

_clients: dict[asyncio.AbstractEventLoop, dict[ChatServer, ChatClient]] = {}


def client_for(server: ChatServer) -> ChatClient:
    """The shared client of this server in the running event loop. Raises ConfigError when the key is missing."""
    # Connections of a loop that is closed cannot be closed properly any more; let go of them.
    for loop in [loop for loop in _clients if loop.is_closed()]:
        del _clients[loop]
    mine = _clients.setdefault(asyncio.get_running_loop(), {})
    if server not in mine:
        mine[server] = ChatClient(server)
    return mine[server]


async def close_clients() -> None:
    """Close every client of the running event loop; the next `client_for` makes new ones."""
    for client in _clients.pop(asyncio.get_running_loop(), {}).values():
        await client.aclose()


class ChatClient:
    """Talks to one server. Make it with `client_for`, so that limits and connections are shared."""

    def __init__(self, server: ChatServer) -> None:
        self.server = server
        self._limit = asyncio.Semaphore(server.concurrency)
        self._structured = server.structured != "off"
        self._key = _key(server)
        self._api, self._faults = _connect(server, self._key)

    async def aclose(self) -> None:
        """Release the connections."""
        await self._api.close()

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        role: Role,
        ledger: list[ModelCall],
        schema: type[BaseModel] | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        tools: Sequence[dict[str, Any]] | None = None,
    ) -> ChatAnswer:
        """One answer, after as many attempts as the server's settings allow.

        schema: the reply must be JSON that fits it; an unfitting reply is retried with the reason named.
        ledger: gets exactly one row, also on failure and on cancellation. temperature, max_tokens: in place of the
        server's. role: what a user or judge thinks aloud is cut off (`spoken`); an agent's text stays as it is.
        Raises UserError, JudgeError or PolicyError by role, ToolsRefused for a server without tools.
        """
        call = ModelCall(role=role, model=self.server.model, attempts=0, error="Cancelled")
        began = time.perf_counter()
        attempt = _Attempt(
            list(messages), schema, temperature, max_tokens, tools, self._structured and schema is not None
        )
        try:
            answer = await self._until_good(attempt, call)
            call.error = None
            return answer
        except Failure as failure:
            call.error = failure.kind
            raise self._error(role, failure, call.attempts, tools is not None) from None
        finally:
            call.seconds = time.perf_counter() - began
            call.price = price_of(call.model, call.prompt_tokens, call.completion_tokens)
            ledger.append(call)

    async def _until_good(self, attempt: _Attempt, call: ModelCall) -> ChatAnswer:
        tries = 0
        while True:
            call.attempts += 1
            try:
                answer = await self._once(attempt, call)
            except Failure as failure:
                # 400 and 422 while a response format was sent: ask again without it, at once and at no cost to the budget.
                if failure.refused and attempt.structured and self.server.structured == "auto":
                    attempt.structured = False
                    continue
                tries += 1
                if not failure.retryable or tries > self.server.retries:
                    raise
                attempt.problem = failure.hint
                await asyncio.sleep(pause_before(tries, self.server.backoff, failure.retry_after))
                continue
            if attempt.schema is not None and not attempt.structured:
                self._structured = False
            return answer

    async def _once(self, attempt: _Attempt, call: ModelCall) -> ChatAnswer:
        request = self._request(attempt)
        async with self._limit:
            try:
                # The time-out holds for the whole attempt: the HTTP client's own restarts with every byte that drips in.
                async with asyncio.timeout(self.server.timeout):
                    raw = await self._api.chat.completions.with_raw_response.create(**request)
                    body = await raw.http_response.aread()
            except self._faults as error:
                raise read_failure(error) from None
        message, truncated, usage = _read_body(body)
        call.prompt_tokens += usage[0]
        call.completion_tokens += usage[1]
        text = str(message.get("content") or "")
        calls = message.get("tool_calls") or None
        # An object from the first character on is no thought, even if it quotes the tags of one.
        is_object = attempt.schema is not None and text.lstrip().startswith("{")
        if call.role != "policy" and calls is None and not is_object:
            text = spoken(text)
        parsed = fit(text, attempt.schema) if attempt.schema is not None else None
        return ChatAnswer(text, parsed, calls, usage[0], usage[1], truncated)

    def _request(self, attempt: _Attempt) -> dict[str, Any]:
        server = self.server
        messages = attempt.messages
        if attempt.schema is not None and not attempt.structured:
            messages = instruct(messages, attempt.schema)
        if attempt.problem is not None:
            messages = [*messages, {"role": "user", "content": attempt.problem}]
        request: dict[str, Any] = {"model": server.model, "messages": messages}
        if server.extra_body is not None:
            request["extra_body"] = orjson.loads(server.extra_body)
        temperature = server.temperature if attempt.temperature is None else attempt.temperature
        limit = server.max_tokens if attempt.max_tokens is None else attempt.max_tokens
        if temperature is not None:
            request["temperature"] = temperature
        if limit is not None:
            request[server.token_field] = limit
        if attempt.tools:
            request["tools"] = list(attempt.tools)
        if attempt.schema is not None and attempt.structured:
            request["response_format"] = response_format(attempt.schema)
        return request

    def _error(self, role: Role, failure: Failure, attempts: int, tools: bool) -> UserRLError:
        text = redact(f"{self.server.model} gave no usable reply in {attempts} attempts ({failure})", self._key)
        if role == "policy" and tools and failure.refused:
            return ToolsRefused(text)
        return ERRORS[role](text)


@dataclass(slots=True)
class _Attempt:
    """What one `complete` sends; ``structured`` and ``problem`` change between attempts."""

    messages: list[Message]
    schema: type[BaseModel] | None
    temperature: float | None
    max_tokens: int | None
    tools: Sequence[dict[str, Any]] | None
    structured: bool
    problem: str | None = None


def _key(server: ChatServer) -> str:
    key = os.environ.get(server.api_key_env, "")
    if key:
        return key
    if server.base_url or os.environ.get("OPENAI_BASE_URL"):
        return "none"
    raise ConfigError(
        f"Model '{server.model}' needs a key: set {server.api_key_env}, or give a base_url of your own server."
    )


def _connect(server: ChatServer, key: str) -> tuple[AsyncOpenAI, tuple[type[Exception], ...]]:
    """The HTTP client, and what it may raise for reasons outside of this process."""
    # Imported here: the client library takes most of a second to load, and gyms with rule users never need it.
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient, OpenAIError

    url = server.base_url or os.environ.get("OPENAI_BASE_URL")
    host = urlsplit(url).hostname if url else None
    local = host in ("localhost", "127.0.0.1", "::1")
    # A proxy from the environment cannot reach this machine's loopback.
    http = DefaultAsyncHttpxClient(trust_env=False) if local else None
    api = AsyncOpenAI(api_key=key, base_url=url, timeout=server.timeout, max_retries=0, http_client=http)
    return api, (OpenAIError, OSError, ValueError)


def _read_body(body: bytes) -> tuple[dict[str, Any], bool, tuple[int, int]]:
    """The first choice's message, whether it was cut, and (prompt, completion) tokens; read by hand, since servers vary."""
    try:
        value = orjson.loads(body)
        choice = value["choices"][0]
        message, reason = choice["message"], choice.get("finish_reason")
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError, AttributeError):
        raise Failure("Unreadable", "the body is no chat completion", retryable=True) from None
    if not isinstance(message, dict):
        raise Failure("Unreadable", "the body is no chat completion", retryable=True)
    # Nothing at all is a failing server; nothing because thinking used up the limit is the model's own doing.
    if not message.get("content") and not message.get("tool_calls") and reason != "length":
        raise Failure("Empty", "the reply is empty", retryable=True)
    usage = value.get("usage") or {}
    tokens = (_count(usage, "prompt_tokens"), _count(usage, "completion_tokens"))
    return message, reason == "length", tokens


def _count(usage: Any, name: str) -> int:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) else 0
