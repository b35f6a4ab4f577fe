"""Parsing of a travel query by rule: its aspect, places and dates (UserBench appendix B, without a model)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from userrl_core.gyms.stemming import fold, words
from userrl_core.gyms.travel.options import names
from userrl_core.gyms.travel.world import SearchJudgement

NOUNS: dict[str, tuple[str, ...]] = {
    "flight": ("flight", "flights", "plane", "airline"),
    "hotel": ("hotel", "hotels"),
    "apartment": ("apartment", "apartments", "flat"),
    "rental_car": ("car", "cars", "rental", "vehicle"),
    "restaurant": ("restaurant", "restaurants"),
}
Day = tuple[int, int]

_ISO = re.compile(r"\b(?:\d{4})-(\d{1,2})-(\d{1,2})\b")
_MONTH_FIRST = re.compile(r"\b([a-z]{3,9})\.? (\d{1,2})(?:st|nd|rd|th)?\b(?! ?:)")
_DAY_FIRST = re.compile(r"\b(\d{1,2})(?:st|nd|rd|th)?(?: of)? ([a-z]{3,9})\b")
_RANGE = re.compile(
    r"\b([a-z]{3,9})\.? (\d{1,2})(?:st|nd|rd|th)? ?(?:-|–|to|until|through) ?(\d{1,2})(?:st|nd|rd|th)?\b(?! ?:)"
)


def aspects_named(text: str) -> list[str]:
    """Return the aspects that the text names, in a fixed order."""
    text_words = set(words(text))
    return [aspect for aspect, nouns in NOUNS.items() if text_words.intersection(nouns)]


def match_query(query: str, arguments: Mapping[str, Mapping[str, str]]) -> SearchJudgement:
    """Judge whether a query states exactly the arguments of one of the trip's aspects. arguments: by aspect.

    The query must name one aspect, all of its places and dates, and no other place or date.
    """
    named_aspects = [aspect for aspect in aspects_named(query) if aspect in arguments]
    if not named_aspects:
        # With a single aspect that needs no arguments the query need not name it (tiny tier).
        if len(arguments) == 1 and not next(iter(arguments.values())):
            return SearchJudgement("match", next(iter(arguments)))
        return SearchJudgement("unrelated")
    if len(named_aspects) > 1:
        return SearchJudgement("wrong")
    needed = arguments[named_aspects[0]]
    place_names = [fold(value) for key, value in needed.items() if "date" not in key]
    days = {day for key, value in needed.items() if "date" in key for day in days_in(value)}
    text = fold(query)
    if not all(_mentions(text, place_name) for place_name in place_names) or days_in(query) != days:
        return SearchJudgement("wrong")
    if any(
        _mentions(text, city)
        for city in _cities()
        if city not in place_names and not any(city in p for p in place_names)
    ):
        return SearchJudgement("wrong")
    if "origin" in needed and _reversed(text, fold(needed["origin"]), fold(needed["destination"])):
        return SearchJudgement("wrong")
    return SearchJudgement("match", named_aspects[0])


def days_in(text: str) -> set[Day]:
    """Return every (month, day) in a text, in ISO form or in words. The year is ignored."""
    folded = re.sub(r"\s+", " ", fold(text).replace(",", " "))
    days = {(int(month), int(day)) for month, day in _ISO.findall(folded)}
    folded = _ISO.sub(" ", folded)
    for month, first, last in _RANGE.findall(folded):
        if number := _month(month):
            days |= {(number, int(first)), (number, int(last))}
    pairs = _MONTH_FIRST.findall(folded)
    # Remove matches such as "November 10" first: in "November 10, December 12" there is no "10 December".
    rest = _MONTH_FIRST.sub(lambda m: " " if _month(m[1]) else m[0], folded)
    pairs += [(month, day) for day, month in _DAY_FIRST.findall(rest)]
    return days | {(number, int(day)) for month, day in pairs if (number := _month(month)) and int(day) <= 31}


@lru_cache(maxsize=512)
def _month(token: str) -> int | None:
    for number, month in enumerate(names()["months"], 1):
        name = month.lower()
        if token == name or (3 <= len(token) <= 4 and name.startswith(token)):
            return number
    return None


@lru_cache(maxsize=1)
def _cities() -> tuple[str, ...]:
    return tuple(fold(city) for city in names()["cities"])


def _mentions(text: str, place_name: str) -> bool:
    return re.search(rf"\b{re.escape(place_name)}\b", text) is not None


def _reversed(text: str, origin: str, destination: str) -> bool:
    return bool(re.search(rf"\bfrom:? {re.escape(destination)}\b|\bto:? {re.escape(origin)}\b", text))
