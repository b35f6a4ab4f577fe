"""SearchGym: answer a question with the help of a search engine (UserRL appendix C, figure 11).

A search earns nothing and shows the best results. After five searches further ones are refused. A right answer earns 1.0
and ends the episode; a wrong one earns 0.0, and the episode continues.

There are two departures from the released code. A failed web search is a null reward (there a polite text). Our own
tasks search a local corpus; the released questions search the web and are marked as not playable without a key for
it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Protocol

from pydantic import Field

from userrl_core.gyms.base import Gym, GymConfig, Reply, RewardBounds
from userrl_core.gyms.lazy import lazily
from userrl_core.gyms.search.backend import Endpoint, LocalBackend, SearchBackend, WebBackend, show
from userrl_core.gyms.search.corpus import corpus
from userrl_core.gyms.search.rule_user import RuleSearchUser
from userrl_core.interact import InteractCall
from userrl_core.records import Task


class SearchUser(Protocol):
    """The user who asked the question and judges the answer."""

    async def matches(self, answer: str) -> bool:
        """Return whether the answer is right. Raises JudgeError."""


class SearchConfig(GymConfig):
    """Rewards and limits of SearchGym."""

    correct: float = 1.0
    """Reward of a right answer (appendix C: 1.0)."""

    wrong: float = 0.0
    """Reward of a wrong answer (appendix C: 0.0)."""

    max_searches: int = Field(default=5, ge=0)
    """Number of searches, blank ones included. Further ones are refused (appendix C: 5)."""

    top_k: int = Field(default=5, ge=1)
    """Results shown per search (released code: 5)."""

    backend: Literal["auto", "local", "web"] = "auto"
    """Search engine. auto takes the task's own engine."""

    web_url: str = "https://google.serper.dev/search"
    """Address of the web search (appendix C: Serper)."""

    web_key_env: str = "SERPER_API_KEY"
    """Name of the environment variable with the key for it."""

    web_timeout: float = Field(default=10.0, gt=0)
    """Time limit of one web search in seconds (released code: 10)."""

    web_retries: int = Field(default=2, ge=0)
    """Retries of a failed web search (ours)."""

    @property
    def web_key(self) -> str | None:
        """The environment variable that web search needs; None if it needs none."""
        return None if self.backend == "local" else self.web_key_env


class SearchGym(Gym[SearchConfig]):
    """A question to answer by searching."""

    name = "search"
    config_type = SearchConfig
    metric = "Final Answer Exact Match"
    success_rule = "the right answer was given, after wrong ones or at once"
    hint = "Break the question into steps, search for each, and answer in a few words."
    goal = (
        "The user asks a question of fact. Search step by step for what you need to know, then answer in a few words."
    )
    choice_help: ClassVar = {
        "search": "a few key words to look up, e.g. the name of a person or place; the number of searches is limited",
        "answer": "the answer alone, without a sentence around it",
    }
    users: ClassVar = {"rule": RuleSearchUser, "openai": lazily("userrl_core.gyms.search.llm_user:LLMSearchUser")}
    user: SearchUser

    @staticmethod
    def min_turns(task: Task, config: GymConfig) -> int:
        """Return one search per hop, and the answer."""
        return len(task.payload["hops"]) + 1

    def __init__(self, task: Task, user: Any = None, config: SearchConfig | None = None) -> None:
        """Prepare the search engine. Raises TaskError for a task that needs web search if no key is set."""
        super().__init__(task, user, config)
        self._backend = _backend(task, self.config)
        self.searches = 0
        """Searches so far."""

    @classmethod
    def reward_bounds(cls, config: SearchConfig) -> RewardBounds:
        """Bound the rewards of right and wrong answers."""
        return RewardBounds.of_answers(config.correct, config.wrong)

    @classmethod
    def gold(cls, task: Task, config: SearchConfig) -> list[InteractCall]:
        """Search the hops of a local question, up to the limit, then answer. A web question is answered at once."""
        hops = task.payload["hops"][: config.max_searches] if task.payload["source"] == "local" else []
        return [*(InteractCall("search", hop) for hop in hops), InteractCall("answer", task.payload["answer"])]

    def opening(self) -> str:
        """Return the question."""
        return str(self.task.payload["question"])

    async def search(self, content: str) -> Reply:
        """Show the best results, or refuse once the limit is reached. A blank search counts."""
        if self.searches >= self.config.max_searches:
            return Reply(f"No search is left: all {self.config.max_searches} were used. Answer with what you know.")
        if not content.strip():
            self.searches += 1
            return Reply("Say what to look up.")
        hits = await self._backend.search(content, self.config.top_k)
        self.searches += 1
        return Reply(show(hits), info={"results": len(hits)})

    async def answer(self, content: str) -> Reply:
        """Judge an answer."""
        right = bool(content.strip()) and await self.user.matches(content)
        released = getattr(self.user, "feedback", "") if content.strip() else ""
        if right:
            return Reply(released or "That is right, thank you!", self.config.correct, done=True, success=True)
        return Reply(released or "That is not the answer.", self.config.wrong, success=False)

    async def aclose(self) -> None:
        """Release the search engine."""
        await super().aclose()
        await self._backend.aclose()


def _backend(task: Task, config: SearchConfig) -> SearchBackend:
    backend = task.payload["source"] if config.backend == "auto" else config.backend
    if backend == "web":
        endpoint = Endpoint(url=config.web_url, key_env=config.web_key_env)
        return WebBackend(endpoint, config.web_timeout, config.web_retries)
    return LocalBackend(corpus())
