"""Views and macros, one SQL file per topic, and the list of named queries.

Each file holds ``CREATE OR REPLACE`` statements. A query is a table macro whose parameters all have defaults, with
its description in the comment above it. It is available as ``name(...)`` in SQL, as a view where no parameter is
needed, and as ``Warehouse.query(name, **params)``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from analysis.measure.collapse_rule import fill

_MACRO = re.compile(r"((?:^--[^\n]*\n)+)CREATE OR REPLACE MACRO (\w+)\(([^)]*)\) AS TABLE", re.MULTILINE)

_DEFINED = re.compile(r"^CREATE OR REPLACE (?:VIEW|MACRO) (\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Query:
    """A named query: its description, and its parameters with their defaults as SQL text (None: no default)."""

    name: str
    doc: str
    params: dict[str, str | None]


@cache
def scripts() -> tuple[str, ...]:
    """SQL text of the view files, in order."""
    return tuple(fill(file.read_text()) for file in sorted(Path(__file__).parent.glob("*.sql")))


@cache
def queries() -> dict[str, Query]:
    """Return every named query."""
    by_name = {}
    for text in scripts():
        for comment, name, signature in _MACRO.findall(text):
            doc = " ".join(line.removeprefix("--").strip() for line in comment.strip().splitlines())
            by_name[name] = Query(name, doc, _params(signature))
    return dict(sorted(by_name.items()))


@cache
def definitions() -> dict[str, str]:
    """Return the SQL text of each view and macro except those over single tables (the first file's), by name, in order."""
    texts = {}
    for script in scripts()[1:]:
        starts = [*_DEFINED.finditer(script)]
        ends = [*(start.start() for start in starts[1:]), len(script)]
        for start, end in zip(starts, ends, strict=True):
            texts[start[1]] = script[start.start() : end]
    return texts


def _params(signature: str) -> dict[str, str | None]:
    params: dict[str, str | None] = {}
    for part in filter(None, (item.strip() for item in signature.split(","))):
        name, _, default = part.partition(":=")
        params[name.strip()] = default.strip() or None
    return params
