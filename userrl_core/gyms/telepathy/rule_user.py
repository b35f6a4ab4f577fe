"""TelepathyGym's rule user: answers from attribute tables, and guesses compared with the entity's names.

A released entity has no table. The answer is then Yes if the entity's description matches the question, No if the question
names another category, and Maybe otherwise.
"""

from __future__ import annotations

import random
import re
from functools import lru_cache

from userrl_core.gyms.stemming import coverage, fold, matches, negated, normalise, stem, stems, strongest_match, words
from userrl_core.gyms.telepathy.tasks import EntityCategory, categories
from userrl_core.records import ModelCall, Task
from userrl_core.served.verdict import Answer

_IS_A = re.compile(r"^(?:is|are|was|were) (?:it|this|that|he|she|they|you thinking of) (.+)$")
_STARTS = re.compile(r"\b(?:start|starts|begin|begins)\b.*?\bwith\b(?: the)?(?: letter)? ([a-z])$")
_GUESS = re.compile(r"^(?:it is|its|is it|i think it is|i think its|i guess|my guess is|my answer is|the answer is) ")


class RuleTelepathyUser:
    """A deterministic user; the generator is unused."""

    def __init__(self, task: Task, rng: random.Random) -> None:
        self.ledger: list[ModelCall] = []
        self._entity = task.payload
        self._names = {normalise(name) for name in (self._entity["title"], *self._entity["aliases"])}
        self._category = categories().get(self._entity["category"]) if self._entity["yes"] is not None else None

    async def reply(self, question: str) -> Answer:
        """Return Yes, No or Maybe to a question about the entity."""
        if self._category is not None:
            attribute = _attributes_by_question(self._category.name).get(normalise(question))
            if attribute is not None:
                return _yes_or_no(attribute in self._entity["yes"])
        if negated(question):
            return "Maybe"  # people answer "does it not fly?" both ways
        letter = _STARTS.search(" ".join(words(question)))
        if letter:
            return _yes_or_no(normalise(self._entity["title"]).startswith(letter.group(1)))
        if self._category is not None:
            return self._by_table(self._category, question)
        return self._by_description(question)

    async def matches(self, guess: str) -> bool:
        """Return whether a guess is the title or an alias, up to case, article and an introduction such as "is it"."""
        return same_name(guess, self._names)

    def _by_table(self, category: EntityCategory, question: str) -> Answer:
        is_a = _IS_A.match(normalise(question))
        if is_a:
            answer = self._by_name(category, normalise(is_a.group(1)))
            if answer is not None:
                return answer
        question_words = words(question)
        strengths = {key: strongest_match(ask.patterns, question_words) for key, ask in category.asks.items()}
        best = max(strengths.values())
        if best == 0:
            return "Maybe"
        answers = {key in self._entity["yes"] for key, strength in strengths.items() if strength == best}
        return _yes_or_no(answers.pop()) if len(answers) == 1 else "Maybe"

    def _by_name(self, category: EntityCategory, name: str) -> Answer | None:
        if name in self._names:
            return "Yes"
        nouns = _nouns()
        if name in nouns:
            return _yes_or_no(nouns[name] == category.name)
        return "No" if name in _all_names() else None

    def _by_description(self, question: str) -> Answer:
        entity_words = [
            token for field in ("description", "opening", "category") for token in words(self._entity[field])
        ]
        is_a = _IS_A.match(normalise(question))
        if is_a and normalise(is_a.group(1)) in self._names:
            return "Yes"
        if coverage([[stem] for stem in stems(question)], entity_words) == 1.0:
            return "Yes"
        noun = normalise(is_a.group(1)) if is_a else ""
        category = _nouns().get(noun)
        # Released categories overlap (a fruit is food), so only a noun of a clearly different category is answered No.
        if category is not None and not matches([stem(noun)], entity_words):
            return "No" if not _overlaps(category, self._entity["category"]) else "Maybe"
        return "Maybe"


def same_name(guess: str, names: set[str]) -> bool:
    """Return whether a guess is one of these normalised names, with or without an introduction such as "is it a"."""
    text = " ".join(words(guess))
    return any(normalise(name) in names for name in (text, _GUESS.sub("", text)))


def _yes_or_no(value: bool) -> Answer:
    return "Yes" if value else "No"


@lru_cache(maxsize=64)
def _attributes_by_question(category: str) -> dict[str, str]:
    return {normalise(ask.question): key for key, ask in categories()[category].asks.items()}


@lru_cache(maxsize=1)
def _all_names() -> frozenset[str]:
    return frozenset(
        normalise(name)
        for category in categories().values()
        for title, aliases in category.aliases.items()
        for name in (title, *aliases)
    )


_SYNONYMS = {
    "animal": ("animal", "creature", "living thing"),
    "food": ("food", "something to eat", "edible", "dish"),
    "instrument": ("instrument", "musical instrument"),
    "vehicle": ("vehicle", "means of transport"),
    "household": ("object", "household object", "household item", "thing"),
    "sport": ("sport", "game"),
    "job": ("job", "occupation", "profession", "person"),
    "country": ("country", "nation", "place"),
    "nature": ("natural phenomenon", "phenomenon", "natural thing"),
}

_RELEASED_NOUNS = {
    "animal": ("animal", "bird", "mammal", "reptile", "fish", "insect", "dinosaur", "creature"),
    "food": ("food", "fruit", "dish", "dessert", "beverage", "vegetable", "plant"),
    "instrument": ("instrument", "object"),
    "vehicle": ("vehicle", "technology", "object", "device", "toy"),
    "household": (
        "object",
        "device",
        "toy",
        "technology",
        "artwork",
        "tool",
        "furniture",
        "book",
        "instrument",
        "vehicle",
    ),
    "sport": ("sport", "game"),
    "job": ("person", "figure", "character", "composer", "profession"),
    "country": ("country", "place", "city", "landmark", "mountain", "waterfall", "structure", "nation"),
    "nature": ("phenomenon", "planet", "celestial", "mountain", "waterfall", "river", "natural"),
}


def _overlaps(ours: str, released: str) -> bool:
    return any(released_noun in fold(released) for released_noun in _RELEASED_NOUNS[ours])


@lru_cache(maxsize=1)
def _nouns() -> dict[str, str]:
    return {noun: category for category, nouns in _SYNONYMS.items() for noun in nouns}
