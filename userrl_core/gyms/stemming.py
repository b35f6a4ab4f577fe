"""Reading free text by word stems: how rule users judge questions and explanations without a model.

A *stem* is the beginning of a word (``poison`` stands for poisons, poisoned, poisoning); a *group* is a list of stems of
which one is enough; a *pattern* is a list of groups. Everything here is pure and ignores case and accents.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

Group = Sequence[str]
Pattern = Sequence[Group]

LONGEST = 20_000
"""Characters of a text that are read; a message of a megabyte must not hold up every other conversation."""

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
    """Lower case without accents; apostrophes vanish so that ``isn't`` is one word."""
    plain = text.casefold()
    if not plain.isascii():
        plain = "".join(c for c in unicodedata.normalize("NFKD", plain) if not unicodedata.combining(c)).replace(
            "’", ""
        )
    return plain.replace("'", "")


def words(text: str) -> list[str]:
    """The words and numbers of a text, folded, in order; those of its first `LONGEST` characters."""
    return _WORD.findall(fold(text[:LONGEST]))


def normalise(text: str) -> str:
    """Words joined by single spaces, a leading article dropped: two names are the same when this is equal."""
    found = words(text)
    if len(found) > 1 and found[0] in ("a", "an", "the"):
        found = found[1:]
    return " ".join(found)


def hit(group: Group, said: Iterable[str]) -> bool:
    """Whether one of the words begins with one of the group's stems. A stem ending in ``$`` is a whole word."""
    whole = {stem[:-1] for stem in group if stem.endswith("$")}
    starts = tuple(stem for stem in group if not stem.endswith("$"))
    return any(word in whole or word.startswith(starts) for word in said)


def share(pattern: Pattern, said: Sequence[str]) -> float:
    """The share of the pattern's groups that occur among the words, in [0, 1]; 0 for an empty pattern."""
    return sum(hit(group, said) for group in pattern) / len(pattern) if pattern else 0.0


@lru_cache(maxsize=16384)
def stem(word: str) -> str:
    """A word cut to its beginning by a common English ending, at least four letters (or the whole word) long."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)]
    return word


def content_words(text: str) -> list[str]:
    """The words that carry meaning: no articles, pronouns, auxiliaries or negations, in order, each once."""
    kept = (w for w in words(text) if w not in _FUNCTION_WORDS and w not in _NEGATIONS and len(w) > 1)
    return list(dict.fromkeys(kept))


def negated(question: str) -> bool:
    """Whether a yes/no question holds a negation after its first word (a leading ``isn't`` only asks politely)."""
    rest = words(question)[1:]
    return any(w in _NEGATIONS or (w.endswith("nt") and w[:-2] in _AUXILIARIES) for w in rest)


_AUXILIARIES = frozenset(
    {"is", "are", "was", "were", "do", "does", "did", "has", "have", "had", "could", "would", "ca", "wo"}
)


def read_pattern(text: str) -> list[list[str]]:
    """A pattern from its written form, ``a b + c d``: one word beginning with a or b, and one beginning with c or d."""
    return [group.split() for group in text.split("+")]
