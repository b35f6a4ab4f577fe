"""JSON answers of the servers, without NaN and other values that JSON does not have."""

from __future__ import annotations

from typing import Any

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
