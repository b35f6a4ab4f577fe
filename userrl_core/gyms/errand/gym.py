"""ErrandGym: everybody wants something first (ours: the laptop's task in which the horizon matters).

The user wants a thing; whatever is not raw has to be made of another thing first. Down the chain by asking, up again by
making: a task of depth d takes d + 1 questions, one fetch and d makes, 2 d + 2 turns, and there is nothing to guess at the
end. Only things that were mentioned can be named.

Half of the reward is shared out evenly over the useful turns, each paid once and in order, and half is for the goal; or all
of it is for the goal (`ErrandConfig.reward`). The score is whether the goal was made.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Protocol

from userrl_core.gyms.base import Gym, GymConfig, Reply, RewardBounds
from userrl_core.gyms.errand.rule_user import RuleErrandUser
from userrl_core.gyms.lazy import lazily
from userrl_core.interact import InteractCall
from userrl_core.records import Task

DONE, OK, NO = "done", "ok", "no"


class ErrandUser(Protocol):
    """Who knows what a thing is made of."""

    async def needs(self, thing: str, part: str | None) -> str:
        """What the user says about a thing: the one that it is made of, or that it is raw (part None). Raises UserError."""
        ...


class ErrandConfig(GymConfig):
    """Rewards of ErrandGym."""

    reward: Literal["dense", "terminal"] = "dense"
    """dense: `shared` over the useful turns, the rest for the goal; terminal: all for the goal."""

    shared: float = 0.5
    """What the useful turns share where the reward is dense."""

    demonstrator_depth: int = 8
    """Deepest task that the scripted demonstrator knows how to do; in deeper ones it acts at random."""


class ErrandGym(Gym[ErrandConfig]):
    """Make what the user wants, from the bottom of the chain up."""

    name = "errand"
    config_type = ErrandConfig
    metric = "Success"
    success_rule = "the thing that was wanted was made"
    goal = (
        "The user wants a thing. A thing is either raw, and can be fetched, or made of one other thing, which has to be had "
        "first. Find out what is needed, fetch what is raw, and make the rest in order until you have made the thing itself."
    )
    choice_help: ClassVar = {
        "action": "the name of a thing: ask what it is made of; the answer names one other thing, or says raw",
        "search": "the name of a raw thing: fetch it",
        "answer": "the name of a thing: make it, once you hold what it is made of",
    }
    users: ClassVar = {"rule": RuleErrandUser, "openai": lazily("userrl_core.gyms.errand.llm_user:LLMErrandUser")}
    user: ErrandUser

    @staticmethod
    def min_turns(task: Task, config: GymConfig) -> int:
        """2 depth + 2."""
        return 2 * len(task.payload["chain"])

    @classmethod
    def reward_bounds(cls, config: ErrandConfig) -> RewardBounds:
        """The goal pays most; a useful turn of the deepest task least."""
        return RewardBounds(0.0, 1.0, 0.0)

    @classmethod
    def gold(cls, task: Task, config: ErrandConfig) -> list[InteractCall]:
        """Ask down the chain, fetch its end, make upwards."""
        chain = task.payload["chain"]
        asks = [InteractCall("action", thing) for thing in chain]
        makes = [InteractCall("answer", thing) for thing in reversed(chain[:-1])]
        return [*asks, InteractCall("search", chain[-1]), *makes]

    def opening(self) -> str:
        """What is wanted, as a sentence."""
        self._chain: list[str] = self.task.payload["chain"]
        self._asked = 0
        """Links of the chain that were asked about in order; the thing after them has been mentioned."""
        self._held = len(self._chain)
        """The highest link that is held; the chain's length while nothing is."""
        return f"I would like to have a {self._chain[0]}."

    def brief(self) -> str:
        """What is wanted, in one word."""
        return self._chain[0]

    async def action(self, content: str) -> Reply:
        """Ask what a thing is made of."""
        link = self._link(content)
        if link is None:
            return Reply(NO)
        part = self._chain[link + 1] if link + 1 < len(self._chain) else None
        reward = self._share() if link == self._asked else 0.0
        said = await self.user.needs(self._chain[link], part)
        self._asked = max(self._asked, link + 1)
        return Reply(said, reward)

    async def search(self, content: str) -> Reply:
        """Fetch a raw thing."""
        if self._link(content) != len(self._chain) - 1:
            return Reply(NO)
        reward = self._share() if self._held == len(self._chain) else 0.0
        self._held = min(self._held, len(self._chain) - 1)
        return Reply(OK, reward)

    async def answer(self, content: str) -> Reply:
        """Make a thing of the one below it in the chain, if that is held."""
        link = self._link(content)
        if link is None or link + 1 < self._held or link + 1 == len(self._chain):
            return Reply(NO)
        if link + 1 > self._held:
            return Reply(OK)  # made before
        self._held = link
        if link > 0:
            return Reply(OK, self._share())
        goal = 1.0 - (self.config.shared if self.config.reward == "dense" else 0.0)
        return Reply(DONE, goal + self._share(), done=True)

    def score(self) -> float | None:
        """1.0 once the thing is made."""
        return None if None in self.rewards else float(self._held == 0)

    def _link(self, content: str) -> int | None:
        """The place in the chain of the thing that is named; None for one that was not mentioned yet."""
        name = content.strip().lower()
        mentioned = self._chain[: self._asked + 1]
        return mentioned.index(name) if name in mentioned else None

    def _share(self) -> float:
        """What one useful turn is paid."""
        return self.config.shared / (2 * len(self._chain)) if self.config.reward == "dense" else 0.0
