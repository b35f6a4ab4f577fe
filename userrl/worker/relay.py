"""The relay of `userrl serve-user` in front of the served model. It passes requests on and streams answers back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from fastapi import FastAPI, Request, Response
from starlette.responses import StreamingResponse

BODY_BYTES = 16 * 2**20
"""Maximum size of a request: long conversations, with images."""
_KEPT = ("content-type", "accept")
"""Headers that reach the model's server. All others are dropped, above all the client's token."""


def relay(inner: str) -> FastAPI:
    """Return an application that forwards to the server at `inner` (``http://127.0.0.1:PORT``)."""
    client = httpx2.AsyncClient(
        base_url=inner,
        timeout=httpx2.Timeout(None, connect=5.0),
        limits=httpx2.Limits(max_connections=None),
        trust_env=False,
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with client:
            yield

    app = FastAPI(lifespan=lifespan, openapi_url=None)

    @app.api_route("/{path:path}", methods=["GET", "POST"])
    async def ask(path: str, request: Request) -> Response:
        headers = {name: value for name, value in request.headers.items() if name in _KEPT}
        url = httpx2.URL(path=f"/{path}", query=request.url.query.encode())
        sent = client.build_request(request.method, url, headers=headers, content=await request.body())
        try:
            answer = await client.send(sent, stream=True)
        except httpx2.TransportError:
            return Response("The model's server is down; it is being started again.", status_code=503)
        kind = answer.headers.get("content-type")

        async def parts() -> AsyncIterator[bytes]:
            try:
                async for part in answer.aiter_bytes():
                    yield part
            finally:
                await answer.aclose()

        return StreamingResponse(parts(), answer.status_code, {"content-type": kind} if kind else None)

    return app
