"""The tiny tier of TravelGym: small enough for a model of half a million parameters to learn from nothing (ours).

A hotel with two preferences named in the opening, three options of which one meets both, ids H1 to H6: 3,240 tasks, every
one of them distinct in what can be observed.
"""

from __future__ import annotations

import random
from functools import lru_cache
from itertools import combinations, permutations, product
from typing import Any

from userrl_core.records import Task
from userrl_core.seeding import content_hash, split_of

CATEGORIES: dict[str, tuple[str, ...]] = {
    "price": ("cheap", "fair", "high"),
    "area": ("centre", "beach", "hills"),
    "meal": ("vegan", "meat", "fish"),
}
IDS = ("H1", "H2", "H3", "H4", "H5", "H6")


@lru_cache(maxsize=1)
def tiny_tasks() -> tuple[Task, ...]:
    """Every task of the tier, all splits, in an order that mixes all of its parameters."""
    found = []
    for named in permutations(CATEGORIES, 2):
        for values in product(*(CATEGORIES[name] for name in named)):
            for right in IDS:
                for others in combinations([one for one in IDS if one != right], 2):
                    found.append(_task(named, values, right, others))
    random.Random("travel/tiny").shuffle(found)
    return tuple(found)


def _task(named: tuple[str, ...], values: tuple[str, ...], right: str, others: tuple[str, ...]) -> Task:
    wanted = dict(zip(named, values, strict=True))
    # Each wrong option misses one preference, the other by turns; its value there is the next in the list.
    options: list[dict[str, Any]] = [{"id": right, **wanted}]
    for one, missed in zip(others, named, strict=True):
        choices = CATEGORIES[missed]
        options.append({"id": one, **wanted, missed: choices[(choices.index(wanted[missed]) + 1) % len(choices)]})
    options.sort(key=lambda option: str(option["id"]))
    preferences = [
        {
            "id": f"P{number}",
            "category": name,
            "preference": value,
            "implicit": value,
            "rule": {"kind": "value", "attribute": name, "value": value},
        }
        for number, (name, value) in enumerate(wanted.items(), 1)
    ]
    hotel = {"arguments": {}, "preferences": preferences, "options": options, "best": right, "correct": [right]}
    text = f"book a hotel by {named[0]} and {named[1]}"
    payload = {"opening": text, "brief": text, "aspects": {"hotel": hotel}}
    digest = content_hash([named, values, right, others])
    return Task("travel", f"tiny-{digest}", split_of(digest), payload, tier="tiny")
