"""Populations of simulated users: each user is a draw of traits, and each task meets one user of its population.

The traits come from the task alone. All trajectories of a group, and all compared policies, meet the same user. Rule users
act on the traits. Served users get them as an instruction for each reply, and the log says whether the reply shows it.

The traits follow the kinds of users in arXiv 2509.23124, with hesitation, memory, volunteering and slips added (ours).
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, ValidationError, model_validator

from userrl_core.errors import ConfigError
from userrl_core.seeding import content_hash, derive_seed
from userrl_core.settings import Settings
from userrl_core.suggest import nearest

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class OneOf(Settings):
    """A trait that has one of several values, all equally likely."""

    of: tuple[Annotated[float, Field(ge=0.0)], ...] = Field(min_length=1)
    """The values."""


Range = (
    Annotated[float, Field(ge=0.0)] | tuple[Annotated[float, Field(ge=0.0)], Annotated[float, Field(ge=0.0)]] | OneOf
)
"""A number, the ends of a uniform range, or one of several values."""

Move = Literal["tells", "forgets", "hesitates", "tangent", "unavailable", "incomplete", "slips"]
"""The user's reaction to one question."""


class Population(Settings):
    """The ranges that the traits of a population's users are drawn from.

    All traits but patience are chances between 0 and 1.
    """

    hesitation: Range = 0.0
    """Chance that the user hesitates and has to be asked again."""

    memory: Range = 0.0
    """Chance that the user remembers a fact only when asked for the second time."""

    volunteering: Range = 0.0
    """Chance that the user tells one more fact with the requested one."""

    patience: Range = 0.0
    """Number of agent turns after which the user leaves, rounded (tau: messages to the user). 0: the user stays."""

    slips: Range = 0.0
    """Chance that the user first tells a fact wrongly. The user corrects it when asked again."""

    unavailable: Range = 0.0
    """Chance that the user asks for something that is not on offer instead of an answer."""

    tangents: Range = 0.0
    """Chance that the user talks about something else instead of an answer."""

    incomplete: Range = 0.0
    """Chance that the user breaks off the answer, which then tells nothing."""

    users: PositiveInt | None = None
    """Number of different users. null: every task has its own user."""

    draw: int = 0
    """Another number gives other users of the same ranges."""

    @model_validator(mode="after")
    def _possible(self) -> Population:
        for name in TRAITS:
            low, high = self.ends(name)
            if low > high:
                raise ValueError(f"{name} ranges from {low:g} to {high:g}; write the smaller end first")
            if name != "patience" and high > 1:
                raise ValueError(f"{name} is a chance between 0 and 1, not {high:g}")
        return self

    def ends(self, trait: str) -> tuple[float, float]:
        """Return the smallest and the largest possible value of a trait."""
        value: Range = getattr(self, trait)
        values = value.of if isinstance(value, OneOf) else value if isinstance(value, tuple) else (value,)
        return (values[0], values[1]) if isinstance(value, tuple) else (min(values), max(values))

    def has(self, trait: str) -> bool:
        """Return whether a user of the population can have the trait."""
        return self.ends(trait)[1] > 0


TRAITS = ("hesitation", "memory", "volunteering", "patience", "slips", "unavailable", "tangents", "incomplete")
"""The traits, in the order of drawing."""

POPULATIONS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "vague": {"hesitation": 0.5},
    "both": {"hesitation": {"of": [0.0, 0.5]}},
    "wide": {"hesitation": [0.0, 0.6], "memory": {"of": [0.0, 1.0]}, "volunteering": {"of": [0.0, 1.0]}},
    "shifted": {"hesitation": [0.6, 0.85], "patience": 10},
    "slips": {"slips": 0.2},
    "rough": {"tangents": [0.0, 0.3], "unavailable": [0.0, 0.3], "incomplete": [0.0, 0.3]},
}
"""The named populations. plain, vague and both are the manners of wish's rule user as points of the traits."""


def population(value: str | Mapping[str, Any] | Population) -> Population:
    """Return a population by name, or from its ranges. ``like`` names a population whose ranges are changed.

    Raises ConfigError for an unknown name, an unknown trait or an impossible range.
    """
    if isinstance(value, Population):
        return value
    ranges = {"like": value} if isinstance(value, str) else dict(value)
    name = ranges.pop("like", "plain")
    if not isinstance(name, str) or name not in POPULATIONS:
        raise ConfigError(
            "user.bad_option",
            f"There is no population '{name}'{nearest(str(name), POPULATIONS)}. There are {', '.join(POPULATIONS)}, "
            "or write the ranges.",
        )
    if unknown := next((key for key in ranges if key not in Population.model_fields), None):
        names = [*Population.model_fields, "like"]
        raise ConfigError(
            "user.bad_option",
            f"A population has no '{unknown}'{nearest(str(unknown), names)}. It has {', '.join(names)}.",
        )
    try:
        return Population(**{**POPULATIONS[name], **ranges})
    except ValidationError as error:
        first = max(error.errors(), key=lambda problem: len(problem["loc"]))  # of the form that the value fits most
        key = str(first["loc"][0]) + ": " if first["loc"] else ""
        raise ConfigError(
            "user.bad_option", f"Not a population: {key}{first['msg'].removeprefix('Value error, ')}."
        ) from None


