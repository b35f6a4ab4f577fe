"""Run names in SQL: in ``run := 'latest'``, a name or the beginning of an id becomes the run's id."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import duckdb

from warehouse import views
from warehouse.files.runs import find_run
from warehouse.schema import literal


def with_run_ids(root: Path, text: str) -> str:
    """Replace each run name in a query's arguments by the run's id. Raises ConfigError for an unknown run."""
    parts = [part for _, part in _parts(text)]
    for position in list(_named(text)):
        quoted = parts[position].rstrip()
        run_id = find_run(root, quoted[1:-1].replace("''", "'"))["run_id"]
        parts[position] = literal(run_id) + parts[position][len(quoted) :]
    return "".join(parts)


def _named(text: str) -> Iterator[int]:
    """Yield the positions of run names: after ``run :=``, and as the first argument of a query whose first parameter
    is ``run``.
    """
    visible_parts = [
        (position, kind, part.strip())
        for position, (kind, part) in enumerate(_parts(text))
        if kind != duckdb.token_type.comment and part.strip()
    ]
    queries = {name for name, query in views.queries().items() if next(iter(query.params), None) == "run"}
    for (_, _, before), (_, _, between), (position, kind, token) in zip(
        visible_parts, visible_parts[1:], visible_parts[2:], strict=False
    ):
        if kind != duckdb.token_type.string_const or not token.startswith("'"):
            continue
        first = before.lower()
        if (first == "run" and between in (":=", "=>")) or (first in queries and between == "("):
            yield position


def _parts(text: str) -> list[tuple[object, str]]:
    """Split the text at its tokens, each with its kind; joined again they are the text."""
    data, tokens = text.encode(), duckdb.tokenize(text)
    starts = [0, *(start for start, _ in tokens[1:]), len(data)] if tokens else [0, len(data)]
    kinds: list[object] = [kind for _, kind in tokens] or [None]
    return [
        (kind, data[a:b].decode(errors="replace"))
        for kind, (a, b) in zip(kinds, itertools.pairwise(starts), strict=True)
    ]
