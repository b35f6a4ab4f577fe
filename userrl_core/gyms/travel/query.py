"""Reading a travel query by rule: which aspect, which places, which dates (UserBench appendix B, without a model)."""

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
    """The aspects whose names occur, in a fixed order."""
    said = set(words(text))
    return [aspect for aspect, nouns in NOUNS.items() if said.intersection(nouns)]


def match_query(query: str, arguments: Mapping[str, Mapping[str, str]]) -> SearchJudgement:
    """Whether a query states exactly the arguments of one of the trip's aspects (arguments: by aspect).

    One aspect must be named, all of its places and dates given, and no other place or date.
    """
    named = [aspect for aspect in aspects_named(query) if aspect in arguments]
    if not named:
        # A trip with a single aspect that needs no arguments has nothing to be confused with (tiny tier).
        if len(arguments) == 1 and not next(iter(arguments.values())):
            return SearchJudgement("match", next(iter(arguments)))
        return SearchJudgement("unrelated")
    if len(named) > 1:
        return SearchJudgement("wrong")
    needed = arguments[named[0]]
    places = [fold(value) for key, value in needed.items() if "date" not in key]
    days = {day for key, value in needed.items() if "date" in key for day in days_in(value)}
    text = fold(query)
    if not all(_says(place, text) for place in places) or days_in(query) != days:
        return SearchJudgement("wrong")
    if any(_says(city, text) for city in _cities() if city not in places and not any(city in p for p in places)):
        return SearchJudgement("wrong")
    if "origin" in needed and _reversed(text, fold(needed["origin"]), fold(needed["destination"])):
        return SearchJudgement("wrong")
    return SearchJudgement("match", named[0])


def days_in(text: str) -> set[Day]:
    """Every (month, day) that a text names, in ISO form or in words; the year is ignored."""
    low = fold(text).replace(",", " ")
    low = re.sub(r"\s+", " ", low)
    found = {(int(month), int(day)) for month, day in _ISO.findall(low)}
    low = _ISO.sub(" ", low)
    for month, first, last in _RANGE.findall(low):
        if number := _month(month):
            found |= {(number, int(first)), (number, int(last))}
    pairs = _MONTH_FIRST.findall(low)
    # What was read as "November 10" must not be read again as the "10 December" of "November 10, December 12".
    rest = _MONTH_FIRST.sub(lambda m: " " if _month(m[1]) else m[0], low)
    pairs += [(month, day) for day, month in _DAY_FIRST.findall(rest)]
    return found | {(number, int(day)) for month, day in pairs if (number := _month(month)) and int(day) <= 31}


@lru_cache(maxsize=512)
def _month(word: str) -> int | None:
    for number, month in enumerate(names()["months"], 1):
        low = month.lower()
        if word == low or (len(word) >= 3 and low.startswith(word) and len(word) <= 4):
            return number
    return None


@lru_cache(maxsize=1)
def _cities() -> tuple[str, ...]:
    return tuple(fold(city) for city in names()["cities"])


def _says(place: str, text: str) -> bool:
    return re.search(rf"\b{re.escape(place)}\b", text) is not None


def _reversed(text: str, origin: str, destination: str) -> bool:
    return bool(re.search(rf"\bfrom:? {re.escape(destination)}\b|\bto:? {re.escape(origin)}\b", text))
