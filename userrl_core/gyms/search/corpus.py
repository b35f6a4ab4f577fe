"""The local corpus of SearchGym: short articles about an invented country, and two-hop questions over them.

Nothing in it is true, so no model can know an answer beforehand: each question needs one article to name a thing and another
to tell what is asked about it. Names and sentences come from a file; who was born where is drawn once, from a fixed seed.
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
"""Fixes the country: another seed would be another corpus, with other tasks."""

Thing = dict[str, Any]
"""A person, town, work ...: its kind, its name and its facts, which may be other things."""


@dataclass(frozen=True, slots=True)
class Document:
    """One article."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """A two-hop question. hops: what to look up, in order; the article found last holds the answer."""

    text: str
    answer: str
    hops: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Corpus:
    """The articles and the questions over them."""

    documents: tuple[Document, ...]
    questions: tuple[Question, ...]


@lru_cache(maxsize=1)
def corpus() -> Corpus:
    """The corpus, made once; always the same."""
    words = json.loads(Path(__file__).with_name("world.json").read_text(encoding="utf-8"))
    things = list(_things(words, Random(SEED)))
    articles = ((thing["name"], words["articles"][thing["is"]].format(**thing)) for thing in things)
    documents = [Document(name, text[0].upper() + text[1:]) for name, text in articles]
    questions = [
        Question(text.format(**thing), answer.format(**thing), (first.format(**thing), second.format(**thing)))
        for thing in things
        for text, answer, first, second in words["questions"].get(thing["is"], [])
    ]
    return Corpus(tuple(documents), tuple(questions))


def _things(words: dict[str, Any], rng: Random) -> Iterator[Thing]:
    """Everything there is in the country, in a fixed order of draws."""
    towns = [
        {
            "is": "town",
            "name": name,
            "region": rng.choice(words["regions"]),
            "river": rng.choice(words["rivers"]),
            "year": rng.randint(1180, 1640),
            "speciality": speciality,
        }
        for name, speciality in zip(words["towns"], words["specialities"], strict=True)
    ]
    for region in words["regions"]:
        names = [town["name"] for town in towns if town["region"] == region]
        yield {"is": "region", "name": region, "towns": " and ".join(names) or "of no note"}
    yield from towns
    people = [
        {
            "is": "person",
            "name": f"{words['first_names'][i % len(words['first_names'])]} {last}",
            "job": words["occupations"][i % len(words["occupations"])],
            "town": rng.choice(towns),
            "year": rng.randint(1780, 1890),
        }
        for i, last in enumerate(words["last_names"])
    ]
    yield from people
    yield from _works(words, rng, people)
    yield from _structures(words, rng, people, towns)
    for name, product in zip(words["companies"], words["products"], strict=True):
        founder, town = rng.choice(people), rng.choice(towns)
        year = founder["year"] + rng.randint(22, 50)
        yield {"is": "company", "name": name, "founder": founder, "town": town, "product": product, "year": year}
    for name, town in zip(words["festivals"], rng.sample(towns, len(words["festivals"])), strict=True):
        month, year = rng.choice(words["months"]), rng.randint(1650, 1900)
        yield {"is": "festival", "name": name, "town": town, "month": month, "year": year}
    explorers = _of(people, "explorer")
    for name, place in zip(words["ships"], words["places"], strict=True):
        who, town = rng.choice(explorers), rng.choice(towns)
        year = who["year"] + rng.randint(22, 40)
        yield {"is": "ship", "name": name, "town": town, "explorer": who, "place": place, "year": year}


def _works(words: dict[str, Any], rng: Random, people: list[Thing]) -> Iterator[Thing]:
    makers = _of(people, *words["work_kinds"])
    titles = [f"The {adjective} {noun}" for adjective in words["adjectives"] for noun in words["nouns"]]
    for number, title in enumerate(rng.sample(titles, 36)):
        maker = makers[number % len(makers)]
        kind, verb = words["work_kinds"][maker["job"]]
        year = maker["year"] + rng.randint(22, 55)
        yield {"is": "work", "name": title, "maker": maker, "kind": kind, "verb": verb, "year": year}


def _structures(words: dict[str, Any], rng: Random, people: list[Thing], towns: list[Thing]) -> Iterator[Thing]:
    designers = _of(people, "architect", "engineer")
    for number, first in enumerate(words["structure_names"]):
        name = f"{first} {words['structures'][number % len(words['structures'])]}"
        who, town = rng.choice(designers), rng.choice(towns)
        year = who["year"] + rng.randint(25, 50)
        yield {"is": "structure", "name": name, "architect": who, "town": town, "year": year}


def _of(people: list[Thing], *jobs: str) -> list[Thing]:
    return [person for person in people if person["job"] in jobs]
