"""TravelGym's library of preferences and the phrases that imply them (UserBench section 3.1; the content is ours).

There is one YAML file per aspect. A category is one topic that a traveller may be asked about. It corresponds to one
attribute of an option. A scenario has at most one preference per category, so that preferences never contradict each
other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from userrl_core.errors import TaskError
from userrl_core.gyms.travel.world import ASPECTS

FOLDER = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True)
class LibraryPreference:
    """A preference of the library. text: the explicit statement. phrases: remarks that imply it without stating it."""

    aspect: str
    category: str
    key: str
    value: str
    text: str
    phrases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AspectTopic:
    """One topic of questions about an aspect.

    rule, attribute: the check on an option (see `world`). label: its name in a question. ask: stems of questions
    about it, for the rule user. others: values of the attribute without a preference.
    """

    aspect: str
    name: str
    rule: str
    attribute: str
    label: str
    ask: tuple[str, ...]
    others: tuple[str, ...]
    preferences: tuple[LibraryPreference, ...]


@dataclass(frozen=True, slots=True)
class AspectLibrary:
    """The categories of one aspect. noun: the aspect's name in a sentence."""

    name: str
    noun: str
    categories: dict[str, AspectTopic]


@lru_cache(maxsize=1)
def library() -> dict[str, AspectLibrary]:
    """Return the library by aspect, in a fixed order. Raises TaskError with file and entry for an unreadable file."""
    return {aspect: _read(FOLDER / f"{aspect}.yaml", aspect) for aspect in ASPECTS}


def _read(path: Path, aspect: str) -> AspectLibrary:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        data: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), loader)
        noun = str(data.pop("noun"))
        categories = {name: _category(aspect, name, entry) for name, entry in data.items()}
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise TaskError(
            "task.file_unreadable",
            f"The file {path.name} of the travel library cannot be read: {error!r}. Install userrl again.",
        ) from error
    return AspectLibrary(aspect, noun, categories)


def _category(aspect: str, name: str, entry: dict[str, Any]) -> AspectTopic:
    preferences = tuple(
        LibraryPreference(aspect, name, key, str(row["value"]), str(row["text"]), tuple(map(str, row["phrases"])))
        for key, row in entry["preferences"].items()
    )
    ask, other_values = tuple(map(str, entry["ask"])), tuple(map(str, entry["others"]))
    return AspectTopic(aspect, name, entry["rule"], entry["attribute"], entry["label"], ask, other_values, preferences)
