"""A model of this home over OpenAI's protocol, from our own decoder: requests that wait are answered in one batch."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import orjson
from fastapi import FastAPI, HTTPException, Request
from pydantic import ValidationError

from userrl_core.errors import UserRLError
from userrl_serving.chat_request import ChatRequest, refusal
from userrl_serving.json_answers import JsonAnswer

if TYPE_CHECKING:
    from userrl_core.training.local.completion import Completer, Completion, CompletionRequest

WAIT = 0.005
"""Seconds that a batch waits for further requests."""
_FLOOR = -9999.0
"""What OpenAI's protocol writes for the logarithm of a probability of 0, which JSON has no number for."""


class NotServed(Exception):
    """A request that is answered by an error. The text is the sentence for its client."""

    def __init__(self, sentence: str, status: int = 400, field: str | None = None) -> None:
        super().__init__(sentence)
        self.status, self.field = status, field


class ModelServer:
    """The queue before the model. names: under which the model is asked for; the first is its own."""

    def __init__(
        self, completer: Completer, names: tuple[str, ...], *, max_batch: int = 32, max_tokens: int = 256
    ) -> None:
        self.names, self._completer = names, completer
        self._max_batch, self._max_tokens = max_batch, max_tokens
        self._waiting: asyncio.Queue[tuple[CompletionRequest, asyncio.Future[Completion]]] = asyncio.Queue()

    async def answer(self, raw: bytes) -> dict[str, Any]:
        """Return the completion as OpenAI's protocol has it. Raises NotServed."""
        body = self._read(raw)
        request = self._asked(body)
        try:
            reply = await self.completion(request)
        except Exception as error:
            raise NotServed(f"The model could not answer: {_sentence(error)}", 500) from error
        if not body.parallel_tool_calls:
            del reply.calls[1:]
        return _body(reply, self.names[0], logprobs=body.logprobs)

    async def completion(self, request: CompletionRequest) -> Completion:
        """Return the reply to a request, in a batch with those that wait. Raises what the model raises for this request."""
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        await self._waiting.put((request, future))
        return await future

    def _read(self, raw: bytes) -> ChatRequest:
        try:
            body = ChatRequest.model_validate(orjson.loads(raw))
        except orjson.JSONDecodeError as error:
            raise NotServed(f"The body is no JSON: {error}.") from error
        except ValidationError as error:
            sentence, field = refusal(error)
            raise NotServed(sentence, field=field) from error
        if body.model not in self.names:
            message = f"There is no model '{body.model}' here; this server has {self.names[0]}."
            raise NotServed(message, 404, "model")
        return body

    def _asked(self, body: ChatRequest) -> CompletionRequest:
        """Return the request of a body whose conversation the model can continue."""
        from userrl_core.training.local.completion import CompletionRequest

        request = CompletionRequest(
            body.messages,
            [tool.model_dump(exclude_unset=True, exclude={"function": {"strict"}}) for tool in body.tools],
            body.temperature,
            body.top_p,
            body.max_completion_tokens or body.max_tokens or self._max_tokens,
            secrets.randbits(62) if body.seed is None else abs(body.seed) % 2**63,
            body.top_logprobs,
            body.stop,
            body.tool_choice if isinstance(body.tool_choice, str) else "required",
            body.tool,
        )
        try:
            self._completer.prompt(request)
        except Exception as error:  # a chat template may raise any exception for a conversation
            raise NotServed(_sentence(error), field="messages") from error
        return request

    async def work(self) -> None:
        """Answer batches until cancelled. A request whose client has gone is left out, or cut in the middle of its reply."""
        while True:
            batch = [await self._waiting.get()]
            await asyncio.sleep(WAIT)
            while len(batch) < self._max_batch and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            batch = [waiting for waiting in batch if not waiting[1].cancelled()]
            if batch and not await self._complete(batch) and len(batch) > 1:
                for waiting in batch:  # each alone, so that a request fails for itself only
                    await self._complete([waiting])

    async def _complete(self, batch: list[tuple[CompletionRequest, asyncio.Future[Completion]]]) -> bool:
        """Answer a batch, and return whether that worked. A single request that fails gets the exception."""
        try:
            replies = await asyncio.to_thread(
                self._completer.complete,
                [request for request, _ in batch],
                lambda index: not batch[index][1].cancelled(),
            )
        except Exception as error:  # noqa: BLE001  the client is told, and the server continues
            if len(batch) == 1 and not batch[0][1].done():
                batch[0][1].set_exception(error)
            return False
        for (_, future), reply in zip(batch, replies, strict=True):
            if not future.done():
                future.set_result(reply)
        return True


def app_of(server: ModelServer) -> FastAPI:
    """Return the application."""

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        worker = asyncio.create_task(server.work())
        yield
        worker.cancel()

    app = FastAPI(
        title="userrl serve-model",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        default_response_class=JsonAnswer,
    )

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {
            "object": "list",
            "data": [{"id": name, "object": "model", "owned_by": "userrl"} for name in dict.fromkeys(server.names)],
        }

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> JsonAnswer:
        answer = asyncio.create_task(server.answer(await request.body()))
        # After the body nothing comes but the end of the connection.
        disconnect = asyncio.ensure_future(request.receive())
        try:
            await asyncio.wait({answer, disconnect}, return_when=asyncio.FIRST_COMPLETED)
            return JsonAnswer(answer.result() if answer.done() else {})
        except asyncio.CancelledError:
            return _error(503, "The server is stopping.")
        finally:
            answer.cancel()
            disconnect.cancel()

    @app.exception_handler(NotServed)
    async def not_served(_: Request, error: NotServed) -> JsonAnswer:
        return _error(error.status, str(error), error.field)

    @app.exception_handler(404)
    @app.exception_handler(405)
    async def no_route(request: Request, error: HTTPException) -> JsonAnswer:
        return _error(error.status_code, f"{request.method} {request.url.path} is not served.")

    return app


def _error(status: int, sentence: str, field: str | None = None) -> JsonAnswer:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return JsonAnswer({"error": {"message": sentence, "type": kind, "param": field, "code": None}}, status)


def _sentence(error: Exception) -> str:
    """Return an exception's text as one line; an exception that is not ours names its kind."""
    text = " ".join(str(error).split())[:300]
    return text if isinstance(error, UserRLError) else f"{type(error).__name__}: {text}"


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
    return {"token": token, "logprob": max(logprob, _FLOOR), "bytes": list(token.encode())}
