"""Facts in a user's words, and whether the user could know them: from its instruction, or because the agent said them before.

An identifier has at least four characters and at least one digit. Ordinals such as 20th do not count. Facts without an
identifier are numbers, dates in words, names, and claims about oneself of which nothing was given.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from analysis.users.conversation import Message
from userrl_core.gyms.prompt import number_word
from userrl_core.gyms.stemming import content_words, stems, words

_IDENTIFIER = re.compile(r"\b(?=\w*\d)\w{4,}\b")
_ORDINAL = re.compile(r"\d+(st|nd|rd|th)", re.IGNORECASE)


def identifiers(text: str) -> set[str]:
    """Return the different identifiers in a text."""
    return {identifier for identifier in _IDENTIFIER.findall(text) if not _ORDINAL.fullmatch(identifier)}


def normalised(text: str) -> str:
    """Return a text's letters and digits in lower case."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def said_identifiers(messages: Iterable[Message], facts: str) -> Iterator[tuple[Message, str, bool]]:
    """Yield each identifier of a user's message, once a message, and whether the user could know it."""
    known_text = normalised(facts)
    for message in messages:
        if message.speaker == "agent":
            known_text += normalised(message.text)
            continue
        for identifier in sorted(identifiers(message.text)):
            yield message, identifier, normalised(identifier) in known_text


def leaves(value: Any) -> list[str]:
    """Return the texts and numbers in a call's arguments, as texts."""
    if isinstance(value, Mapping):
        return [leaf for item in value.values() for leaf in leaves(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in leaves(item)]
    if value is None or isinstance(value, bool):
        return []
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return [str(value)]


_NUMBER = re.compile(r"(?<![\w.,-])\d{1,3}(?![\w-])(?!\s*(?:%|min|sec|hour|more|/))")
_NUMBER_WORDS = tuple(map(number_word, range(13)))
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_CALENDAR = re.compile(
    rf"\b({'|'.join(month for month in _MONTHS if month not in ('march', 'may'))}|{'|'.join(_DAYS)})\b", re.I
)
_ISO_DATE = re.compile(r"\b(\d{4})-(\d\d)-(\d\d)\b")
_NAME = re.compile(
    r"(?<=[a-z,] )(?!(?:Hi|Hello|Thanks|Thank|Regards|Yes|God|Internet|English|You|Please)\b)[A-Z][a-z]\w*[a-z]\b"
)
_OWN = re.compile(
    r"\b(i'?m|i am|i'?ve|i have|i was|i had|i took|i paid|i booked|i bought|my|we'?re|we are|we'?ve|our|it came|it was)\b",
    re.I,
)
MIN_NEW_SHARE = 0.75
"""Share of a claim's content words that must be new, so that it is not the instruction in other words."""
MIN_NEW_WORDS = 2


def unknown_facts(text: str, known_text: str) -> list[str]:
    """Return the numbers, dates in words and names of a user's message that what it knows does not contain.

    known_text: its instruction and what the agent said before. ISO dates in it count in words too.
    """
    known_words = set(words(known_text)) | _calendar_words(known_text)
    known_words |= {str(_NUMBER_WORDS.index(numeral)) for numeral in known_words & set(_NUMBER_WORDS)}
    numbers = [number for number in _NUMBER.findall(text) if str(int(number)) not in known_words and int(number) > 1]
    dates = [match[0] for match in _CALENDAR.finditer(text) if match[0].lower() not in known_words]
    names = [match[0] for match in _NAME.finditer(text) if not set(words(match[0])) <= known_words]
    return list(dict.fromkeys([*numbers, *dates, *names]))


def new_claim(text: str, known_text: str) -> str:
    """Return the first sentence in which the user tells something about itself of which nothing was given, else ""."""
    known_stems = tuple(stems(known_text))
    for sentence in re.split(r"(?<=[.!?])\s+", text):
        content = content_words(sentence)
        new = [token for token in content if not token.startswith(known_stems)]
        if (
            _OWN.search(sentence)
            and "?" not in sentence
            and len(new) >= max(MIN_NEW_WORDS, MIN_NEW_SHARE * len(content))
        ):
            return sentence
    return ""


def _calendar_words(text: str) -> set[str]:
    """Return the months and days of the week of the ISO dates in a text, and their days as numbers."""
    calendar_words: set[str] = set()
    for year, month, day in _ISO_DATE.findall(text):
        try:
            date = datetime.date(int(year), int(month), int(day))
        except ValueError:
            continue
        calendar_words |= {_MONTHS[date.month - 1], _DAYS[date.weekday()], str(date.day), str(date.month)}
    return calendar_words
