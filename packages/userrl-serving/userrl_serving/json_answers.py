"""What the servers of sessions share: JSON answers without NaN and the like, and an end for unused sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from userrl_core.json_files import json_text


class JsonAnswer(JSONResponse):
    """A response written by `json_text`."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return json_text(content).encode()


def json_app(title: str, lifespan: Any) -> FastAPI:
    """Return an application whose answers are `JsonAnswer`, also those about a wrong request, which quote its values."""
    app = FastAPI(title=title, docs_url=None, redoc_url=None, lifespan=lifespan, default_response_class=JsonAnswer)

    @app.exception_handler(RequestValidationError)
    async def wrong_request(_: Request, error: RequestValidationError) -> JsonAnswer:
        return JsonAnswer({"detail": jsonable_encoder(error.errors())}, 422)

    return app


class Expiring(Protocol):
    """A server of sessions. idle: seconds after which an unused session is closed."""

    idle: float

    async def expire(self) -> None:
        """Close the sessions that were unused for `idle` seconds."""


@asynccontextmanager
async def expiring(server: Expiring) -> AsyncIterator[None]:
    """Close idle sessions while the block runs, even if no new one is created."""
    watch = asyncio.create_task(_expire(server))
    yield
    watch.cancel()
    with suppress(asyncio.CancelledError):
        await watch


async def _expire(server: Expiring) -> None:
    while True:
        await asyncio.sleep(min(60.0, server.idle / 4))
        await server.expire()
