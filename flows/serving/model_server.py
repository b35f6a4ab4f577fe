"""A model of this home over OpenAI's protocol, from our own decoder: requests that wait are answered in one batch."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field

from flows.serving.json_answers import JsonAnswer
from userrl_core.errors import UserRLError

if TYPE_CHECKING:
    from userrl_core.training.local.completion import Completer, Completion, Request

WAIT = 0.005
"""Seconds that a batch waits for further requests."""


class ChatRequest(BaseModel):
    """The fields of a chat completion that are read; all others are ignored."""

    model_config = ConfigDict(extra="ignore")

    model: str
    messages: list[dict[str, Any]] = Field(min_length=1, max_length=1000)
    tools: list[dict[str, Any]] = []
    temperature: float = Field(default=1.0, ge=0.0, le=10.0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    seed: int | None = None
    n: int = 1
    stream: bool = False
    logprobs: bool = False
    top_logprobs: int = Field(default=0, ge=0, le=20)
    response_format: dict[str, Any] | None = None

    def refusal(self, names: tuple[str, ...]) -> tuple[int, str] | None:
        """Return status and sentence for a request that is not served; None for one that is."""
        if self.model not in names:
            return 404, f"There is no model '{self.model}' here; this server has {names[0]}."
        if self.stream or self.n != 1:
            return 400, "Streaming and several choices are not served; set stream to false and n to 1."
        if self.response_format not in (None, {"type": "text"}):
            return 400, "response_format is not served; ask for JSON in the prompt."
        return None


class ModelServer:
    """The queue before the model. names: under which the model is asked for; the first is its own."""

    def __init__(
        self, completer: Completer, names: tuple[str, ...], *, max_batch: int = 32, max_tokens: int = 256
    ) -> None:
        self.names, self._completer = names, completer
        self._max_batch, self._max_tokens = max_batch, max_tokens
        self._waiting: asyncio.Queue[tuple[Request, asyncio.Future[Completion]]] = asyncio.Queue()

    async def answer(self, body: ChatRequest) -> dict[str, Any]:
        """Return the completion as OpenAI's protocol has it. Raises ConfigError for a conversation that cannot be continued."""
        from userrl_core.training.local.completion import Request

        request = Request(
            body.messages,
            body.tools,
            body.temperature,
            body.top_p,
            body.max_completion_tokens or body.max_tokens or self._max_tokens,
            secrets.randbits(62) if body.seed is None else abs(body.seed) % 2**63,
            body.top_logprobs if body.logprobs else 0,
        )
        self._completer.prompt(request)  # a refusal concerns this request alone, not the batch
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        await self._waiting.put((request, future))
        return _body(await future, self.names[0], logprobs=body.logprobs)

    async def work(self) -> None:
        """Answer batches until cancelled."""
        while True:
            batch = [await self._waiting.get()]
            await asyncio.sleep(WAIT)
            while len(batch) < self._max_batch and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            try:
                replies = await asyncio.to_thread(self._completer.complete, [request for request, _ in batch])
            except Exception as error:  # noqa: BLE001  every client is told, and the server continues
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), reply in zip(batch, replies, strict=True):
                if not future.done():
                    future.set_result(reply)


def app_of(server: ModelServer) -> FastAPI:
    """Return the application."""

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        worker = asyncio.create_task(server.work())
        yield
        worker.cancel()

    app = FastAPI(title="userrl serve-model", lifespan=lifespan, default_response_class=JsonAnswer)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {
            "object": "list",
            "data": [{"id": name, "object": "model", "owned_by": "userrl"} for name in server.names],
        }

    @app.post("/v1/chat/completions")
    async def chat(body: ChatRequest) -> JsonAnswer:
        refusal = body.refusal(server.names)
        if refusal is not None:
            return _error(*refusal)
        try:
            return JsonAnswer(await server.answer(body))
        except (UserRLError, KeyError, TypeError) as error:
            return _error(400, str(error))

    return app


def _error(status: int, sentence: str) -> JsonAnswer:
    return JsonAnswer({"error": {"message": sentence, "type": "invalid_request_error"}}, status)


def _body(reply: Completion, model: str, *, logprobs: bool) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or (None if reply.calls else "")}
    if reply.calls:
        message["tool_calls"] = [
            {
                "id": f"call-{secrets.token_hex(8)}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for name, arguments in reply.calls
        ]
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": reply.finish_reason, "logprobs": None}
    if logprobs:
        alternatives = reply.alternatives or [[] for _ in reply.tokens]
        choice["logprobs"] = {
            "content": [
                {**_token(token, logprob), "top_logprobs": [_token(*other) for other in others]}
                for token, logprob, others in zip(reply.tokens, reply.logprobs, alternatives, strict=True)
            ]
        }
    count = len(reply.ids)
    return {
        "id": f"chatcmpl-{secrets.token_hex(8)}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
        "usage": {
            "prompt_tokens": reply.prompt_tokens,
            "completion_tokens": count,
            "total_tokens": reply.prompt_tokens + count,
        },
    }


def _token(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode())}
