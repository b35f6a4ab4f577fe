"""Travel scenarios by random combination of trip, preferences and phrases (UserBench sections 3.1 and 3.5).

A scenario's *plan* (composition, aspects, preferences, phrases, trip) is cheap to draw and determines the task. The options
are drawn when the task is built, with the plan's hash as seed.
"""

from __future__ import annotations

import random
from datetime import date, timedelta
from typing import Any

from userrl_core.gyms.travel.library import library
from userrl_core.gyms.travel.options import OptionCounts, make_options, names
from userrl_core.gyms.travel.world import ASPECTS
from userrl_core.records import Task
from userrl_core.seeding import content_hash, derive_seed, split_of

COMPOSITIONS: dict[str, tuple[str, ...]] = {
    "easy": ("22", "2222"),
    "medium": ("33", "233", "333"),
    "hard": ("44", "334", "444"),
}
"""Compositions per difficulty: one digit per aspect, its number of preferences (UserBench table 2)."""
Plan = dict[str, Any]

_BUDGET = (
    "My budget is small: of everything that suits me, I always take what costs least in the end.",
    "I have to watch my money, so among options that suit me the cheapest in all is best.",
    "Please keep the total low; if several options suit me, I want the cheapest of them.",
)
_START = ("I am planning a trip to {to}.", "I will travel to {to} soon.", "A trip to {to} is coming up for me.")


def make_plan(composition: str, rng: random.Random) -> Plan:
    """Draw the plan of a scenario for a composition such as ``233``."""
    counts = list(composition)
    rng.shuffle(counts)
    aspects = rng.sample(list(ASPECTS), len(counts))
    held_by_aspect = {}
    for aspect, count in zip(aspects, counts, strict=True):
        categories = library()[aspect].categories
        category_names = rng.sample(list(categories), int(count))
        preferences = [rng.choice(categories[name].preferences) for name in category_names]
        held_by_aspect[aspect] = [[p.category, p.key, rng.randrange(len(p.phrases))] for p in preferences]
    origin, city = rng.sample(names()["cities"], 2)
    start = date(2026, 1, 5) + timedelta(days=rng.randrange(340))
    trip = {"origin": origin, "city": city, "start": start.isoformat(), "days": rng.randint(2, 9)}
    return {"composition": composition, "held": held_by_aspect, "trip": trip, "words": rng.randrange(9)}


def plan_id(plan: Plan, counts: OptionCounts) -> str:
    """Return the task's id: a hash of the plan and the option counts."""
    return content_hash([plan, counts.correct, counts.wrong, counts.noise])


def build(plan: Plan, counts: OptionCounts) -> Task:
    """Build the task of a plan with its options, the same for the same plan."""
    identity = plan_id(plan, counts)
    rng = random.Random(derive_seed("travel options", identity))
    aspects: dict[str, Any] = {}
    number = 0
    for aspect, held_preferences in plan["held"].items():
        preferences, payloads = [], []
        for category_name, key, phrase in held_preferences:
            category = library()[aspect].categories[category_name]
            preference = next(p for p in category.preferences if p.key == key)
            preferences.append(preference)
            number += 1
            payloads.append(
                {
                    "id": f"P{number}",
                    "category": category_name,
                    "preference": preference.text,
                    "implicit": preference.phrases[phrase],
                    "rule": {"kind": category.rule, "attribute": category.attribute, "value": preference.value},
                }
            )
        arguments = _arguments(aspect, plan["trip"])
        options = make_options(aspect, preferences, arguments, counts, rng)
        aspects[aspect] = {"arguments": arguments, "wanted": len(held_preferences), "preferences": payloads, **options}
    payload = {"composition": plan["composition"], "opening": _opening(plan), "aspects": aspects}
    return Task("travel", identity, split_of(identity), payload, tier=tier_of(plan["composition"]))


def tier_of(composition: str) -> str:
    """Return easy, medium or hard."""
    return next(tier for tier, members in COMPOSITIONS.items() if composition in members)


def _arguments(aspect: str, trip: dict[str, Any]) -> dict[str, str]:
    start = date.fromisoformat(trip["start"])
    first, last = start.isoformat(), (start + timedelta(days=trip["days"])).isoformat()
    if aspect == "flight":
        return {"origin": trip["origin"], "destination": trip["city"], "date": first}
    if aspect == "restaurant":
        return {"city": trip["city"], "date": (start + timedelta(days=1)).isoformat()}
    return {"city": trip["city"], "date_start": first, "date_end": last}


def _opening(plan: Plan) -> str:
    parts = [_START[plan["words"] % 3].format(to=plan["trip"]["city"])]
    for aspect in plan["held"]:
        arguments = {k: _in_words(v) if "date" in k else v for k, v in _arguments(aspect, plan["trip"]).items()}
        noun = library()[aspect].noun
        if aspect == "flight":
            text = "I need a flight from {origin} to {destination} on {date}."
        elif aspect == "restaurant":
            text = "I would like to go to a restaurant in {city} on {date}."
        else:
            text = f"I need {'an' if noun[0] == 'a' else 'a'} {noun} in {{city}} from {{date_start}} to {{date_end}}."
        parts.append(text.format(**arguments))
    return " ".join([*parts, _BUDGET[plan["words"] // 3]])


def _in_words(day: str) -> str:
    parsed = date.fromisoformat(day)
    return f"{names()['months'][parsed.month - 1]} {parsed.day}, {parsed.year}"