class Persona:
    """The user of one conversation: the drawn traits and the moves so far.

    number: the user's number in the population, None if every task has its own.
    """

    def __init__(self, gym: str, task_id: str, drawn_from: str | Mapping[str, Any] | Population) -> None:
        source = population(drawn_from)
        key = content_hash(source.model_dump(mode="json"))
        self.number = None if source.users is None else derive_seed("population-task", key, gym, task_id) % source.users
        who: tuple[object, ...] = (gym, task_id) if self.number is None else (self.number,)
        traits_rng = random.Random(derive_seed("population-user", key, *who))
        self.traits = {name: _drawn(getattr(source, name), traits_rng) for name in TRAITS}
        self._rng = random.Random(derive_seed("population-moves", key, gym, task_id))
        self._asked: Counter[str] = Counter()
        self._slipped: set[str] = set()
        self.due: Move | None = None
        """The move of the current turn."""
        self._shown: bool | None = None
        self._reported = False

    def move(self, fact: str) -> Move:
        """Draw the reaction to a question about a fact. All traits are drawn, so that one does not shift another."""
        self._asked[fact] += 1
        chance = {name: self._rng.random() for name in TRAITS}
        hit = {name for name in TRAITS if name != "patience" and chance[name] < self.traits[name]}
        self.due = "tells"
        if "memory" in hit and self._asked[fact] == 1:
            self.due = "forgets"
        elif instead := next((move for trait, move in _INSTEAD.items() if trait in hit), None):
            self.due = instead
        elif "slips" in hit and fact not in self._slipped:
            self._slipped.add(fact)
            self.due = "slips"
        return self.due

    def volunteers(self) -> bool:
        """Draw whether the user tells one more fact."""
        return self._rng.random() < self.traits["volunteering"]

    def pick(self, values: list[str]) -> str:
        """Draw one of several values."""
        return self._rng.choice(values)

    def leaves(self, turns: int) -> bool:
        """Return whether the user has lost patience after this number of agent turns."""
        patience = round(self.traits["patience"])
        return 0 < patience < turns

    def said(self, text: str) -> None:
        """Note whether a served user's reply shows the move that it was told to make."""
        if self.due is not None and self.due in _SHOWN:
            self._shown = _SHOWN[self.due].search(text) is not None

    def report(self) -> dict[str, Any]:
        """Return the user's data about a turn, for its log: the traits once, the move, and whether a reply shows it."""
        noted: dict[str, Any] = {}
        if not self._reported:
            noted = {"traits": {name: round(value, 4) for name, value in self.traits.items() if value}}
            if self.number is not None:
                noted["number"] = self.number
        if self.due is not None:
            noted["move"] = self.due
        if self._shown is not None:
            noted["shown"] = self._shown
        self._reported, self.due, self._shown = True, None, None
        return noted


_INSTEAD: Mapping[str, Move] = {
    "hesitation": "hesitates",
    "tangents": "tangent",
    "unavailable": "unavailable",
    "incomplete": "incomplete",
}
"""Moves that take the place of an answer, by their trait."""

ASIDES: Mapping[str, tuple[str, str]] = {
    "hesitates": ("hm", "Hm, let me think about that."),
    "forgets": ("um", "I do not remember that right now."),
    "tangent": ("so", "By the way, it has been raining here for days."),
    "unavailable": ("cape", "Could you get me a helicopter instead?"),
    "incomplete": ("the", "Well, I would like the"),
}
"""The words of each move that tells nothing: one word, and a sentence."""

DIRECTIONS: Mapping[str, str] = {
    "hesitates": "In this reply you hesitate: do not tell what was asked for yet, and say that you are not sure.",
    "forgets": "In this reply you say that you do not remember what was asked for, and do not tell it.",
    "tangent": "In this reply you do not answer. Begin with 'By the way' and talk about something else.",
    "unavailable": "In this reply you do not answer. Ask whether you can have a helicopter, which is not on offer.",
    "incomplete": "In this reply you break off before you have told what was asked for. End it with '...'.",
    "slips": "In this reply you tell one detail wrongly. Correct it if you are asked again.",
    "volunteers": "In this reply you also tell one more thing that was not asked for.",
}
"""The instruction to a served user for each move."""

_SHOWN: Mapping[str, re.Pattern[str]] = {
    "hesitates": re.compile(
        r"\b(not sure|hm+|let me think|not quite|haven'?t decided|maybe|i guess|hard to say)\b", re.I
    ),
    "forgets": re.compile(r"\b(don'?t|do not|can'?t|cannot) (remember|recall)\b|\bforg[eo]t", re.I),
    "tangent": re.compile(r"\bby the way\b", re.I),
    "unavailable": re.compile(r"\bhelicopter\b", re.I),
    "incomplete": re.compile(r"(\.\.\.|…|[a-z,])\s*$"),
}
"""Words that show a move. A slip cannot be seen without the truth."""


def direction(move: Move | None) -> str:
    """Return the instruction to a served user, with a leading blank line; "" for a plain answer."""
    return f"\n\n{DIRECTIONS[move]}" if move is not None and move in DIRECTIONS else ""


def _drawn(value: Range, rng: random.Random) -> float:
    quantile = rng.random()
    if isinstance(value, OneOf):
        return value.of[int(quantile * len(value.of))]
    if isinstance(value, tuple):
        return value[0] + quantile * (value[1] - value[0])
    return value
