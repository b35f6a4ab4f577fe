"""TravelGym: find out a traveller's preferences, search, and choose (UserBench sections 3 and 4; UserRL appendix C).

``action`` is a message to the user, ``search`` a database query, ``answer`` the id of an option. The user's opening
states only the trip. The user implies a preference when asked for it. The best option meets all preferences at the
lowest total cost.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from userrl_core.gyms.base import Gym, Reply, RewardBounds
from userrl_core.gyms.lazy import lazily
from userrl_core.gyms.population import ASIDES
from userrl_core.gyms.travel.config import TravelConfig
from userrl_core.gyms.travel.english import ACTS, WISHES
from userrl_core.gyms.travel.replies import FULL, TERSE, ReplyTexts, show_options
from userrl_core.gyms.travel.rule_user import RuleTravelUser, query_for, question_for
from userrl_core.gyms.travel.tiny import VALUES
from userrl_core.gyms.travel.world import (
    ASPECT_OF_LETTER,
    HistoryLine,
    Preference,
    TravelProgress,
    TravelUser,
    World,
    meets,
)
from userrl_core.gyms.wording import Wordings, listed
from userrl_core.interact import InteractCall
from userrl_core.records import Task

_ID = re.compile(r"[ACFHR]\d{1,4}\Z")
_SENTENCES = dict(ASIDES.values())


def fewest_turns(task: Task, config: Any = None) -> int:
    """Return one question per preference, one search per aspect, and one answer for all aspects."""
    aspects = task.payload["aspects"].values()
    return sum(len(aspect["preferences"]) for aspect in aspects) + len(aspects) + 1


FIRST_COUNTS = "the first choice for each part counts"


class TravelGym(Gym[TravelConfig]):
    """A trip to book for a traveller with hidden preferences (UserBench sections 3 and 4; UserRL appendix C).

    The metric is the reward of the best choice per aspect, averaged over aspects (UserBench 4.1). In the tiny tier it is the
    sum of turn rewards, which is in [0, 1] there.
    """

    name = "travel"
    config_type = TravelConfig
    metric = "Choice Correctness"
    success_rule = "the best option of every part of the trip was chosen"
    min_turns = staticmethod(fewest_turns)
    users: ClassVar[Mapping[str, Any]] = {
        "rule": RuleTravelUser,
        "openai": lazily("userrl_core.gyms.travel.llm_user:LLMTravelUser"),
        "human": lazily("userrl_core.gyms.travel.human_user:HumanTravelUser"),
    }
    hint = "Ask about one preference of one part of the trip at a time, and search before you answer."
    goal = (
        "Plan the user's trip. The user has preferences for every part of it and tells them only indirectly and when asked "
        "for one in particular; money matters. Choose, for each part, the cheapest option that meets them all."
    )
    choice_help: ClassVar[Mapping[str, str]] = {
        "action": "a message to the user; ask about one particular detail of one part of the trip",
        "search": "a database query: one part of the trip (flight, hotel, apartment, rental car, restaurant) with its place "
        "and dates",
        "answer": "the id of one option from the search results, e.g. H3; " + FIRST_COUNTS,
    }

    def __init__(self, task: Task, user: TravelUser | None = None, config: TravelConfig | None = None) -> None:
        """Read the task. Raises TaskError for a task imported without its options, which cannot be played."""
        user = user if user is not None else self.users["rule"](task, random.Random(0))
        super().__init__(task, user, TravelConfig.for_task(task, config))
        self.world = World.of(task.payload)
        self.progress = TravelProgress()
        self.history: list[HistoryLine] = []
        # A user with released prompts brings the released replies, which are part of the conversation that it reads.
        released = getattr(self.user, "replies" if self.config.one_choice_per_aspect else "several", None)
        self._texts: ReplyTexts = released or (TERSE if self.config.terse else FULL)
        self._words: Wordings | None = None
        self._turns_without_elicitation = 0
        self._searches = 0
        self._user: TravelUser = self.user

    def help_for(self, choice: str) -> str:
        """Return the description of a choice. The number of options that count is a setting."""
        text = super().help_for(choice)
        if choice == "answer" and not self.config.one_choice_per_aspect:
            return text.replace(FIRST_COUNTS, "you may choose several for each part, until the best of all are chosen")
        return text

    def opening(self) -> str:
        """Return the trip, without a preference."""
        self._opening = str(self.task.payload["opening"])
        if self.config.in_english(self.task):
            self._words = Wordings(ACTS, self.task)
            first, second = (preference.category for preference in self.world.preferences.values())
            self._opening = self._words.say("opening", first=first, second=second)
        return self._opening

    def brief(self) -> str:
        """Return the trip in a few words, if the task has them; in English the opening."""
        if self._words is not None:
            return self._opening
        return str(self.task.payload.get("brief", self.task.payload["opening"]))

    async def action(self, content: str) -> Reply:
        """Send a message to the user, who reveals a requested preference, or volunteers one after an interval."""
        unrevealed = self._unrevealed()
        persona = getattr(self._user, "persona", None)
        if persona is not None and persona.leaves(self.turns):
            return Reply(self._say("Goodbye.", "left"), done=True, success=False, info={"left": True})
        # With repeat_known a revealed preference can be asked for again, so the judge must know it.
        candidates = list(self.world.preferences.values()) if self.config.repeat_known else unrevealed
        judgement = await self._user.judge(content, candidates, self.history)
        asked_for = self.world.preferences.get(judgement.preference_id or "") if judgement.kind == "held" else None
        if asked_for is not None and asked_for in unrevealed:
            text = await self._reveal(content, asked_for, asked=True)
            self._turns_without_elicitation = 0
            self.progress.active.append(asked_for.id)
            info = {"utterance": "held", "preference": asked_for.id, "elicited": "active"}
            others = [p for p in unrevealed if p is not asked_for]
            if others and persona is not None and persona.volunteers():
                volunteered = next(p for p in others if p.id == persona.pick([p.id for p in others]))
                more = await self._reveal(content, volunteered, asked=False)
                text = f"{text} {more}"
                self.progress.passive.append(volunteered.id)
                info["volunteered"] = volunteered.id
            return self._user_reply(content, text, self.config.preference_reward, info)
        if asked_for is not None and self.config.repeat_known:
            text = await self._reveal(content, asked_for, asked=True)
            return self._user_reply(content, text, 0.0, {"utterance": "held", "preference": asked_for.id})
        kind = "not_held" if judgement.kind == "held" else judgement.kind
        interval = self.config.elicitation_interval
        if unrevealed and 0 < interval <= self._turns_without_elicitation:
            volunteered = self.rng.choice(unrevealed)
            text = await self._reveal(content, volunteered, asked=False)
            self._turns_without_elicitation = 0
            self.progress.passive.append(volunteered.id)
            info = {"utterance": kind, "preference": volunteered.id, "elicited": "passive"}
            return self._user_reply(content, text, 0.0, info)
        if kind == "not_held":
            text = self._say(self._texts.not_held, "anything")
        elif kind == "too_vague":
            text = self._say(self._texts.too_vague, "unread")
        else:
            text = await self._chat(content)
        self._turns_without_elicitation += 1
        return self._user_reply(content, text, 0.0, {"utterance": kind})

    async def search(self, content: str) -> Reply:
        """Run a query. It returns the aspect's options if its arguments are right, but every n-th search fails."""
        self._searches += 1
        interval = self.config.search_failure_interval
        if interval and self._searches % interval == 0:
            return self._search_reply(content, self._say(self._texts.search_failed, "none"), 0.0, "failed")
        judgement = await self._user.match(content, self.history)
        aspect = self.world.aspects.get(judgement.aspect or "") if judgement.kind == "match" else None
        if aspect is None:
            text = self._texts.search_unrelated if judgement.kind == "unrelated" else self._texts.search_wrong
            text = self._say(text, "none")
            return self._search_reply(content, text, 0.0, judgement.kind if judgement.kind != "match" else "wrong")
        options = aspect.options
        if self.config.narrow_search:
            stated = _stated_words(content, aspect.name) if self._words is None else _stated_values(content)
            if stated == {p.preference for p in aspect.preferences}:
                options = [o for o in options if all(meets(o, p.rule) for p in aspect.preferences)]
        elif aspect.name in self.progress.searched:
            text = self._say(self._texts.searched_before.replace("{aspect}", aspect.name), "again")
            return self._search_reply(content, text, 0.0, "again")
        first = aspect.name not in self.progress.searched
        self.progress.searched.add(aspect.name)
        text = show_options(aspect.name, options, self._texts)
        text = self._say(text, "found", options=listed([str(option["id"]) for option in options]))
        return self._search_reply(content, text, self.config.search_reward if first else 0.0, "match")

    async def answer(self, content: str) -> Reply:
        """Choose option ids, separated by commas. Nothing is recorded unless all of them are valid and allowed."""
        config = self.config
        ids = [part.strip().upper() for part in content.split(",")]
        if self._words is not None:
            ids = list(dict.fromkeys(re.findall(r"\b[ACFHR]\d{1,4}\b", content.upper()))) or ids
        bad_id = next((option_id for option_id in ids if not _ID.match(option_id)), None)
        if bad_id is not None:
            text = self._texts.bad_id.replace("{id}", bad_id)
            return self._answer_reply(self._say(text, "wrong"), 0.0, done=config.end_on_wrong)
        aspects = [ASPECT_OF_LETTER[option_id[0]] for option_id in ids]
        if config.one_choice_per_aspect:
            chosen_before = any(aspect in self.progress.chosen for aspect in aspects)
            if chosen_before or len(set(aspects)) < len(aspects):
                act = "again" if chosen_before else "which"
                first = next((one for one in ids if ASPECT_OF_LETTER[one[0]] in self.progress.chosen), ids[0])
                return self._answer_reply(self._say(self._texts.chosen_before.replace("{initial}", first[0]), act), 0.0)
        kinds = [self._choose(option_id, aspect) for option_id, aspect in zip(ids, aspects, strict=True)]
        rewards = {"best": config.best_reward, "correct": config.correct_reward, "repeated": 0.0}
        reward = max(0.0, sum(rewards.get(kind, -config.wrong_penalty) for kind in kinds))
        if config.turn_cap is not None:
            reward = min(reward, config.turn_cap)
        choices: dict[str, str] = {}
        for option_id, kind in zip(ids, kinds, strict=True):
            choices.setdefault(option_id, kind)  # an id that occurs twice in the message keeps its first kind
        done = self._complete() or (config.end_on_wrong and "best" not in kinds)
        verdict = self._say(self._verdict(choices), "right" if "best" in kinds else "wrong")
        return self._answer_reply(verdict, reward, done=done, choices=choices)

    def score(self) -> float | None:
        """Return the mean over aspects of the best choice's reward, relative to the best reward; the return in the tiny tier."""
        if self.config.score_as == "return" or None in self.rewards:
            return super().score()
        return sum(self._quality(name) for name in self.world.aspects) / len(self.world.aspects)

    @classmethod
    def reward_bounds(cls, config: TravelConfig) -> RewardBounds:
        """Return the widest bounds over the presets for tasks of different tiers, unless the config names a preset."""
        bounds = [settings.reward_bounds() for settings in config.possible()]
        return RewardBounds(0.0, max(b.high for b in bounds), min(b.answer for b in bounds))

    async def _reveal(self, content: str, preference: Preference, *, asked: bool) -> str:
        """Return the user's hint at a preference, the rule user's as the wording says it."""
        text = await self._user.reveal(content, preference, self.history, asked=asked)
        if self._words is None or not isinstance(self._user, RuleTravelUser):
            return text
        return self._words.say("told", wish=WISHES[preference.category].format(value=text))

    async def _chat(self, content: str) -> str:
        text = await self._user.chat(content, self.history)
        if self._words is None or not isinstance(self._user, RuleTravelUser):
            return text
        return _SENTENCES.get(text) or self._words.say("unread")

    def _say(self, text: str, act: str, **values: str) -> str:
        """Return a message as the wording says it."""
        return text if self._words is None else self._words.say(act, **values)

    def _unrevealed(self) -> list[Preference]:
        revealed = {*self.progress.active, *self.progress.passive}
        closed_aspects = self.progress.chosen if self.config.one_choice_per_aspect else ()
        return [p for p in self.world.preferences.values() if p.id not in revealed and p.aspect not in closed_aspects]

    def _choose(self, option_id: str, aspect_name: str) -> str:
        aspect = self.world.aspects.get(aspect_name)
        if aspect is None:
            return "foreign"
        chosen_ids = self.progress.chosen.setdefault(aspect_name, [])
        if option_id in chosen_ids:
            return "repeated"
        chosen_ids.append(option_id)
        return "best" if option_id == aspect.best else "correct" if option_id in aspect.correct else "wrong"

    def _verdict(self, choices: Mapping[str, str]) -> str:
        texts = {
            "best": self._texts.best,
            "correct": self._texts.correct,
            "wrong": self._texts.wrong,
            "foreign": self._texts.foreign,
            "repeated": self._texts.chosen_before,
        }
        if len(choices) == 1:
            return texts[next(iter(choices.values()))]
        return " ".join(f"{option_id}: {texts[kind]}" for option_id, kind in choices.items())

    def _complete(self) -> bool:
        ids_by_aspect = self.progress.chosen
        if self.config.one_choice_per_aspect and self.config.end_when == "all_chosen":
            return len(ids_by_aspect) == len(self.world.aspects)
        return all(aspect.best in ids_by_aspect.get(name, ()) for name, aspect in self.world.aspects.items())

    def _quality(self, name: str) -> float:
        aspect, chosen_ids = self.world.aspects[name], self.progress.chosen.get(name, [])
        if aspect.best in chosen_ids:
            return 1.0
        return self.config.correct_reward / self.config.best_reward if aspect.correct.intersection(chosen_ids) else 0.0

    def _user_reply(self, content: str, text: str, reward: float, info: dict[str, Any]) -> Reply:
        self.history += (HistoryLine("agent", content), HistoryLine("user", text))
        return Reply(text, reward, info=info)

    def _search_reply(self, content: str, text: str, reward: float, kind: str) -> Reply:
        # The history keeps the first line only: the user does not see the options.
        line = text.split("\n", 1)[0] + (self._texts.skipped if kind == "match" else "")
        self.history += (HistoryLine("agent", content), HistoryLine("database", line))
        return Reply(text, reward, info={"search": kind})

    def _answer_reply(
        self, text: str, reward: float, done: bool = False, choices: Mapping[str, str] | None = None
    ) -> Reply:
        return Reply(text, reward, done=done, info={"choices": dict(choices or {})})

    @classmethod
    def gold(cls, task: Task, config: TravelConfig | None = None) -> list[InteractCall]:
        """Ask for every preference, search every aspect, answer all at once."""
        world = World.of(task.payload)
        questions = [InteractCall("action", question_for(p, task.tier)) for p in world.preferences.values()]
        searches = [InteractCall("search", query_for(aspect, task.tier)) for aspect in world.aspects.values()]
        best = ", ".join(aspect.best for aspect in world.aspects.values())
        return [*questions, *searches, InteractCall("answer", best)]


def _stated_values(query: str) -> set[str]:
    return set(re.findall(r"[a-z]+", query.lower())) & VALUES


def _stated_words(query: str, aspect: str) -> set[str]:
    return set(query.lower().split()) - {aspect}
