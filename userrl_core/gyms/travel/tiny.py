"""TravelGym's tiny tier, for a model of half a million parameters trained from scratch (ours).

A task is a hotel with two preference categories named in the opening, and three options with ids H1 to H6. One option
meets both preferences. There are 3,240 tasks, all distinguishable by their observations.
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
VALUES = frozenset(value for values in CATEGORIES.values() for value in values)
IDS = ("H1", "H2", "H3", "H4", "H5", "H6")


@lru_cache(maxsize=1)
def tiny_tasks() -> tuple[Task, ...]:
    """Return every task of the tier, all splits, shuffled."""
    every_task = []
    for category_pair in permutations(CATEGORIES, 2):
        for values in product(*(CATEGORIES[name] for name in category_pair)):
            for right in IDS:
                for wrong in combinations([option_id for option_id in IDS if option_id != right], 2):
                    every_task.append(_task(category_pair, values, right, wrong))
    random.Random("travel/tiny").shuffle(every_task)
    return tuple(every_task)


def _task(categories: tuple[str, ...], values: tuple[str, ...], right: str, wrong: tuple[str, ...]) -> Task:
    preferred = dict(zip(categories, values, strict=True))
    # Each wrong option violates one of the two preferences: its value there is the next one in the list.
    options: list[dict[str, Any]] = [{"id": right, **preferred}]
    for option_id, violated in zip(wrong, categories, strict=True):
        choices = CATEGORIES[violated]
        value = choices[(choices.index(preferred[violated]) + 1) % len(choices)]
        options.append({"id": option_id, **preferred, violated: value})
    options.sort(key=lambda option: str(option["id"]))
    preferences = [
        {
            "id": f"P{number}",
            "category": name,
            "preference": value,
            "implicit": value,
            "rule": {"kind": "value", "attribute": name, "value": value},
        }
        for number, (name, value) in enumerate(preferred.items(), 1)
    ]
    hotel = {"arguments": {}, "preferences": preferences, "options": options, "best": right, "correct": [right]}
    text = f"book a hotel by {categories[0]} and {categories[1]}"
    payload = {"opening": text, "brief": text, "aspects": {"hotel": hotel}}
    digest = content_hash([categories, values, right, wrong])
    return Task("travel", f"tiny-{digest}", split_of(digest), payload, tier="tiny")
