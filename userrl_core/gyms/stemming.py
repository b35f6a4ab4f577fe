"""Matching of free text by word stems. Rule users judge questions and explanations with it, without a model.

A *stem* is the beginning of a word (``poison`` matches poisons, poisoned, poisoning). A *group* is a list of alternative
stems. A *pattern* is a list of groups. All functions are pure and ignore case and accents.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

Group = Sequence[str]
Pattern = Sequence[Group]

MAX_CHARACTERS = 20_000
"""Number of characters of a text that are read. A message of a megabyte must not block the other episodes."""

_WORD = re.compile(r"[a-z0-9]+")
_ENDINGS = (
    "ations",
    "ation",
    "ingly",
    "edly",
    "ings",
    "ing",
    "ies",
    "ied",
    "ers",
    "est",
    "ed",
    "es",
    "er",
    "ly",
    "s",
    "e",
    "y",
)
_NEGATIONS = frozenset({"not", "never", "no", "nobody", "nothing", "without", "neither", "nor", "cannot"})
_FUNCTION_TEXT = """
a about after all also am an and any are as at be because been before being both but by can could did do does done
each ever every for from get got had has have he her here hers him his how i if in into is it its itself just me more
most much my of off on one only or other our out over own s she should so some someone something story such t than
that the their them then there these they thing this those though to true truth too under until up upon us very was
we were what when where which while who whom whose why will with would you your include includes reveal reveals
explain explains mention mentions detail fact correct right really actually answer"""
_FUNCTION_WORDS = frozenset(_FUNCTION_TEXT.split())


def fold(text: str) -> str:
    """Return the text in lower case without accents and apostrophes, so that ``isn't`` is one word."""
    folded = text.casefold()
    if not folded.isascii():
        folded = "".join(c for c in unicodedata.normalize("NFKD", folded) if not unicodedata.combining(c)).replace(
            "’", ""
        )
    return folded.replace("'", "")


def words(text: str) -> list[str]:
    """Return the folded words and numbers in the first `MAX_CHARACTERS` characters of a text, in order."""
    return _WORD.findall(fold(text[:MAX_CHARACTERS]))


def normalise(text: str) -> str:
    """Return the words joined by single spaces, without a leading article. Equal for two spellings of a name."""
    name = words(text)
    if len(name) > 1 and name[0] in ("a", "an", "the"):
        name = name[1:]
    return " ".join(name)


def matches(group: Group, text_words: Iterable[str]) -> bool:
    """Return whether one of the words begins with one of the group's stems. A stem with a final ``$`` is a whole word."""
    whole_words = {stem[:-1] for stem in group if stem.endswith("$")}
    beginnings = tuple(stem for stem in group if not stem.endswith("$"))
    return any(word in whole_words or word.startswith(beginnings) for word in text_words)


def coverage(pattern: Pattern, text_words: Sequence[str]) -> float:
    """Return the share of the pattern's groups that match the words, in [0, 1]; 0 for an empty pattern."""
    return sum(matches(group, text_words) for group in pattern) / len(pattern) if pattern else 0.0


def strongest_match(patterns: Iterable[Pattern], text_words: Sequence[str]) -> int:
    """Return the number of groups of the longest fully matching pattern; 0 if no pattern matches."""
    return max((len(pattern) for pattern in patterns if coverage(pattern, text_words) == 1.0), default=0)


@lru_cache(maxsize=16384)
def stem(word: str) -> str:
    """Return the word without a common English ending if at least four letters remain, else the whole word."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)]
    return word


def content_words(text: str) -> list[str]:
    """Return the content words in order, each once, without articles, pronouns, auxiliaries and negations."""
    content = (w for w in words(text) if w not in _FUNCTION_WORDS and w not in _NEGATIONS and len(w) > 1)
    return list(dict.fromkeys(content))


def stems(text: str) -> list[str]:
    """Return the stems of the content words in order, each once."""
    return list(dict.fromkeys(stem(word) for word in content_words(text)))


def negated(question: str) -> bool:
    """Return whether a yes/no question has a negation after its first word. A leading ``isn't`` is only a polite form."""
    rest = words(question)[1:]
    return any(w in _NEGATIONS or (w.endswith("nt") and w[:-2] in _AUXILIARIES) for w in rest)


_AUXILIARIES = frozenset(
    {"is", "are", "was", "were", "do", "does", "did", "has", "have", "had", "could", "would", "ca", "wo"}
)


def read_pattern(text: str) -> list[list[str]]:
    """Parse a pattern: ``a b + c d`` is a word that begins with a or b, and one that begins with c or d."""
    return [group.split() for group in text.split("+")]
