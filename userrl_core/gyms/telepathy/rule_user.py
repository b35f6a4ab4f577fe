"""The rule user of TelepathyGym: answers yes/no questions from attribute tables, and knows its entity's names.

For a released entity, which has no table, it answers Yes where the entity's description says so, No where another category
is named, and Maybe otherwise.
"""

from __future__ import annotations

import random
import re
from functools import lru_cache

from userrl_core.gyms.stemming import content_words, fold, hit, negated, normalise, share, stem, words
from userrl_core.gyms.telepathy.tasks import Category, categories
from userrl_core.records import ModelCall, Task
from userrl_core.served.verdict import Answer

_IS_A = re.compile(r"^(?:is|are|was|were) (?:it|this|that|he|she|they|you thinking of) (.+)$")
_STARTS = re.compile(r"\b(?:start|starts|begin|begins)\b.*?\bwith\b(?: the)?(?: letter)? ([a-z])$")
_GUESS = re.compile(r"^(?:it is|its|is it|i think it is|i think its|i guess|my guess is|my answer is|the answer is) ")


class RuleTelepathyUser:
    """Answers by table; deterministic, the generator is not used."""

    def __init__(self, task: Task, rng: random.Random) -> None:
        self.ledger: list[ModelCall] = []
        self._truth = task.payload
        self._names = {normalise(name) for name in (self._truth["title"], *self._truth["aliases"])}
        self._category = categories().get(self._truth["category"]) if self._truth["yes"] is not None else None

    async def reply(self, question: str) -> Answer:
        """Yes, No or Maybe to a question about the entity."""
        if self._category is not None:
            asked = _canonical(self._category.name).get(normalise(question))
            if asked is not None:
                return _say(asked in self._truth["yes"])
        if negated(question):
            return "Maybe"  # "does it not fly?" is answered both ways by people
        letter = _STARTS.search(" ".join(words(question)))
        if letter:
            return _say(normalise(self._truth["title"]).startswith(letter.group(1)))
        if self._category is not None:
            return self._by_table(self._category, question)
        return self._by_description(question)

    async def matches(self, guess: str) -> bool:
        """Whether a guess names the entity, by title or alias, whatever its case, article or lead-in."""
        return same_name(guess, self._names)

    def _by_table(self, category: Category, question: str) -> Answer:
        yes = set(self._truth["yes"])
        named = _IS_A.match(normalise(question))
        if named:
            verdict = self._by_name(category, normalise(named.group(1)))
            if verdict is not None:
                return verdict
        said = words(question)
        strengths = {key: _strength(ask.patterns, said) for key, ask in category.asks.items()}
        best = max(strengths.values())
        if best == 0:
            return "Maybe"
        verdicts = {key in yes for key, strength in strengths.items() if strength == best}
        return _say(verdicts.pop()) if len(verdicts) == 1 else "Maybe"

    def _by_name(self, category: Category, name: str) -> Answer | None:
        if name in self._names:
            return "Yes"
        nouns = _nouns()
        if name in nouns:
            return _say(nouns[name] == category.name)
        return "No" if name in _all_names() else None

    def _by_description(self, question: str) -> Answer:
        known = [*words(self._truth["description"]), *words(self._truth["opening"]), *words(self._truth["category"])]
        named = _IS_A.match(normalise(question))
        if named and normalise(named.group(1)) in self._names:
            return "Yes"
        asked = [stem(word) for word in content_words(question)]
        if asked and share([[start] for start in asked], known) == 1.0:
            return "Yes"
        noun = normalise(named.group(1)) if named else ""
        other = _nouns().get(noun)
        # Several released categories can hold one entity (a fruit is food), so only plainly foreign nouns are denied.
        if other is not None and not hit([stem(noun)], known):
            return "No" if not _overlaps(other, self._truth["category"]) else "Maybe"
        return "Maybe"


def same_name(guess: str, names: set[str]) -> bool:
    """Whether a guess is one of these normalised names, after a lead-in such as "is it a" is taken off."""
    plain = " ".join(words(guess))
    return any(normalise(text) in names for text in (plain, _GUESS.sub("", plain)))


def _strength(patterns: tuple[tuple[tuple[str, ...], ...], ...], said: list[str]) -> int:
    """The most groups of a pattern that all occur; 0 when no pattern occurs in full."""
    return max((len(pattern) for pattern in patterns if share(pattern, said) == 1.0), default=0)


def _say(truth: bool) -> Answer:
    return "Yes" if truth else "No"


@lru_cache(maxsize=64)
def _canonical(category: str) -> dict[str, str]:
    return {normalise(ask.question): key for key, ask in categories()[category].asks.items()}


@lru_cache(maxsize=1)
def _all_names() -> frozenset[str]:
    found: set[str] = set()
    for category in categories().values():
        for title, aliases in category.aliases.items():
            found.update(normalise(name) for name in (title, *aliases))
    return frozenset(found)


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

_ALSO = {
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
    """Whether a released category could be meant by one of our category nouns."""
    return any(word in fold(released) for word in _ALSO[ours])


@lru_cache(maxsize=1)
def _nouns() -> dict[str, str]:
    return {noun: category for category, nouns in _SYNONYMS.items() for noun in nouns}
