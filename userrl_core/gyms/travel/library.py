"""The preference library of TravelGym: what travellers want, and how they let it show (UserBench section 3.1; ours).

One YAML file per aspect. A category is one question a traveller may be asked; it governs one attribute of an option, and a
scenario takes at most one preference of a category, so that preferences can never contradict one another.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from userrl_core.errors import TaskError
from userrl_core.gyms.stemming import content_words, stem
from userrl_core.gyms.travel.world import ASPECTS

FOLDER = Path(__file__).parent / "data"
LEAST_PHRASES = 10
RULES = ("value", "includes", "service")


@dataclass(frozen=True, slots=True)
class Wish:
    """A preference as the library has it. text: stated outright; phrases: said so that it shows without being stated."""

    aspect: str
    category: str
    key: str
    value: str
    text: str
    phrases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Category:
    """One thing that can be asked about an aspect.

    rule / attribute: how options show it (see `travel_world`). label: what a question calls it. ask: beginnings of words by
    which the rule user recognises a question about it. others: values that no wish wants.
    """

    aspect: str
    name: str
    rule: str
    attribute: str
    label: str
    ask: tuple[str, ...]
    others: tuple[str, ...]
    wishes: tuple[Wish, ...]


@dataclass(frozen=True, slots=True)
class AspectLibrary:
    """Everything about one aspect. noun: what people call it."""

    name: str
    noun: str
    categories: dict[str, Category]


@lru_cache(maxsize=1)
def library() -> dict[str, AspectLibrary]:
    """The library by aspect, in a fixed order. Raises TaskError naming file and entry when a file cannot be read."""
    return {aspect: _read(FOLDER / f"{aspect}.yaml", aspect) for aspect in ASPECTS}


def _read(path: Path, aspect: str) -> AspectLibrary:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        data: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), loader)
        noun = str(data.pop("noun"))
        categories = {name: _category(aspect, name, entry) for name, entry in data.items()}
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise TaskError(f"The travel library's file {path.name} cannot be read: {error!r}.") from error
    return AspectLibrary(aspect, noun, categories)


def _category(aspect: str, name: str, entry: dict[str, Any]) -> Category:
    wishes = tuple(
        Wish(aspect, name, key, str(wish["value"]), str(wish["text"]), tuple(map(str, wish["phrases"])))
        for key, wish in entry["preferences"].items()
    )
    ask, others = tuple(map(str, entry["ask"])), tuple(map(str, entry["others"]))
    return Category(aspect, name, entry["rule"], entry["attribute"], entry["label"], ask, others, wishes)


def wishes() -> list[Wish]:
    """Every preference of the library."""
    return [w for part in library().values() for category in part.categories.values() for w in category.wishes]


def problems(found: list[Wish]) -> list[str]:
    """What is wrong with these preferences; empty when nothing is.

    A phrase gives its preference away when it shares the stem of a content word with the outright text.
    """
    wrong: list[str] = []
    for wish in found:
        where = f"{wish.aspect}.{wish.category}.{wish.key}"
        said = {stem(word) for word in content_words(wish.text)}
        if not said:
            wrong.append(f"{where}: the text '{wish.text}' has no content word.")
        if len(set(wish.phrases)) < LEAST_PHRASES:
            wrong.append(f"{where}: {len(set(wish.phrases))} different phrases, fewer than {LEAST_PHRASES}.")
        for phrase in wish.phrases:
            heard = {stem(word) for word in content_words(phrase)}
            if shared := sorted(one for one in said if any(_same(one, other) for other in heard)):
                wrong.append(f"{where}: '{phrase}' gives the preference away by {', '.join(shared)}.")
    return wrong


def _same(one: str, other: str) -> bool:
    """Whether two stems are of one word: a short ending (dog, dogs; stop, stopp-ing) makes no difference."""
    short, long = sorted((one, other), key=len)
    return one == other or (len(short) >= 3 and long.startswith(short) and len(long) - len(short) <= 2)
