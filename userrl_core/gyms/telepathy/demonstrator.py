"""The scripted demonstrator of TelepathyGym: halves what is left with every question, then names what remains."""

from __future__ import annotations

import random

from userrl_core.gyms.stemming import content_words
from userrl_core.gyms.telepathy.gym import PUBLISHED_QUESTIONS, TelepathyConfig
from userrl_core.gyms.telepathy.tasks import best_question, categories
from userrl_core.interact import InteractCall
from userrl_core.records import Task


class TelepathyDemonstrator:
    """Plays one attempt. With probability 1 - skill a turn is a question or a guess taken at random."""

    def __init__(self, task: Task, rng: random.Random, skill: float, config: TelepathyConfig) -> None:
        self._task, self._rng, self._skill = task, rng, skill
        table = task.payload["yes"] is not None
        self._category = categories()[task.payload["category"]] if table else None
        self._left = list(self._category.entities) if self._category else []
        self._asked: str | None = None
        self._script = [] if table else _questions_about(task)

    def act(self, observation: str) -> InteractCall:
        """The next call, after learning from the reply to the last question."""
        self._learn(observation)
        if self._rng.random() >= self._skill:
            return self._stray()
        if self._category is None:
            return InteractCall("action", self._script.pop(0)) if self._script else self._guess()
        attribute = best_question(self._category, self._left)
        if attribute is None:
            return self._guess()
        self._asked = attribute
        return InteractCall("action", self._category.asks[attribute].question)

    def _learn(self, reply: str) -> None:
        asked, self._asked = self._asked, None
        if self._category is None or asked is None or reply not in ("Yes", "No"):
            return
        entities = self._category.entities
        self._left = [name for name in self._left if (asked in entities[name]) == (reply == "Yes")]

    def _guess(self) -> InteractCall:
        if self._category is None:
            return InteractCall("answer", self._task.payload["title"])
        return InteractCall("answer", self._left[0] if self._left else self._task.payload["title"])

    def _stray(self) -> InteractCall:
        everything = list(categories().values())
        category = self._rng.choice(everything)
        if self._rng.random() < 0.5:
            return InteractCall("answer", self._rng.choice(list(category.entities)))
        return InteractCall("action", self._rng.choice(list(category.asks.values())).question)


def _questions_about(task: Task) -> list[str]:
    """Questions that the released description answers with Yes, as a player who is on the right way would ask them."""
    noun = task.payload["category"].replace("_", " ")
    title = {word for name in (task.payload["title"], *task.payload["aliases"]) for word in content_words(name)}
    told = [word for word in content_words(task.payload["description"]) if word not in title]
    asks = [f"Is it a {noun}?", *(f"Does {word} have to do with it?" for word in told)]
    return (asks + ["Is it well known?"] * PUBLISHED_QUESTIONS)[:PUBLISHED_QUESTIONS]
