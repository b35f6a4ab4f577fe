"""SearchGym's local corpus: short articles about an invented country, and two-hop questions over them.

The facts are invented, so that models cannot know an answer in advance. Each question needs one article that names a thing
and another one with the requested fact. Names and sentences come from a file. The facts are drawn once, with a fixed seed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

SEED = 1907
"""Seed of the corpus. Another seed gives other articles and other tasks."""

Thing = dict[str, Any]
"""A person, town or work: its kind (``is``), its name and its facts, which may be other things."""


@dataclass(frozen=True, slots=True)
class Article:
    """One article."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class ArticleQuestion:
    """A question. hops: the searches, in order. The article of the last search holds the answer."""

    text: str
    answer: str
    hops: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """The articles and the questions over them."""

    documents: tuple[Article, ...]
    questions: tuple[ArticleQuestion, ...]


@lru_cache(maxsize=1)
def corpus() -> Corpus:
    """Return the corpus, built once and always the same."""
    return build(Path(__file__).with_name("world.json"), SEED)


def build(world: Path, seed: int) -> Corpus:
    """Build the corpus from a file of names, article kinds and question kinds. The facts are drawn with the seed."""
    vocabulary = json.loads(world.read_text(encoding="utf-8"))
    entities = list(_things(vocabulary, Random(seed)))
    articles = ((entity["name"], vocabulary["articles"][entity["is"]].format(**entity)) for entity in entities)
    documents = [Article(name, text[0].upper() + text[1:]) for name, text in articles]
    questions = [
        ArticleQuestion(text.format(**entity), answer.format(**entity), tuple(hop.format(**entity) for hop in hops))
        for entity in entities
        for text, answer, *hops in vocabulary["questions"].get(entity["is"], [])
    ]
    return Corpus(tuple(documents), tuple(questions))


def _things(vocabulary: dict[str, Any], rng: Random) -> Iterator[Thing]:
    """Yield all things of the country, in a fixed order of draws."""
    towns = [
        {
            "is": "town",
            "name": name,
            "region": rng.choice(vocabulary["regions"]),
            "river": rng.choice(vocabulary["rivers"]),
            "year": rng.randint(1180, 1640),
            "speciality": speciality,
        }
        for name, speciality in zip(vocabulary["towns"], vocabulary["specialities"], strict=True)
    ]
    for region in vocabulary["regions"]:
        names = [town["name"] for town in towns if town["region"] == region]
        yield {"is": "region", "name": region, "towns": " and ".join(names) or "of no note"}
    yield from towns
    people = [
        {
            "is": "person",
            "name": f"{vocabulary['first_names'][i % len(vocabulary['first_names'])]} {last}",
            "job": vocabulary["occupations"][i % len(vocabulary["occupations"])],
            "town": rng.choice(towns),
            "year": rng.randint(1780, 1890),
        }
        for i, last in enumerate(vocabulary["last_names"])
    ]
    yield from people
    yield from _works(vocabulary, rng, people)
    yield from _structures(vocabulary, rng, people, towns)
    for name, product in zip(vocabulary["companies"], vocabulary["products"], strict=True):
        founder, town = rng.choice(people), rng.choice(towns)
        year = founder["year"] + rng.randint(22, 50)
        yield {"is": "company", "name": name, "founder": founder, "town": town, "product": product, "year": year}
    for name, town in zip(vocabulary["festivals"], rng.sample(towns, len(vocabulary["festivals"])), strict=True):
        month, year = rng.choice(vocabulary["months"]), rng.randint(1650, 1900)
        yield {"is": "festival", "name": name, "town": town, "month": month, "year": year}
    explorers = _of(people, "explorer")
    for name, destination in zip(vocabulary["ships"], vocabulary["places"], strict=True):
        explorer, town = rng.choice(explorers), rng.choice(towns)
        year = explorer["year"] + rng.randint(22, 40)
        yield {"is": "ship", "name": name, "town": town, "explorer": explorer, "place": destination, "year": year}


def _works(vocabulary: dict[str, Any], rng: Random, people: list[Thing]) -> Iterator[Thing]:
    makers = _of(people, *vocabulary["work_kinds"])
    titles = [f"The {adjective} {noun}" for adjective in vocabulary["adjectives"] for noun in vocabulary["nouns"]]
    for number, title in enumerate(rng.sample(titles, 36)):
        maker = makers[number % len(makers)]
        kind, verb = vocabulary["work_kinds"][maker["job"]]
        year = maker["year"] + rng.randint(22, 55)
        yield {"is": "work", "name": title, "maker": maker, "kind": kind, "verb": verb, "year": year}


def _structures(vocabulary: dict[str, Any], rng: Random, people: list[Thing], towns: list[Thing]) -> Iterator[Thing]:
    designers = _of(people, "architect", "engineer")
    for number, first in enumerate(vocabulary["structure_names"]):
        name = f"{first} {vocabulary['structures'][number % len(vocabulary['structures'])]}"
        designer, town = rng.choice(designers), rng.choice(towns)
        year = designer["year"] + rng.randint(25, 50)
        yield {"is": "structure", "name": name, "architect": designer, "town": town, "year": year}


def _of(people: list[Thing], *jobs: str) -> list[Thing]:
    return [person for person in people if person["job"] in jobs]
