"""ErrandGym: chains of prerequisites (ours: the laptop's task whose results depend on the horizon).

The user wants a thing. A thing that is not raw must be made of another thing first. The agent asks down the chain,
fetches the raw thing and makes the rest upwards. A task of depth d takes d + 1 questions, one fetch and d makes, that
is 2 d + 2 turns, and leaves nothing to guess. The agent can name only things that were mentioned.

Half of the reward is shared evenly by the useful turns, each paid once and in order. The other half is for the goal. Or the
goal earns everything (`ErrandConfig.reward`). The score is whether the goal was made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Protocol

from pydantic import Field, model_validator

from userrl_core.gyms.base import Gym, GymConfig, Reply, RewardBounds
from userrl_core.gyms.errand.english import ACTS
from userrl_core.gyms.errand.rule_user import RuleErrandUser
from userrl_core.gyms.lazy import lazily
from userrl_core.gyms.wording import Wordings, with_article
from userrl_core.interact import InteractCall
from userrl_core.records import Task

DONE, OK, NO = "done", "ok", "no"


class ErrandUser(Protocol):
    """The user, who knows what each thing is made of."""

    async def needs(self, item: str, part: str | None) -> str:
        """Return the user's sentence about a thing: its part, or that it is raw (part None). Raises UserError."""


class ErrandConfig(GymConfig):
    """Rewards of ErrandGym."""

    reward: Literal["dense", "terminal"] = "dense"
    """dense: `shared` for the useful turns, the rest for the goal. terminal: everything for the goal."""

    shared: float = Field(default=0.5, ge=0.0, le=1.0)
    """Total reward of the useful turns in the dense form."""

    questions_paid: bool | float = True
    """Whether useful questions have half of `shared`, or their total reward as a number of at most `shared`. Fetching and making
    have the rest, so that the solution earns the same in total."""

    demonstrator_depth: int = 8
    """Deepest task that the scripted demonstrator can do. In deeper tasks it acts at random."""

    wording: Literal["terse", "english"] = "terse"
    """terse: one word a message. english: sentences in several wordings (`english`)."""

    @property
    def question_pay(self) -> float:
        """Return the total reward of the useful questions in the dense form."""
        if isinstance(self.questions_paid, bool):
            return self.shared / 2 if self.questions_paid else 0.0
        return self.questions_paid

    @model_validator(mode="after")
    def _pays_at_most_what_is_shared(self) -> ErrandConfig:
        if not 0.0 <= self.question_pay <= self.shared:
            raise ValueError(f"questions_paid takes true, false or a number from 0 to shared ({self.shared})")
        return self


class ErrandGym(Gym[ErrandConfig]):
    """A chain of things to make, from the bottom up."""

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
        """Return 2 depth + 2."""
        return 2 * len(task.payload["chain"])

    @classmethod
    def reward_bounds(cls, config: ErrandConfig) -> RewardBounds:
        """Return [0, 1]; the goal pays most, and a useful turn of the deepest task least."""
        return RewardBounds(0.0, 1.0, 0.0)

    @classmethod
    def gold(cls, task: Task, config: ErrandConfig) -> list[InteractCall]:
        """Ask down the chain, fetch its end, make upwards."""
        chain = task.payload["chain"]
        asks = [InteractCall("action", item) for item in chain]
        makes = [InteractCall("answer", item) for item in reversed(chain[:-1])]
        return [*asks, InteractCall("search", chain[-1]), *makes]

    def opening(self) -> str:
        """Return the user's wish as a sentence."""
        self._chain: list[str] = self.task.payload["chain"]
        self._asked = 0
        """Number of chain links asked about in order. The thing after them has been mentioned."""
        self._held = len(self._chain)
        """Index of the highest link held; the chain's length if none is held."""
        self._words = Wordings(ACTS, self.task) if self.config.wording == "english" else None
        item = with_article(self._chain[0])
        self._opening = self._say(f"I would like to have a {self._chain[0]}.", "opening", thing=item)
        return self._opening

    def brief(self) -> str:
        """Return the wanted thing in one word; in English the opening."""
        return self._chain[0] if self._words is None else self._opening

    def ready(self) -> Mapping[str, Sequence[str]]:
        """Return the things that were mentioned, for every choice."""
        return dict.fromkeys(self.choices(), self._chain[: self._asked + 1])

    async def action(self, content: str) -> Reply:
        """Ask what a thing is made of."""
        link = self._link(content)
        if link is None:
            return Reply(self._say(NO, "no"))
        part = self._chain[link + 1] if link + 1 < len(self._chain) else None
        # Only the next question of the chain pays, and only once.
        reward = self._share(self.config.question_pay) if link == self._asked else 0.0
        reply = await self.user.needs(self._chain[link], part)
        if isinstance(self.user, RuleErrandUser):
            reply = self._say(reply, "raw" if part is None else "part", part=with_article(part) if part else "")
        # Asking about an earlier thing again takes nothing back.
        self._asked = max(self._asked, link + 1)
        return Reply(reply, reward)

    async def search(self, content: str) -> Reply:
        """Fetch a raw thing."""
        if self._link(content) != len(self._chain) - 1:
            return Reply(self._say(NO, "no"))
        # Fetching pays once.
        reward = self._work_share() if self._held == len(self._chain) else 0.0
        self._held = min(self._held, len(self._chain) - 1)
        return Reply(self._say(OK, "ok"), reward)

    async def answer(self, content: str) -> Reply:
        """Make a thing from the one below it in the chain, if the agent holds that."""
        link = self._link(content)
        # It was not mentioned, its part is not held yet, or it is raw and can only be fetched.
        if link is None or link + 1 < self._held or link + 1 == len(self._chain):
            return Reply(self._say(NO, "no"))
        if link + 1 > self._held:
            return Reply(self._say(OK, "ok"))  # made before
        self._held = link
        if link > 0:
            return Reply(self._say(OK, "ok"), self._work_share())
        # The rewards of a solution add up to 1 in both forms.
        goal = 1.0 - (self.config.shared if self.config.reward == "dense" else 0.0)
        return Reply(self._say(DONE, "done"), goal + self._work_share(), done=True)

    def score(self) -> float | None:
        """Return 1.0 once the thing is made."""
        # Where a turn could not be scored, the conversation cannot be either.
        return None if None in self.rewards else float(self._held == 0)

    def _link(self, content: str) -> int | None:
        """Return the chain index of a named thing; None if it was not mentioned yet."""
        name = content.strip().lower()
        # Only what was mentioned counts, so the chain cannot be guessed.
        mentioned = self._chain[: self._asked + 1]
        if self._words is not None:
            name = " ".join(item for item in mentioned if item in re.findall(r"[a-z]+", name))
        return mentioned.index(name) if name in mentioned else None

    def _say(self, terse: str, act: str, **values: str) -> str:
        """Return a message as the wording says it."""
        return terse if self._words is None else self._words.say(act, **values)

    def _work_share(self) -> float:
        return self._share(self.config.shared - self.config.question_pay)

    def _share(self, total: float) -> float:
        # The chain has as many questions as things to fetch and make.
        return total / len(self._chain) if self.config.reward == "dense" else 0.0
