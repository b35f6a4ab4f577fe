"""TravelGym: draw out what a traveller wants, search, and choose (UserBench sections 3 and 4; UserRL appendix C).

``action`` is a message to the user, ``search`` a database query, ``answer`` the id of an option. The user starts with the
bare trip and lets a preference show when asked for it; the best option meets all of them at the lowest total cost.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from userrl_core.gyms.base import Gym, Pay, Reply
from userrl_core.gyms.lazy import lazily
from userrl_core.gyms.travel.config import TravelConfig
from userrl_core.gyms.travel.replies import FULL, TERSE, show_options
from userrl_core.gyms.travel.world import ASPECT_OF_LETTER, Preference, Progress, Said, TravelUser, World, meets
from userrl_core.interact import InteractCall
from userrl_core.records import Task

_ID = re.compile(r"[ACFHR]\d{1,4}\Z")


def fewest_turns(task: Task, config: Any = None) -> int:
    """One question per preference, one search per aspect, one answer for all."""
    aspects = task.payload["aspects"].values()
    return sum(len(aspect["preferences"]) for aspect in aspects) + len(aspects) + 1


class TravelGym(Gym[TravelConfig]):
    """Find out what the traveller wants, then book it (UserBench sections 3 and 4; UserRL appendix C).

    The metric is the reward of the best choice per aspect, averaged over aspects (UserBench 4.1); in the tiny tier it is the
    sum of turn rewards, which lies in [0, 1] there.
    """

    name = "travel"
    config_type = TravelConfig
    metric = "Choice Correctness"
    min_turns = staticmethod(fewest_turns)
    users: ClassVar[Mapping[str, Any]] = {
        "rule": lazily("userrl_core.gyms.travel.rule_user:RuleTravelUser"),
        "openai": lazily("userrl_core.gyms.travel.llm_user:LLMTravelUser"),
    }
    goal = (
        "Plan the user's trip. The user has preferences for every part of it and tells them only indirectly and when asked "
        "for one in particular; money matters. Choose, for each part, the cheapest option that meets them all."
    )
    choice_help: ClassVar[Mapping[str, str]] = {
        "action": "a message to the user; ask about one particular detail of one part of the trip",
        "search": "a database query: one part of the trip (flight, hotel, apartment, rental car, restaurant) with its place "
        "and dates",
        "answer": "the id of one option from the search results, e.g. H3; the first choice for each part counts",
    }

    def __init__(self, task: Task, user: TravelUser | None = None, config: TravelConfig | None = None) -> None:
        """Raises TaskError for a task that was imported without its options and cannot be played."""
        user = user if user is not None else self.users["rule"](task, random.Random(0))
        super().__init__(task, user, TravelConfig.for_task(task, config))
        self.world = World.of(task.payload)
        self.progress = Progress()
        self.history: list[Said] = []
        self._voice = TERSE if self.config.terse else FULL
        self._silent = 0
        self._searches = 0
        self._user: TravelUser = self.user

    def opening(self) -> str:
        """The bare trip: no preference shows."""
        return str(self.task.payload["opening"])

    def brief(self) -> str:
        """The trip in a few words, where the task has them."""
        return str(self.task.payload.get("brief", self.task.payload["opening"]))

    async def action(self, content: str) -> Reply:
        """A message to the user: a preference shows when it is asked for, or by itself after too much silence."""
        waiting = self._waiting()
        # Where a told preference is told again, the judge has to know of it.
        askable = list(self.world.preferences.values()) if self.config.repeat_known else waiting
        judged = await self._user.judge(content, askable, self.history)
        named = self.world.preferences.get(judged.preference_id or "") if judged.kind == "held" else None
        if named is not None and named in waiting:
            text = await self._user.reveal(content, named, self.history, asked=True)
            self._silent = 0
            self.progress.active.append(named.id)
            info = {"utterance": "held", "preference": named.id, "elicited": "active"}
            return self._said(content, text, self.config.preference_reward, info)
        if named is not None and self.config.repeat_known:
            text = await self._user.reveal(content, named, self.history, asked=True)
            return self._said(content, text, 0.0, {"utterance": "held", "preference": named.id})
        kind = "not_held" if judged.kind == "held" else judged.kind
        interval = self.config.elicitation_interval
        if waiting and 0 < interval <= self._silent:
            chosen = self.rng.choice(waiting)
            text = await self._user.reveal(content, chosen, self.history, asked=False)
            self._silent = 0
            self.progress.passive.append(chosen.id)
            info = {"utterance": kind, "preference": chosen.id, "elicited": "passive"}
            return self._said(content, text, 0.0, info)
        if kind == "not_held":
            text = self._voice.not_held
        elif kind == "too_vague":
            text = self._voice.too_vague
        else:
            text = await self._user.chat(content, self.history)
        self._silent += 1
        return self._said(content, text, 0.0, {"utterance": kind})

    async def search(self, content: str) -> Reply:
        """A query: the aspect's options when its arguments are right, except that every n-th search fails."""
        self._searches += 1
        every = self.config.search_failure_interval
        if every and self._searches % every == 0:
            return self._found(content, self._voice.search_failed, 0.0, "failed")
        judged = await self._user.match(content, self.history)
        aspect = self.world.aspects.get(judged.aspect or "") if judged.kind == "match" else None
        if aspect is None:
            text = self._voice.search_unrelated if judged.kind == "unrelated" else self._voice.search_wrong
            return self._found(content, text, 0.0, judged.kind if judged.kind != "match" else "wrong")
        options = aspect.options
        if self.config.narrow_search:
            if _stated(content, aspect.name) == {p.preference for p in aspect.preferences}:
                options = [o for o in options if all(meets(o, p.rule) for p in aspect.preferences)]
        elif aspect.name in self.progress.searched:
            return self._found(content, self._voice.searched_before, 0.0, "again")
        first = aspect.name not in self.progress.searched
        self.progress.searched.add(aspect.name)
        text = show_options(aspect.name, options, self.config.terse)
        return self._found(content, text, self.config.search_reward if first else 0.0, "match")

    async def answer(self, content: str) -> Reply:
        """Option ids, one or more separated by commas; nothing is recorded unless all can be read and are allowed."""
        ids = [part.strip().upper() for part in content.split(",")]
        if not all(_ID.match(one) for one in ids):
            return self._answered(self._voice.bad_id, 0.0, done=self.config.end_on_wrong)
        aspects = [ASPECT_OF_LETTER[one[0]] for one in ids]
        if self.config.one_choice_per_aspect:
            taken = [a for a in aspects if a in self.progress.chosen]
            if taken or len(set(aspects)) < len(aspects):
                return self._answered(self._voice.chosen_before, 0.0)
        found = [self._choose(one, aspect) for one, aspect in zip(ids, aspects, strict=True)]
        settings = self.config
        worth = {"best": settings.best_reward, "correct": settings.correct_reward, "repeated": 0.0}
        reward = max(0.0, sum(worth.get(kind, -settings.wrong_penalty) for kind in found))
        if settings.turn_cap is not None:
            reward = min(reward, settings.turn_cap)
        missed = settings.end_on_wrong and "best" not in found
        choices: dict[str, str] = {}
        for one, kind in zip(ids, found, strict=True):
            choices.setdefault(one, kind)  # an id that is said twice keeps its first verdict
        return self._answered(self._verdict(choices), reward, done=missed or self._complete(), choices=choices)

    def score(self) -> float | None:
        """Best choice per aspect relative to the best reward, averaged over aspects; the return in the tiny tier."""
        if self.config.score_as == "return" or None in self.rewards:
            return super().score()
        return sum(self._quality(name) for name in self.world.aspects) / len(self.world.aspects)

    @classmethod
    def pay(cls, config: TravelConfig) -> Pay:
        """The widest of the presets that tasks of a set may bring, where the config names none."""
        found = [settings.pay() for settings in config.possible()]
        return Pay(0.0, max(pay.most for pay in found), min(pay.answer for pay in found))

    def _waiting(self) -> list[Preference]:
        """Preferences not yet shown, of aspects that are still open."""
        shown = {*self.progress.active, *self.progress.passive}
        closed = self.progress.chosen if self.config.one_choice_per_aspect else ()
        return [p for p in self.world.preferences.values() if p.id not in shown and p.aspect not in closed]

    def _choose(self, one: str, name: str) -> str:
        aspect = self.world.aspects.get(name)
        if aspect is None:
            return "foreign"
        chosen = self.progress.chosen.setdefault(name, [])
        if one in chosen:
            return "repeated"
        chosen.append(one)
        return "best" if one == aspect.best else "correct" if one in aspect.correct else "wrong"

    def _verdict(self, choices: Mapping[str, str]) -> str:
        texts = {
            "best": self._voice.best,
            "correct": self._voice.correct,
            "wrong": self._voice.wrong,
            "foreign": self._voice.foreign,
            "repeated": self._voice.chosen_before,
        }
        if len(choices) == 1:
            return texts[next(iter(choices.values()))]
        return " ".join(f"{one}: {texts[kind]}" for one, kind in choices.items())

    def _complete(self) -> bool:
        chosen = self.progress.chosen
        if self.config.one_choice_per_aspect:
            return len(chosen) == len(self.world.aspects)
        return all(aspect.best in chosen.get(name, ()) for name, aspect in self.world.aspects.items())

    def _quality(self, name: str) -> float:
        aspect, chosen = self.world.aspects[name], self.progress.chosen.get(name, [])
        if aspect.best in chosen:
            return 1.0
        return self.config.correct_reward / self.config.best_reward if aspect.correct.intersection(chosen) else 0.0

    def _said(self, content: str, text: str, reward: float, info: dict[str, Any]) -> Reply:
        self.history += (Said("agent", content), Said("user", text))
        return Reply(text, reward, info=info)

    def _found(self, content: str, text: str, reward: float, kind: str) -> Reply:
        # The conversation keeps the first line only: the options themselves are nothing the user says or hears.
        self.history += (Said("agent", content), Said("database", text.split("\n", 1)[0]))
        return Reply(text, reward, info={"search": kind})

    def _answered(
        self, text: str, reward: float, done: bool = False, choices: Mapping[str, str] | None = None
    ) -> Reply:
        return Reply(text, reward, done=done, info={"choices": dict(choices or {})})

    @classmethod
    def gold(cls, task: Task, config: TravelConfig | None = None) -> list[InteractCall]:
        """Ask for every preference, search every aspect, answer all at once."""
        from userrl_core.gyms.travel.rule_user import query_for, question_for

        world = World.of(task.payload)
        asks = [InteractCall("action", question_for(p, task.tier)) for p in world.preferences.values()]
        finds = [InteractCall("search", query_for(aspect, task.tier)) for aspect in world.aspects.values()]
        best = ", ".join(aspect.best for aspect in world.aspects.values())
        return [*asks, *finds, InteractCall("answer", best)]


def _stated(query: str, aspect: str) -> set[str]:
    """The words of a query other than the aspect's own name."""
    return set(query.lower().split()) - {aspect}
