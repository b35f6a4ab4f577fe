"""Tasks of TelepathyGym: entities with attribute tables, so that yes/no questions can be judged without a model.

Within its category an entity has an attribute or has it not; no two entities of a category have the same attributes, so
asking finds each of them without luck.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

from userrl_core.errors import ConfigError
from userrl_core.gyms.released import read_json, released_splits, text_field
from userrl_core.gyms.stemming import read_pattern
from userrl_core.records import Task
from userrl_core.seeding import content_hash, split_of

RELEASED_ENTITIES = Path("gyms/TelepathyGym/telepathygym/data/all_entities_refined.json")


@dataclass(frozen=True, slots=True)
class Ask:
    """One attribute: how it is asked, and the patterns (lists of groups of stems) that recognise other wordings."""

    question: str
    patterns: tuple[tuple[tuple[str, ...], ...], ...]


@dataclass(frozen=True, slots=True)
class Category:
    """A category of entities: what the opening calls it, its attributes, and each entity's true attributes."""

    name: str
    opening: str
    asks: dict[str, Ask]
    entities: dict[str, frozenset[str]]
    aliases: dict[str, tuple[str, ...]]


@lru_cache(maxsize=1)
def categories() -> dict[str, Category]:
    """All categories, read once from the file beside this module."""
    raw = json.loads(Path(__file__).with_name("entities.json").read_text(encoding="utf-8"))
    return {name: _category(name, table) for name, table in raw.items()}


def tasks(split: str, *, category: str | None = None) -> Sequence[Task]:
    """Our entities of a split; category keeps one category only. Raises ConfigError for an unknown category."""
    if category is not None and category not in categories():
        raise ConfigError(f"TelepathyGym has no category '{category}'; it has {', '.join(categories())}.")
    return [task for task in _all() if task.split == split and category in (None, task.tier)]


def generate(n: int, seed: int) -> list[Task]:
    """n of our entities in an order drawn from the seed. Raises ConfigError when there are fewer than n."""
    if n > len(_all()):
        raise ConfigError(f"TelepathyGym has {len(_all())} entities of its own; {n} were asked for.")
    return Random(seed).sample(_all(), n)


def load_published(root: Path) -> list[Task]:
    """The 401 released entities, split as the released rows are. Raises TaskError naming file, index and field."""
    path = root / RELEASED_ENTITIES
    rows = [(index, row) for index, row in enumerate(read_json(path, list))]
    splits = released_splits(root, "telepathy_multiturn", "title")
    found = []
    for index, row in rows:
        field = {
            name: text_field(row, name, path, index)
            for name in ("id", "title", "category", "description", "target_entity")
        }
        named = field["target_entity"].split(" - ", 1)[0].strip()
        payload = {
            "title": field["title"],
            "aliases": [] if named == field["title"] else [named],
            "category": field["category"],
            "opening": field["description"],
            "description": field["target_entity"],
            "yes": None,
        }
        split = splits.get(field["title"], "train")
        found.append(Task("telepathy", field["id"], split, payload, "published:userrl", field["category"]))
    return found


def best_question(category: Category, candidates: Sequence[str]) -> str | None:
    """The attribute that splits the candidates most evenly (the first of equals); None when none splits them."""
    best, evenness = None, 0
    for attribute in category.asks:
        having = sum(attribute in category.entities[name] for name in candidates)
        smaller = min(having, len(candidates) - having)
        if smaller > evenness:
            best, evenness = attribute, smaller
    return best


def questions_needed(task: Task) -> int:
    """How many questions lead to this entity alone, always asking the best one."""
    return _needed(task.payload["category"], task.payload["title"])


@lru_cache(maxsize=1024)
def _needed(category_name: str, title: str) -> int:
    category = categories()[category_name]
    candidates, asked = list(category.entities), 0
    while len(candidates) > 1 and (attribute := best_question(category, candidates)) is not None:
        truth = attribute in category.entities[title]
        candidates = [name for name in candidates if (attribute in category.entities[name]) == truth]
        asked += 1
    return asked


@lru_cache(maxsize=1)
def _all() -> list[Task]:
    found = []
    for category in categories().values():
        for title, yes in category.entities.items():
            payload: dict[str, Any] = {
                "title": title,
                "aliases": list(category.aliases[title]),
                "category": category.name,
                "opening": f"I am thinking of {category.opening}. Find out what it is by asking me yes/no questions.",
                "description": None,
                "yes": sorted(yes),
            }
            # Only what the task is about is hashed: a better attribute table must not move an entity to another split.
            name = content_hash(["telepathy", category.name, title])
            found.append(Task("telepathy", name, split_of(name), payload, tier=category.name))
    return found


def _category(name: str, table: dict[str, Any]) -> Category:
    asks = {key: Ask(question, _patterns(text)) for key, (question, text) in table["asks"].items()}
    entities, aliases = {}, {}
    for names, attributes in table["entities"].items():
        title, *others = names.split("|")
        entities[title] = frozenset(attributes.split())
        aliases[title] = tuple(others)
    return Category(name, table["opening"], asks, entities, aliases)


def _patterns(text: str) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """``a b / c + d``: a word beginning with a or b; or one with c together with one with d."""
    return tuple(tuple(tuple(group) for group in read_pattern(part)) for part in text.split("/"))
