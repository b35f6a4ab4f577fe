"""SearchQA: search within the horizon, then answer in a few words (AgentGym-RL B.2, after Search-R1).

A search earns nothing unless `SearchQAConfig.search_pay` is set. The answer ends the episode. It earns 1 if it equals a right
answer under Search-R1's comparison.
The recipe's horizon limits the number of searches (4 in the paper; 5, 8, 10 in the released code).

Departures from the released server: no reward for the format of a message, which is the tool call's here. A failed
search is a null reward (there a polite text). A search shows titles and texts, one a line, without tags.

In the tiny and sentence tiers, for models of laptop size, a task brings its own few articles, found by their titles only. An
article of the sentence tier has one statement, so that reading it is copying its thing.
"""

from __future__ import annotations

import math
import re
import string
from typing import Any, ClassVar, Literal

from pydantic import Field

from userrl_core.gyms.base import Gym, GymConfig, Reply, RewardBounds
from userrl_core.gyms.search.backend import Endpoint, Hit, LocalBackend, SearchBackend, WebBackend, show
from userrl_core.gyms.searchqa.corpus import corpus
from userrl_core.interact import InteractCall
from userrl_core.records import Task

NO, DONE = "no", "done"
"""The observation of the tiny and sentence tiers for an empty search or a wrong answer, and for a right answer."""


class SearchQAConfig(GymConfig):
    """Search settings of SearchQA."""

    top_k: int = Field(default=3, ge=1)
    """Results shown per search (Search-R1: 3)."""

    backend: Literal["auto", "local", "web"] = "auto"
    """Search engine. auto takes the task's own engine."""

    endpoint: Endpoint = Endpoint()
    """The web search: any HTTP search service. The default is Serper."""

    search_pay: float = Field(default=0.0, ge=0.0, le=1.0)
    """Total reward of the first search for each hop, in equal shares (ours). A right answer pays what is left of 1, so that every
    right conversation earns the same in total.
    """

    demonstrator_hops: int = 3
    """Number of hops that the scripted demonstrator can follow. After these it acts at random."""

    web_timeout: float = Field(default=10.0, gt=0)
    """Time limit of one web search in seconds (ours)."""

    web_retries: int = Field(default=2, ge=0)
    """Retries of a failed web search (ours)."""

    @property
    def web_key(self) -> str | None:
        """The environment variable that web search needs; None if it needs none."""
        return None if self.backend == "local" else self.endpoint.key_env


class SearchQAGym(Gym[SearchQAConfig]):
    """A question to answer by searching."""

    name = "searchqa"
    config_type = SearchQAConfig
    metric = "Exact Match"
    success_rule = "the first answer was right"
    hint = "Break the question into steps, search for each, and answer in a few words once you know."
    goal = (
        "You are asked a question of fact. If you lack knowledge, search, read what is found, and search again where it is not "
        "enough. Then answer in a few words: there is one answer, and it ends the task."
    )
    choice_help: ClassVar = {
        "search": "a few key words to look up, e.g. the name of a person or place",
        "answer": "the answer alone, without a sentence around it",
    }

    @staticmethod
    def min_turns(task: Task, config: GymConfig) -> int:
        """Return one search per hop, and the answer."""
        return len(task.payload["hops"]) + 1

    def __init__(self, task: Task, user: Any = None, config: SearchQAConfig | None = None) -> None:
        """Prepare the search engine. Raises TaskError for a task that needs web search if its key is not set."""
        super().__init__(task, user, config)
        self._engine = _engine(task, self.config)
        self._short: bool = task.payload.get("short", False)
        self._hops = {plain(hop) for hop in task.payload["hops"]}
        """Hops that were not searched for yet."""
        self._share = self.config.search_pay / len(self._hops)
        self._earned = 0.0
        self._right = False

    @classmethod
    def reward_bounds(cls, config: SearchQAConfig) -> RewardBounds:
        """Bound the rewards of right and wrong answers."""
        left = 1.0 - config.search_pay
        return RewardBounds(0.0, 1.0, left if left > 0 else math.inf)

    @classmethod
    def gold(cls, task: Task, config: SearchQAConfig) -> list[InteractCall]:
        """Search the known hops, then answer. Hops of web questions are unknown."""
        hops = [] if task.payload["source"] == "web" else task.payload["hops"]
        return [*(InteractCall("search", hop) for hop in hops), InteractCall("answer", task.payload["answers"][0])]

    def opening(self) -> str:
        """Return the question."""
        return f"Question: {self.task.payload['question']}"

    def brief(self) -> str:
        """Return the thing and its relations word by word in the tiny and sentence tiers; the opening in others."""
        return str(self.task.payload["words"]) if self._short else self.opening()

    async def search(self, content: str) -> Reply:
        """Show the best results."""
        if not content.strip():
            return Reply(NO if self._short else "Say what to look up.")
        hits = await self._engine.search(content, self.config.top_k)
        best_snippet = hits[0].snippet if hits else NO
        return Reply(best_snippet if self._short else show(hits), self._pay(content), info={"results": len(hits)})

    def _pay(self, query: str) -> float:
        """Return a hop's share at the first search for it."""
        if plain(query) not in self._hops:
            return 0.0
        self._hops.remove(plain(query))
        self._earned += self._share
        return self._share

    async def answer(self, content: str) -> Reply:
        """Compare the answer. Right or wrong, it ends the episode."""
        right = any(map(str.isalnum, content)) and plain(content) in {
            plain(answer) for answer in self.task.payload["answers"]
        }
        verdict = (DONE if right else NO) if self._short else "That is right." if right else "That is not the answer."
        self._right = right
        return Reply(verdict, (1.0 - self._earned) * right, done=True, success=right)

    def score(self) -> float | None:
        """Return the reward; with paid searches, whether the answer was right."""
        if not self.config.search_pay or None in self.rewards:
            return super().score()
        return float(self._right)

    async def aclose(self) -> None:
        """Release the search engine."""
        await super().aclose()
        await self._engine.aclose()


_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def plain(answer: str) -> str:
    """Normalise an answer as Search-R1 does: lower case, without punctuation, articles and extra spaces."""
    return " ".join(_ARTICLES.sub(" ", answer[:1000].lower().translate(_NO_PUNCTUATION)).split())


class ShelfBackend:
    """The articles of a task, each found by exactly its title."""

    def __init__(self, articles: dict[str, str]) -> None:
        self._articles = articles

    async def search(self, query: str, k: int) -> list[Hit]:
        """Return the article of this title, or nothing."""
        title = plain(query)
        return [Hit(title, self._articles[title])] if title in self._articles else []

    async def aclose(self) -> None:
        """Do nothing."""


def _engine(task: Task, config: SearchQAConfig) -> SearchBackend:
    if "articles" in task.payload:
        return ShelfBackend(task.payload["articles"])
    engine = task.payload["source"] if config.backend == "auto" else config.backend
    if engine == "web":
        return WebBackend(config.endpoint, config.web_timeout, config.web_retries)
    return LocalBackend(corpus())
