"""SearchGym's search engines: BM25 over the local corpus, or the web through Serper, with one interface."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import urlsplit

from userrl_core.errors import TaskError, UserError
from userrl_core.gyms.search.corpus import corpus


@dataclass(frozen=True, slots=True)
class Hit:
    """One search result."""

    title: str
    snippet: str


class SearchBackend(Protocol):
    """A search engine."""

    async def search(self, query: str, k: int) -> list[Hit]:
        """At most k results, best first. Raises UserError when the service gives no usable reply after all retries."""
        ...

    async def aclose(self) -> None:
        """Release connections."""
        ...


class LocalBackend:
    """BM25 over the articles of the local corpus; articles without a word of the query are left out."""

    async def search(self, query: str, k: int) -> list[Hit]:
        """At most k articles, best first."""
        index, tokenize = _index()
        tokens = tokenize([query[:1000]], show_progress=False, return_ids=False)
        if not tokens[0]:
            return []
        documents = corpus().documents
        results = index.retrieve(tokens, k=min(k, len(documents)), show_progress=False)
        scored = zip(results.documents[0].tolist(), results.scores[0].tolist(), strict=True)
        return [Hit(documents[number].title, documents[number].text) for number, score in scored if score > 0]

    async def aclose(self) -> None:
        """There is nothing to release."""


class SerperBackend:
    """Google results through the Serper service; one connection pool per episode.

    key_env: name of the environment variable with the key. timeout: seconds per request. Raises TaskError without a key.
    """

    def __init__(self, url: str, key_env: str, timeout: float, retries: int) -> None:
        key = os.environ.get(key_env, "")
        if not key:
            raise TaskError(
                f"This task needs web search: set {key_env} to a Serper key, or choose tasks of the local corpus."
            )
        self._url, self._key, self._timeout, self._retries = url, key, timeout, retries
        self._http: Any = None

    async def search(self, query: str, k: int) -> list[Hit]:
        """At most k results; retries with growing pauses. Raises UserError, whose text never holds the key or the body."""
        import httpx  # imported here for start-up time: the local engine needs no HTTP client

        if self._http is None:  # created at the first search: loading its TLS settings takes 70 ms
            # A proxy from the environment cannot reach this machine's loopback interface.
            local = urlsplit(self._url).hostname in ("localhost", "127.0.0.1", "::1")
            self._http = httpx.AsyncClient(headers={"X-API-KEY": self._key}, timeout=self._timeout, trust_env=not local)
        for attempt in range(self._retries + 1):
            try:
                reply = await self._http.post(self._url, json={"q": query[:2000], "num": k})
                reply.raise_for_status()
                return _parse(reply.json(), k)
            except (httpx.HTTPError, ValueError, TypeError) as error:
                error_name = type(error).__name__
                if attempt < self._retries:
                    await asyncio.sleep(0.5 * 2**attempt)
        raise UserError(f"Web search gave no usable reply in {self._retries + 1} attempts ({error_name}).")

    async def aclose(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()


def _parse(body: Any, k: int) -> list[Hit]:
    if not isinstance(body, dict) or not isinstance(body.get("organic", []), list):
        raise TypeError("no result list")
    answer_box = body.get("answerBox")
    rows = ([answer_box] if isinstance(answer_box, dict) else []) + [
        row for row in body.get("organic", []) if isinstance(row, dict)
    ]
    hits = [Hit(str(row.get("title", "")), str(row.get("answer") or row.get("snippet") or "")) for row in rows]
    return [hit for hit in hits if hit.snippet][:k]


@lru_cache(maxsize=1)
def _index() -> tuple[Any, Any]:
    import bm25s  # imported here for start-up time: it takes 250 ms, and only a search needs it

    index = bm25s.BM25()
    texts = [f"{document.title} {document.text}" for document in corpus().documents]
    index.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
    return index, bm25s.tokenize
