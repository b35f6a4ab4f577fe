"""The options of one aspect of a trip: correct, wrong and noise (UserBench section 3.2 and appendix B; ours throughout).

A correct option meets every preference; the best one costs least with the charges the preferences trigger. A wrong option
breaks a named preference. A noise option looks right but is for another trip, or impossible, or lacks what is needed to
judge it.
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
from userrl_core.gyms.travel.library import FOLDER, Category, Wish, library
from userrl_core.gyms.travel.world import ASPECTS

Option = dict[str, Any]
COSTS: dict[str, tuple[int, int]] = {
    "flight": (160, 700),
    "hotel": (240, 900),
    "apartment": (200, 800),
    "rental_car": (120, 500),
    "restaurant": (20, 90),
}
"""Least and greatest base cost per aspect in US dollars; outside a third of the least or five times the greatest is noise."""
CHARGES = (8, 60)
_COUNTS = re.compile(r"w(\d{1,2})n(\d{1,2})\Z")


@dataclass(frozen=True, slots=True)
class OptionCounts:
    """How many options of each type an aspect has; the defaults are UserBench's 1 best, 2 more correct, 10 wrong, 5 noise."""

    correct: int = 3
    wrong: int = 10
    noise: int = 5

    @classmethod
    def parse(cls, text: str) -> OptionCounts:
        """``w5n5`` is five wrong and five noise options beside the three correct. Raises ConfigError."""
        match = _COUNTS.match(text)
        if match is None:
            raise ConfigError(f"Options are counted as in 'w10n5' (wrong, noise), not '{text}'.")
        return cls(wrong=int(match[1]), noise=int(match[2]))


@lru_cache(maxsize=1)
def names() -> dict[str, list[str]]:
    """Cities, months and the names of airlines, houses, makes."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found: dict[str, list[str]] = yaml.load((FOLDER / "names.yaml").read_text(encoding="utf-8"), loader)
    return found


def make_options(
    aspect: str, held: Sequence[Wish], arguments: dict[str, str], counts: OptionCounts, rng: random.Random
) -> dict[str, Any]:
    """``{options, best, correct, notes}`` for one aspect; notes give every id's type and, in words, the reason."""
    maker = _Maker(aspect, held, arguments, rng)
    made: list[tuple[Option, str, str]] = [(option, "correct", "meets all") for option in maker.correct(counts.correct)]
    made += [(*maker.wrong(), "") for _ in range(counts.wrong)]
    made += [(*maker.noise(number), "") for number in range(counts.noise)]
    rng.shuffle(made)
    options, correct, notes = [], [], {}
    for number, (option, kind, reason) in enumerate(made, 1):
        identity = f"{ASPECTS[aspect]}{number}"
        options.append({"id": identity, **option})
        label, _, why = kind.partition(":")
        notes[identity] = {"type": label, "reason": why or reason}
        if label == "correct":
            correct.append((maker.total(option), identity))
    return {"options": options, "best": min(correct)[1], "correct": sorted(i for _, i in correct), "notes": notes}


class _Maker:
    """Draws options for one aspect of one traveller."""

    def __init__(self, aspect: str, held: Sequence[Wish], arguments: dict[str, str], rng: random.Random) -> None:
        self.aspect = aspect
        self.held = held
        self.arguments = arguments
        self.rng = rng
        self.categories = library()[aspect].categories
        self.names = names()
        goals = {wish.category: wish.value for wish in held}
        self.fields: list[tuple[Category, str | None, list[str]]] = []
        """Per category: what is wanted of it, and every other value it may take."""
        for name, category in self.categories.items():
            goal = goals.get(name)
            values = (*(wish.value for wish in category.wishes), *category.others)
            self.fields.append((category, goal, [value for value in values if value != goal]))

    def correct(self, count: int) -> list[Option]:
        """Options that meet everything, no two of which cost the same in all."""
        found: dict[int, Option] = {}
        while len(found) < count:
            option = self.draw()
            found.setdefault(self.total(option), option)
        return list(found.values())

    def wrong(self) -> tuple[Option, str]:
        """An option that breaks one held preference, and sometimes a second."""
        broken = self.rng.sample(list(self.held), min(len(self.held), 1 + (self.rng.random() < 0.3)))
        option = self.draw(broken)
        return option, "wrong:" + ", ".join(wish.text for wish in broken)

    def noise(self, number: int) -> tuple[Option, str]:
        """An option for another trip, an impossible one, or one with a gap, by turns."""
        option = self.draw()
        kind = ("unrelated", "unrealistic", "incomplete")[number % 3]
        if kind == "unrelated":
            place = self.rng.choice(sorted(key for key in self.arguments if key in ("city", "destination", "origin")))
            known = set(self.arguments.values())
            option[place] = self.rng.choice([city for city in self.names["cities"] if city not in known])
        elif kind == "unrealistic":
            high = COSTS[self.aspect][1]
            option["cost"] = self.rng.choice((0, 1, high * self.rng.randint(40, 90)))
        else:
            wish = self.rng.choice(list(self.held))
            attribute = self.categories[wish.category].attribute
            del option[self.rng.choice(("cost", attribute))]
        return option, f"noise:{kind}"

    def total(self, option: Option) -> int:
        """Cost with the charges of what is held."""
        charged = [w.value for w in self.held if self.categories[w.category].rule == "service"]
        return int(option["cost"] + sum(option["service"][value] for value in charged))

    def draw(self, broken: Sequence[Wish] = ()) -> Option:
        """An option that meets all held preferences but the broken ones; all else is chance."""
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
        missed = {wish.category for wish in broken}
        for category, goal, others in self.fields:
            self._fill(option, category, goal, others, category.name in missed)
        return option

    def _fill(self, option: Option, category: Category, goal: str | None, others: list[str], broken: bool) -> None:
        rng = self.rng
        met = goal is not None and not broken
        if category.rule == "value":
            option[category.attribute] = goal if met else rng.choice(others)
        elif category.rule == "includes":
            chosen = rng.sample(others, rng.randint(1, len(others) - 1))
            option[category.attribute] = sorted([*chosen, str(goal)] if met else chosen)
        else:
            services = option.setdefault(category.attribute, {})
            for value in others:
                services[value] = rng.randint(*CHARGES) if rng.random() < 0.6 else None
            if goal is not None:
                services[goal] = None if broken else rng.randint(*CHARGES)
