"""A client for OpenAI-compatible servers: simulated users, judges and served policies.

All callers of the same server within one event loop share a `ChatClient`. It limits concurrency and retries transient
failures: 429, 5xx, time-outs, lost connections, and JSON that is unreadable or does not fit the schema. It writes one
ledger row per call. A permanent failure is raised as the error of the calling role, so a dead server gives a null
reward and never a zero.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit

import orjson
from pydantic import BaseModel, BeforeValidator, Field

from userrl_core.errors import ConfigError, JudgeError, PolicyError, UserError, UserRLError
from userrl_core.key_names import fits_a_header
from userrl_core.records import Message, ModelCall
from userrl_core.served.prices import own_prices, price_of
from userrl_core.served.retry import Failure, pause_before, read_failure, redact, stated_failure
from userrl_core.served.sent import Sent, watched
from userrl_core.served.structured import fit, instruct, response_format
from userrl_core.settings import Settings

if TYPE_CHECKING:
    import ssl

    from openai import AsyncOpenAI

Role = Literal["user", "judge", "policy"]
_BLANK = re.compile(r"[\s\x00-\x1f]")


SENT = (
    *("model", "messages", "temperature", "top_p", "max_tokens", "max_completion_tokens", "tools", "tool_choice"),
    *("response_format", "stream", "n"),
)
"""Fields of a request that the client sets itself, or whose replies it does not read."""


def _as_json(value: Any) -> Any:
    """Return a mapping as JSON with sorted keys, because a `ChatServer` must be hashable."""
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


def check_extra_body(extra: str | Mapping[str, Any] | None) -> None:
    """Raise ConfigError for a field that the client sets itself. A recipe that was stored before this rule still opens."""
    fields = orjson.loads(extra) if isinstance(extra, str) else extra or {}
    if (name := next(filter(fields.__contains__, SENT), None)) is not None:
        raise ConfigError(
            "user.bad_option", f"option extra_body: it has '{name}', which the client sets itself; remove it"
        )


class ChatServer(Settings):
    """The address of a served model and the settings of its calls. Hashable: equal settings share one client."""

    model: str = "gpt-4o"
    """The model's name on the server (paper: gpt-4o)."""

    base_url: str | None = None
    """The server's ``/v1`` address; None uses OPENAI_BASE_URL or OpenAI itself."""

    api_key_env: str = Field(default="OPENAI_API_KEY", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """Name of the environment variable with the key; not needed with a base_url."""

    temperature: float | None = Field(default=0.0, ge=0.0, le=2.0)
    """Sampling temperature (released code: 0.0); None uses the server's default."""

    max_tokens: int | None = Field(default=2048, gt=0)
    """Maximum tokens of a reply (released code: 2048)."""

    timeout: float = Field(default=30.0, gt=0)
    """Maximum seconds of one HTTP attempt."""

    retries: int = Field(default=5, ge=0)
    """HTTP attempts after the first."""

    concurrency: int = Field(default=32, ge=1)
    """Maximum number of concurrent requests to this server."""

    structured: Literal["auto", "json_schema", "off"] = "auto"
    """Structured outputs: used until the server refuses them (auto), always, or never."""

    backoff: float = Field(default=0.5, ge=0)
    """Seconds of the first pause between attempts. It doubles each time, with jitter, up to 30."""

    top_p: float | None = Field(default=None, gt=0.0, le=1.0)
    """Nucleus sampling threshold; None uses the server's default."""

    token_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The request field of the token limit (OpenAI's reasoning models accept only the second)."""

    tool_choice: Literal["auto", "required"] = "auto"
    """Set to required, a request with tools demands a call (UserBench appendix C: required)."""

    extra_body: Annotated[str | None, BeforeValidator(_as_json)] = None
    """Additional fields of every request: a mapping or a JSON object, stored as JSON. ``{"chat_template_kwargs":
    {"enable_thinking": false}}`` makes vLLM and SGLang serve Qwen3 without thinking.
    """


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """One usable answer.

    text: the message's content, "" with tool calls; without the reasoning for users and judges. parsed: an instance
    of the requested schema, else None. tool_calls: as the API returned them. truncated: cut at the token limit.
    """

    text: str
    parsed: Any = None
    tool_calls: list[dict[str, Any]] | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    truncated: bool = False


class ToolsRefused(PolicyError):
    """A 400 reply to a request with tools, not caused by its length. A request without tools may succeed."""


_clients_lock = threading.Lock()
"""Needed because a judge has its own thread and event loop."""
_clients: dict[asyncio.AbstractEventLoop, dict[ChatServer, ChatClient]] = {}


def client_for(server: ChatServer) -> ChatClient:
    """Return the shared client of this server in the running event loop. Raises ConfigError when the key is missing."""
    # The connections of a closed loop cannot be closed any more, only dropped.
    with _clients_lock:
        for loop in [loop for loop in _clients if loop.is_closed()]:
            del _clients[loop]
        clients = _clients.setdefault(asyncio.get_running_loop(), {})
    if server not in clients:
        clients[server] = ChatClient(server)
    return clients[server]


async def close_clients() -> None:
    """Close every client of the running event loop; the next `client_for` creates new ones."""
    for client in _clients.pop(asyncio.get_running_loop(), {}).values():
        await client.aclose()


class ChatClient:
    """The client of one server. Created by `client_for`, so that limits and connections are shared."""

    def __init__(self, server: ChatServer) -> None:
        own_prices()  # a faulty file is refused before a call is paid for
        check_extra_body(server.extra_body)
        self.server = server
        self._limit = asyncio.Semaphore(server.concurrency)
        self._structured = server.structured != "off"
        self._key = _key(server)
        url = self._url = server.base_url or os.environ.get("OPENAI_BASE_URL")
        self._api, self._api_errors = connect(url, self._key, server.timeout)

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
        tools: Sequence[dict[str, Any]] | None = None,
    ) -> ChatAnswer:
        """Return one answer, with as many attempts as the server's settings allow.

        schema: the reply must be JSON that fits it; otherwise the request is retried with the reason. ledger: gets
        exactly one row, also on failure and on cancellation. temperature: overrides the server's. role:
        for users and judges the reasoning is removed (`final_answer`); a policy's text is unchanged. Raises
        UserError, JudgeError or PolicyError by role, ToolsRefused for a server without tools.
        """
        call = ModelCall(role=role, model=self.server.model, attempts=0, error="Cancelled")
        if role != "policy":  # what a policy is asked is the conversation itself
            call.prompt = list(messages)
        started = time.perf_counter()
        request = _Request(list(messages), schema, temperature, tools, self._structured and schema is not None)
        try:
            answer = await self._with_retries(request, call)
            call.error = None
            return answer
        except Failure as failure:
            call.error = failure.kind
            raise self._error(role, failure, call.attempts, tools is not None) from None
        finally:
            call.seconds = time.perf_counter() - started
            if (price := price_of(call.model, call.prompt_tokens, call.completion_tokens, self._url)) is not None:
                call.price, call.price_source = price
            ledger.append(call)

    async def _with_retries(self, request: _Request, call: ModelCall) -> ChatAnswer:
        failures = 0
        while True:
            try:
                answer = await self._attempt(request, call)
            except Failure as failure:
                # Less room than the limit asks for: repeat it without one, at once and not as a retry, and the server takes
                # what is left of its context. This says nothing about tools or formats.
                if failure.too_long and not request.whole_context:
                    request.whole_context = True
                    continue
                # 400 or 422 for a request with a response format: repeat it without one, at once and not as a retry.
                if failure.refused and request.structured and self.server.structured == "auto":
                    request.structured = False
                    continue
                if (
                    failure.hint is not None
                ):  # a reply came, so a server that had refused the format accepts requests without it
                    self._remember_format(request)
                failures += 1
                if not failure.retryable or failures > self.server.retries:
                    raise
                request.hint = failure.hint
                await asyncio.sleep(pause_before(failures, self.server.backoff, failure.retry_after))
                continue
            self._remember_format(request)
            return answer

    def _remember_format(self, request: _Request) -> None:
        if request.schema is not None and not request.structured:
            self._structured = False

    async def _attempt(self, request: _Request, call: ModelCall) -> ChatAnswer:
        fields = self._fields(request)
        async with self._limit:
            body = await self._send(fields, call, request.whole_context)
        value = _json(body)
        received = len(body)
        try:
            text, calls, truncated = _message(value, call.role)
            received = _size([text, calls])
        finally:  # a reply that is of no use was paid for
            usage = _count(call, fields, received, stated=value.get("usage") if isinstance(value, dict) else None)
        if call.role != "policy":
            call.reply = text
        # A reply that starts as a JSON object has no reasoning, even if it quotes the tags.
        is_object = request.schema is not None and text.lstrip().startswith("{")
        if call.role != "policy" and calls is None and not is_object:
            text = final_answer(text)
        parsed = fit(text, request.schema) if request.schema is not None else None
        return ChatAnswer(text, parsed, calls, usage[0], usage[1], truncated)

    async def _send(self, fields: dict[str, Any], call: ModelCall, whole_context: bool) -> bytes:
        """Return the body of the server's reply. Without a reply the sent tokens are counted, unless the server
        refused the request.

        whole_context: omit the token limit from the request because the context has less room. The limit still bounds
        the counted tokens.
        """
        call.attempts += 1
        sent = Sent()
        limit = self.server.token_field if whole_context else None
        try:
            # For the whole attempt: the HTTP client's own time-out restarts with every byte that arrives.
            async with asyncio.timeout(self.server.timeout):
                raw = await self._api.chat.completions.with_raw_response.create(
                    **{name: value for name, value in fields.items() if name != limit}
                )
                body: bytes = raw.http_response.content
                return body
        except self._api_errors as error:
            failure = read_failure(error, sent=bool(sent))
            if failure.sent:
                _count(call, fields, 0)
            raise failure from None
        except asyncio.CancelledError:
            if sent:
                _count(call, fields, 0)
            else:
                call.attempts -= 1  # nobody asked the server anything
            raise

    def _fields(self, request: _Request) -> dict[str, Any]:
        server = self.server
        messages = request.messages
        if request.schema is not None and not request.structured:
            messages = instruct(messages, request.schema)
        if request.hint is not None:
            messages = [*messages, {"role": "user", "content": request.hint}]
        fields: dict[str, Any] = {"model": server.model, "messages": messages}
        if server.extra_body is not None:
            fields["extra_body"] = orjson.loads(server.extra_body)
        temperature = server.temperature if request.temperature is None else request.temperature
        if temperature is not None:
            fields["temperature"] = temperature
        if server.top_p is not None:
            fields["top_p"] = server.top_p
        if server.max_tokens is not None:
            fields[server.token_field] = server.max_tokens
        if request.tools:
            fields["tools"] = list(request.tools)
            if server.tool_choice != "auto":
                fields["tool_choice"] = server.tool_choice
        if request.schema is not None and request.structured:
            fields["response_format"] = response_format(request.schema)
        return fields

    def _error(self, role: Role, failure: Failure, attempts: int, tools: bool) -> UserRLError:
        text = redact(f"{self.server.model} gave no usable reply in {attempts} attempts ({failure})", self._key)
        if role == "user":
            return UserError("user.no_reply", text)
        if role == "judge":
            return JudgeError("judge.no_reply", text)
        if tools and failure.refused:
            return ToolsRefused("policy.tools_refused", text)
        return PolicyError("policy.no_reply", text)


@dataclass(slots=True)
class _Request:
    """The request of one `complete`. ``structured`` and the fields with a default change between attempts."""

    messages: list[Message]
    schema: type[BaseModel] | None
    temperature: float | None
    tools: Sequence[dict[str, Any]] | None
    structured: bool
    hint: str | None = None
    whole_context: bool = False


def _key(server: ChatServer) -> str:
    key = os.environ.get(server.api_key_env, "")
    if not fits_a_header(key):
        raise ConfigError(
            "model.no_key",
            f"{server.api_key_env} contains a line end or another character that no key has. Set it without.",
        )
    if key:
        return key
    if server.base_url or os.environ.get("OPENAI_BASE_URL"):
        return "none"
    raise ConfigError(
        "model.no_key",
        f"Model '{server.model}' needs a key. Set {server.api_key_env}, or give the base_url of your own server.",
    )


def is_address(url: str) -> bool:
    """Return whether an HTTP client can ask this address."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not _BLANK.search(url)
    except ValueError:
        return False


def shown_address(url: str) -> str:
    """Return an address as it may be stored and printed: without user, password, fragment and parameters, but for Azure's
    ``api-version``.
    """
    try:
        parts = urlsplit(url)
        query = urlencode([(name, value) for name, value in parse_qsl(parts.query) if name == "api-version"])
        return parts._replace(netloc=parts.netloc.rpartition("@")[2], query=query, fragment="").geturl()
    except ValueError:
        return "its address"


def connect(url: str | None, key: str, timeout: float) -> tuple[AsyncOpenAI, tuple[type[Exception], ...]]:
    """Return the HTTP client and the exceptions it raises for external reasons. url: None for OpenAI's. timeout: seconds.

    Raises ConfigError for an address that no client can ask.
    """
    if url and not is_address(url):
        raise ConfigError(
            "model.bad_address",
            "base_url or OPENAI_BASE_URL is not an address such as http://127.0.0.1:8000/v1. Correct it.",
        )
    # Imported here for start-up time: the library takes most of a second to load, and rule users never need it.
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient, OpenAIError

    from userrl_core.served.bounded import PLAIN, bounded

    host = urlsplit(url).hostname if url else None
    local = host in ("localhost", "127.0.0.1", "::1")
    # A proxy from the environment cannot reach this machine's loopback interface.
    http = DefaultAsyncHttpxClient(
        trust_env=not local,
        verify=_authorities(trust_env=not local),
        headers=PLAIN,
        event_hooks={"request": [watched], "response": [bounded]},
    )
    api = AsyncOpenAI(api_key=key, base_url=url, timeout=timeout, max_retries=0, http_client=http)
    return api, (OpenAIError, OSError, ValueError)


@cache
def _authorities(*, trust_env: bool) -> ssl.SSLContext:
    """Return the authorities that may have signed a server's certificate. Reading them takes 15 CPU-milliseconds."""
    import httpx2

    return httpx2.create_ssl_context(trust_env=trust_env)


def _json(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def _message(value: Any, role: str) -> tuple[str, list[dict[str, Any]] | None, bool]:
    """Return the first choice's text and tool calls, and True if it was cut. Parsed by hand because servers differ.

    A policy's refusal is its reply.
    """
    if (stated := stated_failure(value)) is not None:
        raise stated
    try:
        choice = value["choices"][0]
        message, reason = choice["message"], choice.get("finish_reason")
    except (KeyError, IndexError, TypeError, AttributeError):
        raise Failure("Unreadable", "the body is not a chat completion", retryable=True) from None
    if not isinstance(message, dict):
        raise Failure("Unreadable", "the body is not a chat completion", retryable=True)
    if reason in ("content_filter", "error"):  # the text so far is not what the model would have said
        # A filter judges what was asked, so it ends every repeat too, and each is paid for.
        raise Failure("Broken", f"the server ended the reply early ({reason})", retryable=reason == "error")
    text, calls = _text(message.get("content")), message.get("tool_calls") or None
    if not text and not calls and isinstance(declined := message.get("refusal"), str) and declined:
        if role != "policy":  # asked again, the model would decline again
            raise Failure("Declined", f"the model declined: {declined:.200}", retryable=False)
        text = declined
    if calls is not None and not (isinstance(calls, list) and all(map(_names_a_function, calls))):
        raise Failure("Unreadable", "the tool calls are no list of calls", retryable=True)
    # An empty reply is a server's failure, unless the model spent its token limit on reasoning.
    if not text and not calls and reason != "length":
        raise Failure("Empty", "the reply is empty", retryable=True)
    return text, calls, reason == "length"


def _names_a_function(call: Any) -> bool:
    """Return True for a tool call. The server sets its shape; the model writes the name and arguments."""
    function = call.get("function") if isinstance(call, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)


def _text(content: Any) -> str:
    """Return a message's text. In a list of parts the texts are joined; other kinds of parts are skipped."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    texts = [part if isinstance(part, str) else part.get("text") for part in parts if isinstance(part, (str, dict))]
    if len(texts) < len(parts) or not all(text is None or isinstance(text, str) for text in texts):
        raise Failure("Unreadable", "the content is no text", retryable=True)
    return "".join(text for text in texts if text)


BYTES_PER_TOKEN = 4
OVERHEAD = 1024
"""Tokens allowed for a chat template, which no text shows."""


def _count(call: ModelCall, fields: Mapping[str, Any], received: int, stated: Any = None) -> tuple[int, int]:
    """Add the tokens of one request to the call. Return (prompt, completion), as the server states or estimated from
    the texts.

    received: bytes of the reply. stated: the server's ``usage``. A token has at least one byte, so a prompt cannot
    have more tokens than the request has bytes. A completion may include reasoning that is not sent, but no more than
    its limit.
    """
    sent, limit = _size(fields), _limit(fields)
    usage = stated if isinstance(stated, dict) else {}
    bounds = {"prompt_tokens": sent + OVERHEAD, "completion_tokens": max(received, limit) + OVERHEAD}
    estimates = {"prompt_tokens": sent // BYTES_PER_TOKEN, "completion_tokens": min(received // BYTES_PER_TOKEN, limit)}
    counts = {name: usage.get(name) for name in bounds}
    usable = {name: type(count) is int and 0 <= count <= bounds[name] for name, count in counts.items()}
    prompt, completion = (int((counts if usable[name] else estimates)[name] or 0) for name in bounds)
    call.prompt_tokens += prompt
    call.completion_tokens += completion
    call.estimated = call.estimated or not all(usable.values())
    return prompt, completion


def _size(value: Any) -> int:
    """Return the bytes as JSON, with escapes. A character of a script with one or more tokens per character then
    counts fully.
    """
    return len(json.dumps(value, default=str))


def _limit(fields: Mapping[str, Any]) -> int:
    """Return the maximum reply tokens of the request; a million where it sets no limit."""
    return int(fields.get("max_tokens") or fields.get("max_completion_tokens") or 10**6)


_OPEN, _CLOSE = "<think>", "</think>"
_HINT = (
    f"Your reply could not be used: it did not come to an end of its thoughts. Think less, then reply after {_CLOSE}."
)


def final_answer(text: str) -> str:
    """Return the text after the last ``</think>``; the whole text without reasoning.

    The opening tag may be missing, because some chat templates put it into the prompt. Raises Failure (retryable,
    with a hint) for reasoning that is not closed, and for an empty answer.
    """
    _, closing_tag, answer = text.rpartition(_CLOSE)
    if _OPEN in answer or not answer.strip():
        raise Failure("Thought", "the reply holds reasoning but no answer", retryable=True, hint=_HINT)
    return answer.strip() if closing_tag else answer
