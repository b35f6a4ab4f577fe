"""From an FTS5 expression to a filter over an index that knows which words a turn has, but not where they stand.

The filter lets through every turn that the expression matches, and perhaps others: a phrase or NEAR becomes its words
(and a phrase its bigrams), `^` and column filters are left out, and so is what NOT takes away unless the
index can tell it for certain. Where nothing had to be left out the filter is exact.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from warehouse.words import bigrams, words

_TOKEN = re.compile(r'[ \t\n\r]*(?:("(?:[^"]|"")*")|([A-Za-z0-9_\x1a\x80-\U0010ffff]+)|([(){}:,+*^-]))')

MOST_WORDS = 24
"""Words of a phrase that its filter asks for; the rest is left to the reading of the turns."""


@dataclass(frozen=True, slots=True)
class Filter:
    """match: an expression for the index; None when no turn can match. exact: it lets through nothing else."""

    match: str | None
    exact: bool


def weaken(expression: str) -> Filter:
    """The filter of an expression that FTS5 accepts. Raises ValueError for one that it would refuse."""
    tokens, at = [], 0
    expression = expression.rstrip(" \t\n\r")
    while at < len(expression):
        found = _TOKEN.match(expression, at)
        if found is None:
            raise ValueError(f"Character {at} of the expression is no part of any.")
        tokens.append(found[0].lstrip(" \t\n\r"))
        at = found.end()
    parser = _Parser(tokens)
    made = parser.either()
    parser.expect("")
    return made


class _Parser:
    """One method per level of FTS5's grammar; from loose to tight: OR, AND, NOT, then words beside each other."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = [*tokens, "", ""]
        self._at = 0

    def either(self) -> Filter:
        parts = [self._both()]
        while self._took("OR"):
            parts.append(self._both())
        return _join(" OR ", parts)

    def _both(self) -> Filter:
        parts = [self._without()]
        while self._took("AND"):
            parts.append(self._without())
        return _join(" AND ", parts)

    def _without(self) -> Filter:
        kept, gone = self._group(), []
        while self._took("NOT"):
            gone.append(self._group())
        sure = [part for part in gone if part.exact]
        if kept.match is None or not gone:
            return kept
        exact = kept.exact and len(sure) == len(gone)
        if not sure:
            return Filter(kept.match, exact)
        return Filter(f"({kept.match} NOT {_join(' OR ', sure).match})", exact)

    def _group(self) -> Filter:
        filtered = self._columns()
        if self._took("("):
            inner = self.either()
            self.expect(")")
            return Filter(inner.match, inner.exact and not filtered)
        parts = [self._near(filtered)]
        while self._starts():
            filtered = self._columns()
            parts.append(self._near(filtered))
        return _join(" AND ", parts)

    def _columns(self) -> bool:
        """Skip a column filter; whether there was one."""
        at = self._at
        self._took("-")
        if self._took("{"):
            while not self._took("}"):
                self._string()
        elif self._tokens[self._at + 1] == ":":
            self._string()
        if not self._took(":"):
            if self._at != at:
                raise ValueError("A column filter lacks its colon.")
            return False
        return True

    def _near(self, filtered: bool) -> Filter:
        if self._tokens[self._at] == "NEAR" and self._tokens[self._at + 1] == "(":
            self._at += 2
            parts = [self._phrase()]
            while self._is_string():
                parts.append(self._phrase())
            if self._took(","):
                self._string()
            self.expect(")")
            return Filter(_join(" AND ", parts).match, False)
        first = self._took("^")
        phrase = self._phrase()
        return Filter(phrase.match, phrase.exact and not first and not filtered)

    def _phrase(self) -> Filter:
        """Strings joined by `+`; a star belongs to the last word so far, also where its own string has none."""
        found: list[str] = []
        begins: list[bool] = []
        while True:
            more = words(self._string())
            found += more
            begins += [False] * len(more)
            star = self._took("*")
            if begins:
                begins[-1] = star
            if not self._took("+"):
                return _phrase(found, begins)

    def _string(self) -> str:
        if not self._is_string():
            raise ValueError(f"A word is wanted before {self._tokens[self._at]!r}.")
        token = self._tokens[self._at]
        self._at += 1
        return token[1:-1].replace('""', '"') if token[0] == '"' else token

    def _is_string(self) -> bool:
        token = self._tokens[self._at]
        return token not in ("", "AND", "OR", "NOT") and token not in "(){}:,+*^-"

    def _starts(self) -> bool:
        return self._is_string() or self._tokens[self._at] in ("^", "-", "{")

    def _took(self, token: str) -> bool:
        taken = self._tokens[self._at] == token
        self._at += taken
        return taken

    def expect(self, token: str) -> None:
        """Step over this token ("" is the end)."""
        if not self._took(token):
            raise ValueError(f"{token!r} is wanted before {self._tokens[self._at]!r}.")


def _phrase(found: list[str], begins: list[bool]) -> Filter:
    if not found:
        # FTS5 takes it for nothing alone, and for no condition beside other words.
        return Filter(None, False)
    if len(found) == 1:
        return Filter(f'"{found[0]}"' + "*" * begins[0], True)
    found, begins = found[:MOST_WORDS], begins[:MOST_WORDS]
    asked = {f'"{word}"' + "*" * begin: None for word, begin in zip(found, begins, strict=True)}
    for at in range(1, len(found)):
        if not begins[at - 1] and not begins[at]:
            asked |= dict.fromkeys(bigrams(found[at - 1 : at + 1]))
    return _join(" AND ", [Filter(part, False) for part in asked])


def _join(operator: str, parts: list[Filter]) -> Filter:
    """Parts that match nothing alone are left out: beside others they are, at most, no condition."""
    asked = [part.match for part in parts if part.match is not None]
    exact = all(part.exact for part in parts)
    if len(asked) < 2:
        return Filter(asked[0] if asked else None, exact)
    return Filter(f"({operator.join(asked)})", exact)
