"""Where SearchGym's results come from: the local corpus by BM25, or the web by Serper, behind one interface."""

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
    """One result."""

    title: str
    snippet: str


class SearchBackend(Protocol):
    """Finds texts for a query."""

    async def search(self, query: str, k: int) -> list[Hit]:
        """At most k results, best first. Raises UserError when the service gives none after all attempts."""
        ...

    async def aclose(self) -> None:
        """Release connections."""
        ...


class LocalBackend:
    """BM25 over the articles of the local corpus; results without any word in common are left out."""

    async def search(self, query: str, k: int) -> list[Hit]:
        """At most k articles, best first."""
        index, tokenize = _index()
        tokens = tokenize([query[:1000]], show_progress=False, return_ids=False)
        if not tokens[0]:
            return []
        documents = corpus().documents
        found = index.retrieve(tokens, k=min(k, len(documents)), show_progress=False)
        pairs = zip(found.documents[0].tolist(), found.scores[0].tolist(), strict=True)
        return [Hit(documents[number].title, documents[number].text) for number, score in pairs if score > 0]

    async def aclose(self) -> None:
        """Nothing is held."""


class SerperBackend:
    """Google results by the Serper service; one connection pool per attempt at a task.

    key_env: name of the environment variable with the key. timeout: seconds per attempt. Raises TaskError without a key.
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
        """At most k results; tries again with growing pauses. Raises UserError, which never holds the key or the body."""
        import httpx  # imported here: the local backend needs no HTTP client

        if self._http is None:  # made on the first search: its TLS settings alone take 70 ms to load
            # A proxy from the environment cannot reach this machine's loopback.
            local = urlsplit(self._url).hostname in ("localhost", "127.0.0.1", "::1")
            self._http = httpx.AsyncClient(headers={"X-API-KEY": self._key}, timeout=self._timeout, trust_env=not local)
        for attempt in range(self._retries + 1):
            try:
                reply = await self._http.post(self._url, json={"q": query[:2000], "num": k})
                reply.raise_for_status()
                return _read(reply.json(), k)
            except (httpx.HTTPError, ValueError, TypeError) as error:
                problem = type(error).__name__
                if attempt < self._retries:
                    await asyncio.sleep(0.5 * 2**attempt)
        raise UserError(f"Web search gave no usable reply in {self._retries + 1} attempts ({problem}).")

    async def aclose(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()


def _read(body: Any, k: int) -> list[Hit]:
    if not isinstance(body, dict) or not isinstance(body.get("organic", []), list):
        raise TypeError("no result list")
    box = body.get("answerBox")
    rows = ([box] if isinstance(box, dict) else []) + [row for row in body.get("organic", []) if isinstance(row, dict)]
    hits = [Hit(str(row.get("title", "")), str(row.get("answer") or row.get("snippet") or "")) for row in rows]
    return [hit for hit in hits if hit.snippet][:k]


@lru_cache(maxsize=1)
def _index() -> tuple[Any, Any]:
    import bm25s  # imported here: it loads in a quarter of a second, and only a search needs it

    index = bm25s.BM25()
    texts = [f"{document.title} {document.text}" for document in corpus().documents]
    index.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
    return index, bm25s.tokenize
