"""TelepathyGym's scripted demonstrator: it halves the candidates with every question, then guesses the last one."""

from __future__ import annotations

import random

from userrl_core.gyms.stemming import content_words
from userrl_core.gyms.telepathy.gym import PUBLISHED_QUESTIONS, TelepathyConfig
from userrl_core.gyms.telepathy.tasks import best_question, categories
from userrl_core.interact import InteractCall
from userrl_core.records import Task


class TelepathyDemonstrator:
    """A player of one episode. With probability 1 - skill a turn is a random question or guess."""

    def __init__(self, task: Task, rng: random.Random, skill: float, config: TelepathyConfig) -> None:
        self._task, self._rng, self._skill = task, rng, skill
        has_table = task.payload["yes"] is not None
        self._category = categories()[task.payload["category"]] if has_table else None
        self._candidates = list(self._category.entities) if self._category else []
        self._asked_attribute: str | None = None
        self._script = [] if has_table else _questions_about(task)

    def act(self, observation: str) -> InteractCall:
        """Narrow the candidates by the last reply and return the next call."""
        self._narrow(observation)
        if self._rng.random() >= self._skill:
            return self._random_call()
        if self._category is None:
            return InteractCall("action", self._script.pop(0)) if self._script else self._guess()
        attribute = best_question(self._category, self._candidates)
        if attribute is None:
            return self._guess()
        self._asked_attribute = attribute
        return InteractCall("action", self._category.asks[attribute].question)

    def _narrow(self, reply: str) -> None:
        attribute, self._asked_attribute = self._asked_attribute, None
        if self._category is None or attribute is None or reply not in ("Yes", "No"):
            return
        entities = self._category.entities
        self._candidates = [name for name in self._candidates if (attribute in entities[name]) == (reply == "Yes")]

    def _guess(self) -> InteractCall:
        if self._category is None:
            return InteractCall("answer", self._task.payload["title"])
        return InteractCall("answer", self._candidates[0] if self._candidates else self._task.payload["title"])

    def _random_call(self) -> InteractCall:
        category = self._rng.choice(list(categories().values()))
        if self._rng.random() < 0.5:
            return InteractCall("answer", self._rng.choice(list(category.entities)))
        return InteractCall("action", self._rng.choice(list(category.asks.values())).question)


def _questions_about(task: Task) -> list[str]:
    """Return questions that the rule user answers with Yes from the released description."""
    noun = task.payload["category"].replace("_", " ")
    name_words = {token for name in (task.payload["title"], *task.payload["aliases"]) for token in content_words(name)}
    hints = [token for token in content_words(task.payload["description"]) if token not in name_words]
    questions = [f"Is it a {noun}?", *(f"Does {token} have to do with it?" for token in hints)]
    return (questions + ["Is it well known?"] * PUBLISHED_QUESTIONS)[:PUBLISHED_QUESTIONS]
