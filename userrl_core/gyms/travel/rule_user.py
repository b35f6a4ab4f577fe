"""The offline traveller of TravelGym: reads questions by the words they use (UserBench appendix B, without a model)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date

from userrl_core.gyms.stemming import content_words, hit, stem, words
from userrl_core.gyms.travel.library import library
from userrl_core.gyms.travel.options import names
from userrl_core.gyms.travel.query import NOUNS, aspects_named, match_query
from userrl_core.gyms.travel.tiny import CATEGORIES
from userrl_core.gyms.travel.world import Aspect, Judgement, Preference, Said, SearchJudgement, World
from userrl_core.records import Task

MOST_CATEGORIES = 3
"""A message that names more categories of one aspect than this asks for nothing in particular."""
_ASKING = (
    "do",
    "does",
    "would",
    "what",
    "which",
    "how",
    "any",
    "prefer",
    "should",
    "tell",
    "is",
    "are",
    "could",
    "can",
)
_GENERAL = ("prefer", "preference", "preferences", "requirements", "need", "needs", "want", "wishes", "like", "looking")
_SMALL_TALK = "Thank you. Please go on."


class RuleTravelUser:
    """Judges a message by the aspect and categories it names, a search by its arguments; speaks in the task's own phrases.

    Deterministic: the same words always get the same reply.
    """

    def __init__(self, task: Task, rng: random.Random) -> None:
        """task: its preferences and arguments are what the user knows."""
        self._world = World.of(task.payload)
        self._tiny = task.tier == "tiny"
        self._arguments = {name: aspect.arguments for name, aspect in self._world.aspects.items()}

    async def judge(self, utterance: str, waiting: Sequence[Preference], history: Sequence[Said]) -> Judgement:
        """Held or not held by the category named; too vague when a wish is asked for without a category, or with many."""
        said = words(utterance)
        if self._tiny:
            return _judge_tiny(said, waiting)
        if not ("?" in utterance or (said[:1] and said[0] in _ASKING) or hit(("tell$", "prefer"), said)):
            return Judgement("other")
        named = aspects_named(utterance)
        about = [aspect for aspect in named if aspect in self._world.aspects] or list(self._world.aspects)
        foreign = bool(named) and not any(aspect in self._world.aspects for aspect in named)
        nouns = {noun for aspect in NOUNS for noun in NOUNS[aspect]}
        rest = [word for word in dict.fromkeys(said) if word not in nouns]
        strength = {
            (aspect, category): count
            for aspect in (named if foreign else about)
            for category, ask in self._lexicon(aspect).items()
            if (count := sum(hit((one,), rest) for one in ask))
        }
        if not strength:
            return Judgement("too_vague" if any(word in _GENERAL for word in said) else "other")
        if max(sum(a == aspect for a, _ in strength) for aspect, _ in strength) > MOST_CATEGORIES:
            return Judgement("too_vague")
        held = [p for p in waiting if (p.aspect, p.category) in strength]
        if not held:
            return Judgement("not_held")
        # The category most of whose words were used; of several preferences in one the first.
        best = max(held, key=lambda p: strength[p.aspect, p.category])
        return Judgement("held", best.id)

    async def match(self, query: str, history: Sequence[Said]) -> SearchJudgement:
        """Exactly one aspect with exactly its places and dates."""
        return match_query(query, self._arguments)

    async def reveal(self, utterance: str, preference: Preference, history: Sequence[Said], *, asked: bool) -> str:
        """The preference in the task's own indirect words."""
        return preference.implicit

    async def chat(self, utterance: str, history: Sequence[Said]) -> str:
        """A neutral word."""
        return "any" if self._tiny else _SMALL_TALK

    def _lexicon(self, aspect: str) -> dict[str, tuple[str, ...]]:
        """Beginnings of words by category: the library's, and for published preferences those of their own words."""
        known = {name: category.ask for name, category in library()[aspect].categories.items()}
        if aspect in self._world.aspects:
            for p in self._world.aspects[aspect].preferences:
                if p.category not in known:
                    own = {stem(word) for word in content_words(f"{p.category} {p.preference}")}
                    known[p.category] = tuple(sorted(own - {"prefer"}))
        return known


def _judge_tiny(said: Sequence[str], waiting: Sequence[Preference]) -> Judgement:
    named = {word for word in said if word in CATEGORIES}
    if len(named) != 1:
        return Judgement("too_vague" if named else "other")
    (category,) = named
    for preference in waiting:
        if preference.category == category:
            return Judgement("held", preference.id)
    return Judgement("not_held")


def question_for(preference: Preference, tier: str) -> str:
    """A question that this user takes as asking for the preference."""
    if tier == "tiny":
        return f"{preference.category}?"
    part = library()[preference.aspect]
    known = part.categories.get(preference.category)
    label = known.label if known is not None else f"{preference.category}: {preference.preference}"
    return f"For the {part.noun}, what would you like regarding the {label}?"


def query_for(aspect: Aspect, tier: str) -> str:
    """A query that this user takes as a search for the aspect."""
    if tier == "tiny":
        return " ".join(p.preference for p in aspect.preferences)
    needed = {key: _spoken(value) if "date" in key else value for key, value in aspect.arguments.items()}
    noun = library()[aspect.name].noun
    if "origin" in needed:
        return f"{noun} from {needed['origin']} to {needed['destination']} on {needed['date']}"
    when = f"on {needed['date']}" if "date" in needed else f"from {needed['date_start']} to {needed['date_end']}"
    return f"{noun} in {needed['city']} {when}"


def _spoken(day: str) -> str:
    try:
        when = date.fromisoformat(day)
    except ValueError:
        return day
    return f"{names()['months'][when.month - 1]} {when.day}"
