"""From an FTS5 expression to a filter over an index that knows which words a turn has, but not where they are.

The filter lets through every turn that the expression matches, and perhaps others: a phrase or NEAR becomes its words
(and a phrase its bigrams), `^` and column filters are left out, and so is what NOT takes away unless the index can tell
it for certain. Where nothing had to be left out the filter is exact.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from warehouse.search.words import bigrams, words

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
        token = _TOKEN.match(expression, at)
        if token is None:
            raise ValueError(f"Character {at} of the expression is no part of any.")
        tokens.append(token[0].lstrip(" \t\n\r"))
        at = token.end()
    parser = _Parser(tokens)
    weakened = parser.either()
    parser.expect("")
    return weakened


class _Parser:
    """One method per level of FTS5's grammar; from loose to tight: OR, AND, NOT, then words beside each other."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = [*tokens, "", ""]
        self._at = 0

    def either(self) -> Filter:
        parts = [self._both()]
        while self._accept("OR"):
            parts.append(self._both())
        return _join(" OR ", parts)

    def _both(self) -> Filter:
        parts = [self._without()]
        while self._accept("AND"):
            parts.append(self._without())
        return _join(" AND ", parts)

    def _without(self) -> Filter:
        kept, excluded = self._group(), []
        while self._accept("NOT"):
            excluded.append(self._group())
        certain = [part for part in excluded if part.exact]
        if kept.match is None or not excluded:
            return kept
        exact = kept.exact and len(certain) == len(excluded)
        if not certain:
            return Filter(kept.match, exact)
        return Filter(f"({kept.match} NOT {_join(' OR ', certain).match})", exact)

    def _group(self) -> Filter:
        filtered = self._columns()
        if self._accept("("):
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
        self._accept("-")
        if self._accept("{"):
            while not self._accept("}"):
                self._string()
        elif self._tokens[self._at + 1] == ":":
            self._string()
        if not self._accept(":"):
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
            if self._accept(","):
                self._string()
            self.expect(")")
            return Filter(_join(" AND ", parts).match, False)
        first = self._accept("^")
        phrase = self._phrase()
        return Filter(phrase.match, phrase.exact and not first and not filtered)

    def _phrase(self) -> Filter:
        """Strings joined by `+`; a star belongs to the last word so far, also where its own string has none."""
        tokens: list[str] = []
        prefixes: list[bool] = []
        while True:
            added = words(self._string())
            tokens += added
            prefixes += [False] * len(added)
            star = self._accept("*")
            if prefixes:
                prefixes[-1] = star
            if not self._accept("+"):
                return _phrase(tokens, prefixes)

    def _string(self) -> str:
        if not self._is_string():
            raise ValueError(f"A word is missing before {self._tokens[self._at]!r}.")
        token = self._tokens[self._at]
        self._at += 1
        return token[1:-1].replace('""', '"') if token[0] == '"' else token

    def _is_string(self) -> bool:
        token = self._tokens[self._at]
        return token not in ("", "AND", "OR", "NOT") and token not in "(){}:,+*^-"

    def _starts(self) -> bool:
        return self._is_string() or self._tokens[self._at] in ("^", "-", "{")

    def _accept(self, token: str) -> bool:
        accepted = self._tokens[self._at] == token
        self._at += accepted
        return accepted

    def expect(self, token: str) -> None:
        """Step over this token ("" is the end)."""
        if not self._accept(token):
            raise ValueError(f"{token!r} is missing before {self._tokens[self._at]!r}.")


def _phrase(tokens: list[str], prefixes: list[bool]) -> Filter:
    if not tokens:
        # Alone FTS5 matches nothing with it; beside other words it is no condition.
        return Filter(None, False)
    if len(tokens) == 1:
        return Filter(f'"{tokens[0]}"' + "*" * prefixes[0], True)
    tokens, prefixes = tokens[:MOST_WORDS], prefixes[:MOST_WORDS]
    terms = {f'"{token}"' + "*" * prefix: None for token, prefix in zip(tokens, prefixes, strict=True)}
    for at in range(1, len(tokens)):
        if not prefixes[at - 1] and not prefixes[at]:
            terms |= dict.fromkeys(bigrams(tokens[at - 1 : at + 1]))
    return _join(" AND ", [Filter(term, False) for term in terms])


def _join(operator: str, parts: list[Filter]) -> Filter:
    """Parts that match nothing alone are left out: beside others they are, at most, no condition."""
    terms = [part.match for part in parts if part.match is not None]
    exact = all(part.exact for part in parts)
    if len(terms) < 2:
        return Filter(terms[0] if terms else None, exact)
    return Filter(f"({operator.join(terms)})", exact)
