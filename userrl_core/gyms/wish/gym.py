"""WishGym: an outfit in the user's head, and an answer that may gamble (ours: the laptop's task that rewards asking).

The user wants an outfit and names its garments. The user has a colour in mind for each. A question about a garment
reveals its colour, at once or only when asked again (`rule_user`). A search lists the options that agree with all
told colours: the best one, and one wrong option for every colour not told yet, wrong in that garment only. With j of
k colours told, an answer gambles among 1 + k - j options. An answer ends the conversation.

Half of the reward is shared by the colours, each paid when first told. The other half is for the best option
(`WishConfig.elicitation`). With elicitation 0 the model learns to answer at once, although asking earns more. A question
may have a price (`WishConfig.question_price`). The score is whether the best option was chosen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Protocol

from pydantic import Field, model_validator

from userrl_core.gyms.base import Gym, GymConfig, Reply, RewardBounds
from userrl_core.gyms.lazy import lazily
from userrl_core.gyms.population import ASIDES
from userrl_core.gyms.wish.english import ACTS
from userrl_core.gyms.wish.human_user import HumanWishUser
from userrl_core.gyms.wish.rule_user import HESITATES, RuleWishUser
from userrl_core.gyms.wish.tasks import COLOURS, GARMENTS, OPTIONS
from userrl_core.gyms.wording import Wordings, listed, with_article
from userrl_core.interact import InteractCall
from userrl_core.records import Task

DONE, UNREAD, LEFT = "done", "bad", "bye"
_SENTENCES = dict(ASIDES.values())


class WishUser(Protocol):
    """The user, who has the colours in mind."""

    async def colour(self, garment: str, colour: str | None, repeated: bool) -> tuple[str, bool]:
        """Return the user's answer about a garment, and whether it reveals the colour.

        colour: None for a garment outside the outfit. repeated: the colour was revealed before and is told again. Raises
        UserError.
        """


class WishConfig(GymConfig):
    """Rewards of WishGym."""

    elicitation: float = Field(default=0.5, ge=0.0, le=1.0)
    """Total reward of the colours, each paid when first told. The rest is for the best option."""

    search_pay: float = Field(default=0.0, ge=0.0, le=1.0)
    """Reward of the first search. It is subtracted from the best option's reward, so that the solution earns the same
    in total.
    """

    question_price: float = Field(default=0.0, ge=0.0, le=1.0)
    """Amount subtracted from the reward of every question (not of searches and answers)."""

    demonstrator_size: int = 5
    """Most garments that the scripted demonstrator can handle. With more it acts at random."""

    wording: Literal["terse", "english"] = "terse"
    """terse: one word a message. english: sentences in several wordings (`english`)."""

    @model_validator(mode="after")
    def _shares_fit(self) -> WishConfig:
        if self.elicitation + self.search_pay > 1.0:
            raise ValueError("elicitation and search_pay are more than 1 together; the best option is paid the rest")
        return self


class WishGym(Gym[WishConfig]):
    """An outfit to choose, once its colours are known."""

    name = "wish"
    config_type = WishConfig
    metric = "Success"
    success_rule = "the best outfit was chosen"
    goal = (
        "The user wants an outfit and has a colour in mind for each of its garments. Find the colours out by asking, look "
        "for outfits, and choose the one that the user has in mind. You may choose once."
    )
    choice_help: ClassVar = {
        "action": "ask about one garment; the user tells its colour, or hesitates (hm) and has to be asked again",
        "search": "list the outfits that agree with everything the user has told so far; the content is ignored",
        "answer": "the name of one outfit, e.g. oak; ends the conversation",
    }
    users: ClassVar = {
        "rule": RuleWishUser,
        "openai": lazily("userrl_core.gyms.wish.llm_user:LLMWishUser"),
        "human": HumanWishUser,
    }
    user: WishUser

    @staticmethod
    def min_turns(task: Task, config: GymConfig) -> int:
        """Return one question per garment, plus a search and an answer."""
        return len(task.payload["wished"]) + 2

    @classmethod
    def reward_bounds(cls, config: WishConfig) -> RewardBounds:
        """Bound a turn: one colour may pay all of the elicitation, an answer the rest or nothing. A question has its price."""
        best = 1.0 - config.elicitation - config.search_pay
        return RewardBounds(
            0.0 - config.question_price,
            max(config.elicitation, best, config.search_pay),
            best if best > 0 else float("inf"),
        )

    @classmethod
    def gold(cls, task: Task, config: WishConfig) -> list[InteractCall]:
        """Ask about every garment, search, choose the best."""
        asks = [InteractCall("action", garment) for garment in task.payload["wished"]]
        return [*asks, InteractCall("search", ""), InteractCall("answer", task.payload["best"])]

    def opening(self) -> str:
        """Return a sentence with the garments."""
        self._wished: dict[str, str] = self.task.payload["wished"]
        self._told: set[str] = set()
        self._chosen: str | None = None
        self._searched = False
        self._options: list[str] = []
        """The options that the last search listed."""
        self._words = Wordings(ACTS, self.task) if self.config.wording == "english" else None
        garments = listed([with_article(garment) for garment in self._wished])
        self._opening = self._say(f"I need an outfit: {', '.join(self._wished)}.", "opening", garments=garments)
        return self._opening

    def brief(self) -> str:
        """Return the garments only; in English the opening."""
        return ",".join(self._wished) if self._words is None else self._opening

    def ready(self) -> Mapping[str, Sequence[str]]:
        """Return the garments, the search, and the options that the last search listed."""
        return {"action": list(self._wished), "search": [""], "answer": self._options}

    async def action(self, content: str) -> Reply:
        """Ask about the one garment that the text names."""
        if self._has_left():
            return self._left()
        named_garments = [garment for garment in GARMENTS if garment in re.findall(r"[a-z]+", content.lower())]
        if len(named_garments) != 1:
            return Reply(self._say(UNREAD, "unread"), 0.0 - self.config.question_price)
        garment = named_garments[0]
        if isinstance(self.user, HumanWishUser):
            self.user.hears(content)
        reply, out = await self.user.colour(garment, self._wished.get(garment), garment in self._told)
        if isinstance(self.user, RuleWishUser):
            reply = self._worded(reply, garment, out)
        volunteered = getattr(self.user, "volunteered", None) if out else None
        new = {name for name in (garment, volunteered) if out and name in self._wished} - self._told
        self._told |= new
        paid = self.config.elicitation / len(self._wished) * len(new)
        return Reply(reply, paid - self.config.question_price, info=self._shares())

    def _worded(self, reply: str, garment: str, out: bool) -> str:
        """Return the rule user's answer as the wording says it."""
        if reply in _SENTENCES and reply != HESITATES:
            return reply if self._words is None else _SENTENCES[reply]
        colour, *more = reply.split(", ")
        act = "colour" if out or colour in COLOURS else "hesitates" if garment in self._wished else "anything"
        return " ".join([self._say(reply, act, garment=garment, colour=colour), *(more if self._words else [])])

    def _has_left(self) -> bool:
        """Return whether the user has lost patience."""
        persona = getattr(self.user, "persona", None)
        return persona is not None and persona.leaves(self.turns)

    def _left(self) -> Reply:
        return Reply(self._say(LEFT, "done"), done=True, success=False, info={**self._shares(), "left": True})

    async def search(self, content: str) -> Reply:
        """List the options that agree with the told colours, in the task's own order."""
        if self._has_left():
            return self._left()
        wrong = self.task.payload["wrong"]
        out = {wrong[garment] for garment in self._told}
        reward = 0.0 if self._searched else self.config.search_pay
        self._searched = True
        options = self._options = [option for option in self.task.payload["order"] if option not in out]
        return Reply(self._say(",".join(options), "shown", options=listed(options)), reward, info=self._shares())

    async def answer(self, content: str) -> Reply:
        """Choose an option and end the conversation."""
        if self._has_left():
            return self._left()
        option = content.strip().lower()
        if self._words is not None:
            option = " ".join(token for token in re.findall(r"[a-z]+", option) if token in OPTIONS)
        if option not in OPTIONS:
            return Reply(self._say(UNREAD, "unread"), info=self._shares())
        self._chosen = option
        best = option == self.task.payload["best"]
        return Reply(
            self._say(DONE, "done"),
            (1.0 - self.config.elicitation - self.config.search_pay) * best,
            done=True,
            info=self._shares(),
        )

    def score(self) -> float | None:
        """Return 1.0 if the best option was chosen."""
        return None if None in self.rewards else float(self._chosen == self.task.payload["best"])

    def _say(self, terse: str, act: str, **values: str) -> str:
        """Return a message as the wording says it."""
        return terse if self._words is None else self._words.say(act, **values)

    def _shares(self) -> dict[str, int]:
        return {"told": len(self._told), "wished": len(self._wished)}
