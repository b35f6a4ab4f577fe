"""Search engines with one interface: BM25 over a local corpus, or any HTTP search service."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from userrl_core.errors import TaskError, UserError
from userrl_core.gyms.search.corpus import Corpus


@dataclass(frozen=True, slots=True)
class Hit:
    """One search result."""

    title: str
    snippet: str


def show(hits: Sequence[Hit]) -> str:
    """Format results for the agent, one a line."""
    if not hits:
        return "Nothing was found."
    return "\n".join(f"{number}. {hit.title}: {hit.snippet}" for number, hit in enumerate(hits, 1))


class SearchBackend(Protocol):
    """A search engine."""

    async def search(self, query: str, k: int) -> list[Hit]:
        """Return at most k results, best first. Raises UserError after all retries."""

    async def aclose(self) -> None:
        """Release connections."""


class LocalBackend:
    """BM25 over the articles of a corpus. Articles without a word of the query are left out."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus

    async def search(self, query: str, k: int) -> list[Hit]:
        """Return at most k articles, best first."""
        index, tokenize = _index(self._corpus)
        tokens = tokenize([query[:1000]], show_progress=False, return_ids=False)
        if not tokens[0]:
            return []
        documents = self._corpus.documents
        results = index.retrieve(tokens, k=min(k, len(documents)), show_progress=False)
        scored = zip(results.documents[0].tolist(), results.scores[0].tolist(), strict=True)
        return [Hit(documents[number].title, documents[number].text) for number, score in scored if score > 0]

    async def aclose(self) -> None:
        """Do nothing."""


class Endpoint(BaseModel):
    """The request and response format of an HTTP search service. The defaults are Serper's.

    Paths are dotted and may hold numbers: ``result.0`` is the first element of the list at ``result``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str = "https://google.serper.dev/search"
    """Address of the service."""

    method: Literal["POST", "GET"] = "POST"
    """POST sends the fields as JSON, GET in the address."""

    query: str = "q"
    """Field of the query."""

    batched: bool = False
    """Whether the service takes a list of queries. It then receives a list of one."""

    count: str = "num"
    """Field of the number of results."""

    fields: Mapping[str, Any] = Field(default_factory=dict)
    """Further fields of every request."""

    results: str = "organic"
    """Path of the list of results."""

    best: str = "answerBox"
    """Path of one optional result that is shown before the others."""

    title: str = "title"
    """Path of a result's title. If the path is absent, the first line of the text is the title."""

    text: tuple[str, ...] = ("answer", "snippet")
    """Paths of a result's text. The first path with a value counts."""

    key_env: str | None = "SERPER_API_KEY"
    """Environment variable with the key; null for a service without a key."""

    key_header: str = "X-API-KEY"
    """Header for the key."""

    def __hash__(self) -> int:
        """Hash all values: configurations of gyms are looked up by their hash."""
        return hash(self.model_dump_json())

    def request(self, query: str, k: int) -> dict[str, Any]:
        """Return the fields of one request."""
        return {self.query: [query] if self.batched else query, self.count: k, **self.fields}

    def read(self, body: Any, k: int) -> list[Hit]:
        """Return at most k results of an answer. Raises TypeError for an answer without a list of results."""
        rows = _at(body, self.results)
        if not isinstance(rows, list):
            raise TypeError("no result list")
        hits = [self._hit(row) for row in (_at(body, self.best), *rows) if isinstance(row, dict)]
        return [hit for hit in hits if hit.snippet][:k]

    def _hit(self, row: dict[str, Any]) -> Hit:
        text = next((str(value) for path in self.text if (value := _at(row, path))), "")
        title = _at(row, self.title)
        if title is None:
            title, _, text = text.partition("\n")
        return Hit(str(title), text)


class WebBackend:
    """A search service over HTTP, with one connection pool per episode.

    timeout: seconds per request. Raises TaskError without the key that the service needs.
    """

    def __init__(self, endpoint: Endpoint, timeout: float, retries: int) -> None:
        key = os.environ.get(endpoint.key_env, "") if endpoint.key_env else None
        if key == "":
            raise TaskError(
                "gym.no_key",
                f"This task needs web search. Set {endpoint.key_env} to a key of "
                f"{urlsplit(endpoint.url).hostname}, or choose tasks of the local corpus.",
            )
        self._headers = {} if key is None else {endpoint.key_header: key}
        self._endpoint, self._timeout, self._retries = endpoint, timeout, retries
        self._http: Any = None

    async def search(self, query: str, k: int) -> list[Hit]:
        """Return at most k results; retry with growing pauses. Raises UserError, whose text never holds the key or the body."""
        import httpx2  # imported here for start-up time: the local engine needs no HTTP client

        from userrl_core.served.bounded import PLAIN, Unbounded, bounded

        endpoint = self._endpoint
        if self._http is None:  # created at the first search: loading its TLS settings takes 70 ms
            # A proxy from the environment cannot reach this machine's loopback interface.
            local = urlsplit(endpoint.url).hostname in ("localhost", "127.0.0.1", "::1")
            self._http = httpx2.AsyncClient(
                headers=PLAIN | self._headers,
                timeout=self._timeout,
                trust_env=not local,
                event_hooks={"response": [bounded]},
            )
        sent_as = "json" if endpoint.method == "POST" else "params"
        for attempt in range(self._retries + 1):
            try:
                fields: dict[str, Any] = {sent_as: endpoint.request(query[:2000], k)}
                reply = await self._http.request(endpoint.method, endpoint.url, **fields)
                reply.raise_for_status()
                return endpoint.read(reply.json(), k)
            except Unbounded as error:  # it would send the same again
                raise UserError(
                    "gym.server_failed", f"Web search at {urlsplit(endpoint.url).hostname} {error}."
                ) from None
            except (httpx2.HTTPError, ValueError, TypeError, RecursionError) as error:
                error_name = type(error).__name__
                if attempt < self._retries:
                    await asyncio.sleep(0.5 * 2**attempt)
        raise UserError(
            "gym.server_failed", f"Web search gave no usable reply in {self._retries + 1} attempts ({error_name})."
        )

    async def aclose(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()


def _at(value: Any, path: str) -> Any:
    for step in path.split("."):
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


@lru_cache(maxsize=4)
def _index(corpus: Corpus) -> tuple[Any, Any]:
    import bm25s  # imported here for start-up time: it takes 250 ms, and only a search needs it

    index = bm25s.BM25()
    texts = [f"{document.title} {document.text}" for document in corpus.documents]
    index.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
    return index, bm25s.tokenize
