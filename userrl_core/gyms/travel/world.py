"""What a travel task holds, and what its user must be able to do (UserBench section 3).

A task has aspects (flight, hotel ...); an aspect has search arguments, preferences that the user holds, and options of which
some meet all of them. A preference is checked on an option by one of three rules:

- ``value``: ``option[attribute] == value``
- ``includes``: ``value in option[attribute]``
- ``service``: ``option["service"][value]`` is a price, which is then charged on top of the option's cost
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from userrl_core.errors import TaskError

ASPECTS: dict[str, str] = {"flight": "F", "hotel": "H", "apartment": "A", "rental_car": "C", "restaurant": "R"}
"""Aspect and the letter its option ids begin with."""
ASPECT_OF_LETTER = {letter: aspect for aspect, letter in ASPECTS.items()}

UtteranceKind = Literal["held", "not_held", "too_vague", "other"]
"""What a message to the user asks for: a preference the user holds, one it does not hold, something too general, else.

Named, since UserRL (other, held, not held, too vague) and UserBench (held, not held, too vague, other) number them apart.
"""
SearchKind = Literal["match", "wrong", "unrelated"]


@dataclass(frozen=True, slots=True)
class Preference:
    """Something the user wants of an aspect. implicit: how the user says it without stating it."""

    id: str
    aspect: str
    category: str
    preference: str
    implicit: str
    rule: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Aspect:
    """One thing to be booked. options: as the database shows them (with ``id``); correct: every id that meets all."""

    name: str
    arguments: Mapping[str, str]
    preferences: tuple[Preference, ...]
    options: Sequence[Mapping[str, Any]]
    best: str
    correct: frozenset[str]


@dataclass(frozen=True, slots=True)
class World:
    """Everything a task's user knows."""

    aspects: Mapping[str, Aspect]
    preferences: Mapping[str, Preference]
    scenario: str = ""

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> World:
        """The world in a task's payload. Raises TaskError for a task that was imported without its options."""
        if "unplayable" in payload:
            raise TaskError(f"This travel task cannot be played: {payload['unplayable']}.")
        aspects: dict[str, Aspect] = {}
        preferences: dict[str, Preference] = {}
        for name, data in payload["aspects"].items():
            held = tuple(
                Preference(p["id"], name, p["category"], p["preference"], p["implicit"], p.get("rule", {}))
                for p in data["preferences"]
            )
            preferences.update((p.id, p) for p in held)
            aspects[name] = Aspect(
                name, data["arguments"], held, data["options"], data["best"], frozenset(data["correct"])
            )
        return cls(aspects, preferences, str(payload.get("opening", "")))


@dataclass(frozen=True, slots=True)
class Said:
    """One line of the conversation so far. who: ``agent``, ``user`` or ``database``."""

    who: str
    text: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the user took a message for. preference_id: which preference, when the kind is ``held``."""

    kind: UtteranceKind
    preference_id: str | None = None


@dataclass(frozen=True, slots=True)
class SearchJudgement:
    """Whether a query's arguments are those of an aspect. aspect: which one, for ``match``."""

    kind: SearchKind
    aspect: str | None = None


@dataclass(slots=True)
class Progress:
    """How an attempt stands; the auxiliary metrics of UserBench appendix C are counts of this."""

    active: list[str] = field(default_factory=list)
    """Ids of preferences that were asked for."""
    passive: list[str] = field(default_factory=list)
    """Ids of preferences that the user volunteered."""
    searched: set[str] = field(default_factory=set)
    """Aspects whose options were shown."""
    chosen: dict[str, list[str]] = field(default_factory=dict)
    """Ids answered, per aspect of the task, in order."""


class TravelUser(Protocol):
    """Who answers in TravelGym. May raise UserError or JudgeError, which make the turn's reward null."""

    async def judge(self, utterance: str, waiting: Sequence[Preference], history: Sequence[Said]) -> Judgement:
        """Which of the four kinds the message is; only the preferences in ``waiting`` can be held."""
        ...

    async def match(self, query: str, history: Sequence[Said]) -> SearchJudgement:
        """Whether the query's arguments are exactly those of one aspect."""
        ...

    async def reveal(self, utterance: str, preference: Preference, history: Sequence[Said], *, asked: bool) -> str:
        """Let a preference show without stating it; asked: the message asked for it, else the user brings it up."""
        ...

    async def chat(self, utterance: str, history: Sequence[Said]) -> str:
        """Go on talking without letting any preference show."""
        ...


def meets(option: Mapping[str, Any], rule: Mapping[str, str]) -> bool:
    """Whether an option meets a preference's rule; a missing attribute never does."""
    kind, attribute, value = rule["kind"], rule["attribute"], rule["value"]
    found = option.get(attribute)
    if found is None:
        return False
    if kind == "value":
        return bool(found == value)
    if kind == "includes":
        return value in found
    return found.get(value) is not None


def total(option: Mapping[str, Any], preferences: Sequence[Preference]) -> float | None:
    """What the option costs with the charges that the preferences trigger (UserBench appendix B); None without a price."""
    cost = option.get("cost")
    if cost is None:
        return None
    services = option.get("service") or {}
    extra = (services.get(p.rule["value"]) for p in preferences if p.rule.get("kind") == "service")
    return float(cost) + sum(float(charge) for charge in extra if charge is not None)
