"""The parts of a travel task, and the interface of its user (UserBench section 3).

A task has aspects (flight, hotel ...). An aspect has search arguments, the preferences that the user holds, and options. Some
options meet all preferences. A preference is checked on an option by one of three rules:

- ``value``: ``option[attribute] == value``
- ``includes``: ``value in option[attribute]``
- ``service``: ``option["service"][value]`` is a price, which is added to the option's cost
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from userrl_core.errors import TaskError

ASPECTS: dict[str, str] = {"flight": "F", "hotel": "H", "apartment": "A", "rental_car": "C", "restaurant": "R"}
"""First letter of the option ids, by aspect."""
ASPECT_OF_LETTER = {letter: aspect for aspect, letter in ASPECTS.items()}

UtteranceKind = Literal["held", "not_held", "too_vague", "other"]
"""The request in a message: a preference the user holds, one it does not hold, a too general question, or other.

Kinds have names because UserRL (other, held, not held, too vague) and UserBench (held, not held, too vague, other) number
them differently.
"""
SearchKind = Literal["match", "wrong", "unrelated"]


@dataclass(frozen=True, slots=True)
class Preference:
    """A preference of the user about an aspect. implicit: a phrase of the user that implies it without stating it."""

    id: str
    aspect: str
    category: str
    preference: str
    implicit: str
    rule: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Aspect:
    """One part of the trip. options: in the database's format (with ``id``). correct: ids of the options that meet all."""

    name: str
    arguments: Mapping[str, str]
    preferences: tuple[Preference, ...]
    options: Sequence[Mapping[str, Any]]
    best: str
    correct: frozenset[str]


@dataclass(frozen=True, slots=True)
class World:
    """A user's complete knowledge of a task."""

    aspects: Mapping[str, Aspect]
    preferences: Mapping[str, Preference]
    scenario: str = ""

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> World:
        """Read a task's payload. Raises TaskError for a task imported without its options."""
        if "unplayable" in payload:
            raise TaskError("task.not_playable", f"This travel task cannot be played: {payload['unplayable']}.")
        aspects: dict[str, Aspect] = {}
        preferences: dict[str, Preference] = {}
        for name, data in payload["aspects"].items():
            aspect_preferences = tuple(
                Preference(p["id"], name, p["category"], p["preference"], p["implicit"], p.get("rule", {}))
                for p in data["preferences"]
            )
            preferences.update((p.id, p) for p in aspect_preferences)
            aspects[name] = Aspect(
                name, data["arguments"], aspect_preferences, data["options"], data["best"], frozenset(data["correct"])
            )
        return cls(aspects, preferences, str(payload.get("opening", "")))


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """One message of the conversation so far. speaker: ``agent``, ``user`` or ``database``."""

    speaker: str
    text: str


@dataclass(frozen=True, slots=True)
class MessageReading:
    """The user's reading of a message. preference_id: the requested preference, for kind ``held``."""

    kind: UtteranceKind
    preference_id: str | None = None


@dataclass(frozen=True, slots=True)
class SearchJudgement:
    """The verdict on a query. aspect: the name of the aspect with these arguments, for ``match``."""

    kind: SearchKind
    aspect: str | None = None


@dataclass(slots=True)
class TravelProgress:
    """The state of an episode. The auxiliary metrics of UserBench appendix C count its entries."""

    active: list[str] = field(default_factory=list)
    """Ids of preferences that the agent asked for."""
    passive: list[str] = field(default_factory=list)
    """Ids of preferences that the user volunteered."""
    searched: set[str] = field(default_factory=set)
    """Aspects whose options were shown."""
    chosen: dict[str, list[str]] = field(default_factory=dict)
    """Ids answered per aspect, in order."""


class TravelUser(Protocol):
    """TravelGym's user. Its methods may raise UserError or JudgeError, which make the turn's reward null."""

    async def judge(
        self, utterance: str, candidates: Sequence[Preference], history: Sequence[HistoryLine]
    ) -> MessageReading:
        """Classify a message into one of the four kinds. Only a preference among the candidates can be held."""

    async def match(self, query: str, history: Sequence[HistoryLine]) -> SearchJudgement:
        """Judge whether the query has exactly the arguments of one aspect."""

    async def reveal(
        self, utterance: str, preference: Preference, history: Sequence[HistoryLine], *, asked: bool
    ) -> str:
        """Imply a preference without stating it. asked: whether the message asked for it; otherwise the user volunteers it."""

    async def chat(self, utterance: str, history: Sequence[HistoryLine]) -> str:
        """Reply without implying any preference."""


def meets(option: Mapping[str, Any], rule: Mapping[str, str]) -> bool:
    """Return whether an option meets a preference's rule. A missing attribute never does."""
    kind, value = rule["kind"], rule["value"]
    attribute = option.get(rule["attribute"])
    if attribute is None:
        return False
    if kind == "value":
        return bool(attribute == value)
    if kind == "includes":
        return value in attribute
    return attribute.get(value) is not None


def total_cost(option: Mapping[str, Any], preferences: Sequence[Preference]) -> float | None:
    """Return the option's cost with the charges for the preferences (UserBench appendix B); None without a price."""
    cost = option.get("cost")
    if cost is None:
        return None
    services = option.get("service") or {}
    charges = (services.get(p.rule["value"]) for p in preferences if p.rule.get("kind") == "service")
    return float(cost) + sum(float(charge) for charge in charges if charge is not None)
