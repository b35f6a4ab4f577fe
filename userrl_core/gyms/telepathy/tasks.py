"""TelepathyGym's tasks: entities with attribute tables, which answer yes/no questions without a model.

Every entity has or lacks each attribute of its category. No two entities of a category have the same attributes, so
questions identify each of them without luck.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from userrl_core.errors import ConfigError
from userrl_core.gyms.pool import draw_tasks
from userrl_core.gyms.released import check_same, read_json, released_splits, text_field
from userrl_core.gyms.stemming import read_pattern
from userrl_core.records import Task
from userrl_core.seeding import content_hash, split_of

RELEASED_ENTITIES = Path("gyms/TelepathyGym/telepathygym/data/all_entities_refined.json")


@dataclass(frozen=True, slots=True)
class Ask:
    """One attribute: its question, and the patterns (lists of groups of stems) that recognise other wordings of it."""

    question: str
    patterns: tuple[tuple[tuple[str, ...], ...], ...]


@dataclass(frozen=True, slots=True)
class EntityCategory:
    """A category of entities: its name in the opening, its attributes, and the attributes of each entity."""

    name: str
    opening: str
    asks: dict[str, Ask]
    entities: dict[str, frozenset[str]]
    aliases: dict[str, tuple[str, ...]]


@lru_cache(maxsize=1)
def categories() -> dict[str, EntityCategory]:
    """Return all categories, read once from the file next to this module."""
    raw = json.loads(Path(__file__).with_name("entities.json").read_text(encoding="utf-8"))
    return {name: _category(name, table) for name, table in raw.items()}


def tasks(split: str, *, category: str | None = None) -> Sequence[Task]:
    """Return the tasks of a split from our own entities, of all categories or of one. Raises ConfigError for an
    unknown category.
    """
    if category is not None and category not in categories():
        raise ConfigError(
            "task.bad_option", f"TelepathyGym has no category '{category}'. It has {', '.join(categories())}."
        )
    return [task for task in _all() if task.split == split and category in (None, task.tier)]


def generate(n: int, seed: int) -> list[Task]:
    """Return n of our entities, drawn with the seed. Raises ConfigError if there are fewer than n."""
    return draw_tasks(_all(), n, seed, "TelepathyGym's own list")


def load_published(root: Path) -> list[Task]:
    """Return the 401 released entities with the split of their released rows. Raises TaskError."""
    path = root / RELEASED_ENTITIES
    splits = released_splits(root, "telepathy_multiturn", "title")
    rows = read_json(path, list)
    payloads: list[dict[str, Any]] = []
    for index, row in enumerate(rows):
        fields = {
            name: text_field(row, name, path, index)
            for name in ("id", "title", "category", "description", "target_entity")
        }
        target_name = fields["target_entity"].split(" - ", 1)[0].strip()
        payloads.append(
            {
                "title": fields["title"],
                "aliases": [] if target_name == fields["title"] else [target_name],
                "category": fields["category"],
                "opening": fields["description"],
                "description": fields["target_entity"],
                "yes": None,
            }
        )
    check_same(splits, [payload["title"] for payload in payloads], path)
    return [
        Task("telepathy", row["id"], splits[row["title"]], payload, "published:userrl", row["category"])
        for row, payload in zip(rows, payloads, strict=True)
    ]


def best_question(category: EntityCategory, candidates: Sequence[str]) -> str | None:
    """Return the attribute that splits the candidates most evenly (the first at a tie); None if none splits them."""
    best, best_minority = None, 0
    for attribute in category.asks:
        count = sum(attribute in category.entities[name] for name in candidates)
        minority = min(count, len(candidates) - count)
        if minority > best_minority:
            best, best_minority = attribute, minority
    return best


def questions_needed(task: Task) -> int:
    """Return the number of best questions that identify the entity."""
    return _needed(task.payload["category"], task.payload["title"])


@lru_cache(maxsize=1024)
def _needed(category_name: str, title: str) -> int:
    category = categories()[category_name]
    candidates, questions = list(category.entities), 0
    while len(candidates) > 1 and (attribute := best_question(category, candidates)) is not None:
        answer = attribute in category.entities[title]
        candidates = [name for name in candidates if (attribute in category.entities[name]) == answer]
        questions += 1
    return questions


@lru_cache(maxsize=1)
def _all() -> list[Task]:
    our_tasks = []
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
            # The attributes are not hashed: a corrected table must not move an entity to another split.
            name = content_hash(["telepathy", category.name, title])
            our_tasks.append(Task("telepathy", name, split_of(name), payload, tier=category.name))
    return our_tasks


def _category(name: str, table: dict[str, Any]) -> EntityCategory:
    asks = {key: Ask(question, _patterns(text)) for key, (question, text) in table["asks"].items()}
    entities, aliases = {}, {}
    for names, attributes in table["entities"].items():
        title, *other_names = names.split("|")
        entities[title] = frozenset(attributes.split())
        aliases[title] = tuple(other_names)
    return EntityCategory(name, table["opening"], asks, entities, aliases)


def _patterns(text: str) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """Parse ``a b / c + d``: a word that begins with a or b; or one with c together with one with d."""
    return tuple(tuple(tuple(group) for group in read_pattern(part)) for part in text.split("/"))
