"""Token in, token out: a served model continues given ids and returns the sampled ids (vLLM's ``/v1/completions``).

A chat server renders and parses messages with its own template and parser. A model that was trained on ids is
measured on ids, so its input and output are never rendered or parsed on the way.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from userrl_core.errors import PolicyError
from userrl_core.served.client import connect
from userrl_core.served.retry import Failure, pause_before, read_failure, stated_failure
from userrl_core.served.sent import Sent

FIRST_PAUSE = 0.5
"""Seconds before the first repeat of a request; doubles each time."""


@dataclass(frozen=True, slots=True)
class TokenServer:
    """A served model. timeout: seconds of one request. patience: seconds to wait for a server that went away, for
    example during a restart. A repeated request costs only time.
    """

    model: str
    base_url: str
    timeout: float = 600.0
    patience: float = 900.0


class TokenClient:
    """Requests to one server from one event loop."""

    def __init__(self, server: TokenServer) -> None:
        self._server = server
        self._api, self._api_errors = connect(server.base_url, "none", server.timeout)

    async def aclose(self) -> None:
        """Release the connections."""
        await self._api.close()

    async def sample(
        self, ids: Sequence[int], *, end_id: int, most: int, temperature: float, top_p: float, seed: int
    ) -> list[int]:
        """Sample a continuation of ids: up to ``most`` tokens, ending with end_id unless it was cut.

        temperature: 0 is greedy. Raises PolicyError when no reply comes within the server's patience, or the server refuses.
        """
        fields = {
            "model": self._server.model,
            "prompt": list(ids),
            "max_tokens": most,
            "temperature": temperature,
            "top_p": top_p,
            "seed": seed % 2**31,
            # The end of a turn ends it and nothing else does, as for our own decoder.
            "extra_body": {"return_token_ids": True, "stop_token_ids": [end_id], "ignore_eos": True},
        }
        deadline, failures = time.monotonic() + self._server.patience, 0
        while True:
            try:
                token_ids, reason = _reply(await self._send(fields))
            except Failure as failure:
                failures += 1
                pause = pause_before(failures, FIRST_PAUSE, failure.retry_after)
                if not failure.retryable or time.monotonic() + pause > deadline:
                    raise PolicyError(
                        "policy.no_reply", f"{self._server.model} gave no reply in {failures} attempts ({failure})."
                    ) from None
                await asyncio.sleep(pause)
                continue
            return [*token_ids, end_id] if reason == "stop" and token_ids[-1:] != [end_id] else token_ids

    async def _send(self, fields: dict[str, Any]) -> bytes:
        sent = Sent()
        try:
            async with asyncio.timeout(self._server.timeout):
                raw = await self._api.completions.with_raw_response.create(**fields)
                body: bytes = raw.http_response.content
                return body
        except self._api_errors as error:
            raise read_failure(error, sent=bool(sent)) from None


def _reply(body: bytes) -> tuple[list[int], str]:
    try:
        value = orjson.loads(body)
        if (stated := stated_failure(value)) is not None:
            raise stated
        choice = value["choices"][0]
        ids, reason = choice.get("token_ids"), str(choice.get("finish_reason"))
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError, AttributeError):
        raise Failure("Unreadable", "the body is no completion", retryable=True) from None
    if not isinstance(ids, list) or not all(type(token) is int for token in ids):
        raise Failure(
            "Unreadable", "the server sends no token ids; serve it with vLLM 0.10.2 or newer", retryable=False
        )
    if not ids and reason != "stop":
        raise Failure("Empty", f"the server sampled no token ({reason})", retryable=True)
    return ids, reason
