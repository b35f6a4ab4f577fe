"""TravelGym's rule user, which judges messages by their words (UserBench appendix B, without a model).

It judges a question without its context. So an agent that reads nothing and asks about one category after another elicits most
of the preferences.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from userrl_core.errors import ConfigError
from userrl_core.gyms.population import ASIDES, Persona
from userrl_core.gyms.stemming import matches, stems, words
from userrl_core.gyms.travel.library import library
from userrl_core.gyms.travel.options import names
from userrl_core.gyms.travel.query import NOUNS, aspects_named, match_query
from userrl_core.gyms.travel.tiny import CATEGORIES
from userrl_core.gyms.travel.world import Aspect, HistoryLine, MessageReading, Preference, SearchJudgement, World
from userrl_core.records import Task

MAX_CATEGORIES = 3
"""A message that names more categories of one aspect than this is too vague."""
MAX_CATEGORIES_IN_ALL = 4
"""A message that names more categories over all aspects than this is too vague. Our categories' labels, without an aspect, name
up to four.
"""
_QUESTION_STARTS = (
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
_GENERAL_WORDS = (
    "prefer",
    "preference",
    "preferences",
    "requirements",
    "need",
    "needs",
    "want",
    "wishes",
    "like",
    "looking",
)
_SMALL_TALK = "Thank you. Please go on."


class RuleTravelUser:
    """A user that judges a message by its aspect and categories and a search by its arguments, and replies with the
    task's phrases.

    Deterministic: the same message always gets the same reply. A user drawn from a population is deterministic too,
    but may react to a repeated question in another way.
    """

    def __init__(self, task: Task, rng: random.Random, *, population: str | Mapping[str, Any] | None = None) -> None:
        """Read the task's preferences and arguments. Raises ConfigError for a population whose users slip."""
        self.persona = None if population is None else TravelPersona(task.id, population)
        self._world = World.of(task.payload)
        self._tiny = task.tier == "tiny"
        self._arguments = {name: aspect.arguments for name, aspect in self._world.aspects.items()}

    async def judge(
        self, utterance: str, candidates: Sequence[Preference], history: Sequence[HistoryLine]
    ) -> MessageReading:
        """Return held or not held by the named category; too vague for a question without a category or with many.

        A drawn user who does not answer a question reads it as small talk.
        """
        reading = self._read(utterance, candidates)
        return reading if self.persona is None else self.persona.reacts(reading)

    def _read(self, utterance: str, candidates: Sequence[Preference]) -> MessageReading:
        message_words = words(utterance)
        if self._tiny:
            return _judge_tiny(message_words, candidates)
        if not (
            "?" in utterance
            or (message_words[:1] and message_words[0] in _QUESTION_STARTS)
            or matches(("tell$", "prefer"), message_words)
        ):
            return MessageReading("other")
        named_aspects = aspects_named(utterance)
        aspects = [aspect for aspect in named_aspects if aspect in self._world.aspects]
        if not aspects:
            aspects = named_aspects or list(self._world.aspects)
        nouns = {noun for aspect in NOUNS for noun in NOUNS[aspect]}
        other_words = [token for token in dict.fromkeys(message_words) if token not in nouns]
        strength = {
            (aspect, category): count
            for aspect in aspects
            for category, category_stems in self._stems_by_category(aspect).items()
            if (count := sum(matches((stem,), other_words) for stem in category_stems))
        }
        if not strength:
            return MessageReading("too_vague" if any(token in _GENERAL_WORDS for token in message_words) else "other")
        of_one_aspect = max(sum(a == aspect for a, _ in strength) for aspect, _ in strength)
        if of_one_aspect > MAX_CATEGORIES or len(strength) > MAX_CATEGORIES_IN_ALL:
            return MessageReading("too_vague")
        held_preferences = [p for p in candidates if (p.aspect, p.category) in strength]
        if not held_preferences:
            return MessageReading("not_held")
        # The category with the most matching stems; its first preference if there are several.
        best = max(held_preferences, key=lambda p: strength[p.aspect, p.category])
        return MessageReading("held", best.id)

    async def match(self, query: str, history: Sequence[HistoryLine]) -> SearchJudgement:
        """Accept exactly one aspect with exactly its places and dates."""
        return match_query(query, self._arguments)

    async def reveal(
        self, utterance: str, preference: Preference, history: Sequence[HistoryLine], *, asked: bool
    ) -> str:
        """Return the task's implicit phrase for the preference."""
        return preference.implicit

    async def chat(self, utterance: str, history: Sequence[HistoryLine]) -> str:
        """Return a neutral reply."""
        if self.persona is not None and (aside := ASIDES.get(str(self.persona.due))):
            return aside[0] if self._tiny else aside[1]
        return "any" if self._tiny else _SMALL_TALK

    def _stems_by_category(self, aspect: str) -> dict[str, tuple[str, ...]]:
        """Return stems of questions by category: the library's, or a published preference's own words."""
        by_category = {name: category.ask for name, category in library()[aspect].categories.items()}
        if aspect in self._world.aspects:
            for p in self._world.aspects[aspect].preferences:
                if p.category not in by_category:
                    preference_stems = set(stems(f"{p.category} {p.preference}")) - {"prefer"}
                    by_category[p.category] = tuple(sorted(preference_stems))
        return by_category


class TravelPersona(Persona):
    """A drawn traveller. Its slips are refused: a preference has no wrong value that the task could correct."""

    def __init__(self, task_id: str, population: str | Mapping[str, Any]) -> None:
        super().__init__("travel", task_id, population)
        if self.traits["slips"]:
            raise ConfigError("user.bad_option", "TravelGym's users do not slip. Omit slips from the population.")

    def reacts(self, reading: MessageReading) -> MessageReading:
        """Return the reading of a message as it is, or as small talk if the user does not answer."""
        if reading.kind != "held" or self.move(str(reading.preference_id)) == "tells":
            return reading
        return MessageReading("other")


def _judge_tiny(message_words: Sequence[str], candidates: Sequence[Preference]) -> MessageReading:
    named_categories = {token for token in message_words if token in CATEGORIES}
    if len(named_categories) != 1:
        return MessageReading("too_vague" if named_categories else "other")
    (category,) = named_categories
    for preference in candidates:
        if preference.category == category:
            return MessageReading("held", preference.id)
    return MessageReading("not_held")


def question_for(preference: Preference, tier: str) -> str:
    """Return a question that the rule user recognises as asking for the preference."""
    if tier == "tiny":
        return f"{preference.category}?"
    aspect = library()[preference.aspect]
    category = aspect.categories.get(preference.category)
    label = category.label if category is not None else f"{preference.category}: {preference.preference}"
    return f"For the {aspect.noun}, what would you like regarding the {label}?"


def query_for(aspect: Aspect, tier: str) -> str:
    """Return a query that the rule user recognises as a search for the aspect."""
    if tier == "tiny":
        return " ".join(p.preference for p in aspect.preferences)
    arguments = {key: _in_words(value) if "date" in key else value for key, value in aspect.arguments.items()}
    noun = library()[aspect.name].noun
    if "origin" in arguments:
        return f"{noun} from {arguments['origin']} to {arguments['destination']} on {arguments['date']}"
    if "date" in arguments:
        return f"{noun} in {arguments['city']} on {arguments['date']}"
    return f"{noun} in {arguments['city']} from {arguments['date_start']} to {arguments['date_end']}"


def _in_words(day: str) -> str:
    try:
        parsed = date.fromisoformat(day)
    except ValueError:
        return day
    return f"{names()['months'][parsed.month - 1]} {parsed.day}"
