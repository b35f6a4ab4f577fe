"""The options of one aspect of a trip: correct, wrong and noise (UserBench section 3.2 and appendix B; ours throughout).

A correct option meets every preference. The best one has the lowest cost including the charges for the preferences. A wrong
option violates a named preference. A noise option looks right but is for another trip, unrealistic or incomplete.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import yaml

from userrl_core.errors import ConfigError
from userrl_core.gyms.travel.library import FOLDER, AspectTopic, LibraryPreference, library
from userrl_core.gyms.travel.world import ASPECTS

Option = dict[str, Any]
COSTS: dict[str, tuple[int, int]] = {
    "flight": (160, 700),
    "hotel": (240, 900),
    "apartment": (200, 800),
    "rental_car": (120, 500),
    "restaurant": (20, 90),
}
"""Lowest and highest base cost per aspect in US dollars. Below a third of the lowest or above five times the highest
is noise.
"""
CHARGES = (8, 60)
_COUNTS = re.compile(r"w(\d{1,2})n(\d{1,2})\Z")


@dataclass(frozen=True, slots=True)
class OptionCounts:
    """Number of options per type of an aspect. The defaults are UserBench's 1 best, 2 more correct, 10 wrong, 5 noise."""

    correct: int = 3
    wrong: int = 10
    noise: int = 5

    @classmethod
    def parse(cls, text: str) -> OptionCounts:
        """Parse ``w5n5``: five wrong and five noise options, in addition to the three correct. Raises ConfigError."""
        match = _COUNTS.match(text)
        if match is None:
            raise ConfigError(
                "task.bad_option", f"Write the numbers of options as w10n5 (10 wrong, 5 noise), not '{text}'."
            )
        return cls(wrong=int(match[1]), noise=int(match[2]))


@lru_cache(maxsize=1)
def names() -> dict[str, list[str]]:
    """Return names of cities, months, airlines, hotels and so on, by kind."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    by_kind: dict[str, list[str]] = yaml.load((FOLDER / "names.yaml").read_text(encoding="utf-8"), loader)
    return by_kind


def make_options(
    aspect: str,
    preferences: Sequence[LibraryPreference],
    arguments: dict[str, str],
    counts: OptionCounts,
    rng: random.Random,
) -> dict[str, Any]:
    """Return ``{options, best, correct, notes}`` for one aspect. notes: type and reason in words, by id."""
    maker = _Maker(aspect, preferences, arguments, rng)
    drafts: list[tuple[Option, str, str]] = [
        (option, "correct", "meets all") for option in maker.correct(counts.correct)
    ]
    drafts += [(*maker.wrong(), "") for _ in range(counts.wrong)]
    drafts += [(*maker.noise(number), "") for number in range(counts.noise)]
    rng.shuffle(drafts)
    options, correct, notes = [], [], {}
    for number, (option, kind, reason) in enumerate(drafts, 1):
        identity = f"{ASPECTS[aspect]}{number}"
        options.append({"id": identity, **option})
        label, _, detail = kind.partition(":")
        notes[identity] = {"type": label, "reason": detail or reason}
        if label == "correct":
            correct.append((maker.total_cost(option), identity))
    return {"options": options, "best": min(correct)[1], "correct": sorted(i for _, i in correct), "notes": notes}


class _Maker:
    """A generator of options for one aspect of one traveller."""

    def __init__(
        self, aspect: str, preferences: Sequence[LibraryPreference], arguments: dict[str, str], rng: random.Random
    ) -> None:
        self.aspect = aspect
        self.held = preferences
        self.arguments = arguments
        self.rng = rng
        self.categories = library()[aspect].categories
        self.names = names()
        goals = {preference.category: preference.value for preference in preferences}
        self.fields: list[tuple[AspectTopic, str | None, list[str]]] = []
        """The preferred value and all other values of each category."""
        for name, category in self.categories.items():
            goal = goals.get(name)
            values = (*(preference.value for preference in category.preferences), *category.others)
            self.fields.append((category, goal, [value for value in values if value != goal]))

    def correct(self, count: int) -> list[Option]:
        """Return options that meet all preferences, with different total costs."""
        by_cost: dict[int, Option] = {}
        while len(by_cost) < count:
            option = self.draw()
            by_cost.setdefault(self.total_cost(option), option)
        return list(by_cost.values())

    def wrong(self) -> tuple[Option, str]:
        """Return an option that violates one held preference, and sometimes a second."""
        violated = self.rng.sample(list(self.held), min(len(self.held), 1 + (self.rng.random() < 0.3)))
        option = self.draw(violated)
        return option, "wrong:" + ", ".join(preference.text for preference in violated)

    def noise(self, number: int) -> tuple[Option, str]:
        """Return an option for another trip, an unrealistic one, or an incomplete one, in turn."""
        option = self.draw()
        kind = ("unrelated", "unrealistic", "incomplete")[number % 3]
        if kind == "unrelated":
            field = self.rng.choice(sorted(key for key in self.arguments if key in ("city", "destination", "origin")))
            trip_values = set(self.arguments.values())
            option[field] = self.rng.choice([city for city in self.names["cities"] if city not in trip_values])
        elif kind == "unrealistic":
            high = COSTS[self.aspect][1]
            option["cost"] = self.rng.choice((0, 1, high * self.rng.randint(40, 90)))
        else:
            preference = self.rng.choice(list(self.held))
            attribute = self.categories[preference.category].attribute
            del option[self.rng.choice(("cost", attribute))]
        return option, f"noise:{kind}"

    def total_cost(self, option: Option) -> int:
        """Return the cost including the charges for the held preferences."""
        charged = [p.value for p in self.held if self.categories[p.category].rule == "service"]
        return int(option["cost"] + sum(option["service"][value] for value in charged))

    def draw(self, violated: Sequence[LibraryPreference] = ()) -> Option:
        """Return a random option that meets all held preferences except the violated ones."""
        rng = self.rng
        option: Option = {"name": rng.choice(self.names[self.aspect]), **self.arguments}
        if self.aspect == "flight":
            option["flight_number"] = f"{option['name'][0]}{option['name'][-1].upper()}{rng.randint(100, 999)}"
            option["hours"] = rng.randint(2, 13)
        elif self.aspect == "rental_car":
            option["seats"] = rng.choice((2, 4, 5, 7, 9))
        else:
            option["rating"] = rng.randint(31, 50) / 10
        low, high = COSTS[self.aspect]
        option["cost"] = rng.randint(low, high)
        violated_categories = {preference.category for preference in violated}
        for category, goal, other_values in self.fields:
            self._fill(option, category, goal, other_values, category.name in violated_categories)
        return option

    def _fill(self, option: Option, category: AspectTopic, goal: str | None, others: list[str], violated: bool) -> None:
        rng = self.rng
        met = goal is not None and not violated
        if category.rule == "value":
            option[category.attribute] = goal if met else rng.choice(others)
        elif category.rule == "includes":
            included = rng.sample(others, rng.randint(1, len(others) - 1))
            option[category.attribute] = sorted([*included, str(goal)] if met else included)
        else:
            services = option.setdefault(category.attribute, {})
            for value in others:
                services[value] = rng.randint(*CHARGES) if rng.random() < 0.6 else None
            if goal is not None:
                services[goal] = None if violated else rng.randint(*CHARGES)
