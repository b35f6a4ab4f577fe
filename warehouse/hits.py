"""The turns that a search finds: candidates of the text index, read from the warehouse in rounds until there are enough."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from userrl_core.errors import ConfigError
from warehouse import search

if TYPE_CHECKING:
    from warehouse.query.connection import Warehouse


SHOWN = (
    *("run_id", "traj_id", "turn", "gym", "stage", "step", "phase"),
    *("reward", "choice", "content", "observation", "thought"),
)
"""Columns of a hit."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The one run whose turns are wanted, and the numbers of runs that it is certainly not (upper bits of a traj_id)."""

    run_id: str
    others: frozenset[int]


def newest(warehouse: Warehouse, text: str, limit: int, wanted: Wanted | None, seconds: float) -> pa.Table:
    """At most `limit` matching turns, newest first. Raises ConfigError when there is no index, or the time is up.

    Few candidates are asked for at first, as turns that lie far from each other cost most of a search's time. Memory is
    bounded by one round of `search.MOST` turns; time by `seconds`, as common words that never stand as the expression
    wants them would have every turn read.
    """
    found: list[pa.Table] = []
    missing, step, read = limit, min(limit + limit // 10 + 1, search.MOST), 0
    end = time.monotonic() + seconds
    with search.asking(warehouse.root, text) as question:
        while True:
            candidates = question.more(step)
            last = len(candidates) < step
            if wanted is not None:
                candidates = [key for key in candidates if key[0] >> 40 not in wanted.others]
            got = 0
            if candidates or not found:
                found.append(_matches(warehouse, candidates, wanted, question))
                got = found[-1].num_rows
            missing -= got
            if missing <= 0 or last:
                return pa.concat_tables(found).slice(0, limit)
            read += len(candidates)
            if time.monotonic() > end:
                have = limit - missing
                less = f", or ask for the first {have}" if have else ""
                raise ConfigError(
                    f"After {seconds:.0f} s, {have} of {read:,} turns that hold these words match; "
                    f"name a rarer word{less}."
                )
            # Twice what the share of matches so far calls for; where hardly any matched, four times as many.
            step = min(4 * step, 1 + 2 * missing * step // max(got, 1), search.MOST)


def _matches(
    warehouse: Warehouse, candidates: list[tuple[int, int]], wanted: Wanted | None, question: search.Question
) -> pa.Table:
    """Those that match, as they stand now, in their order."""
    table = warehouse.turns_at(candidates, SHOWN)
    if wanted is not None:
        table = table.filter(pc.equal(table.column("run_id"), wanted.run_id))
    if question.exact or not table.num_rows:
        return table
    said = table.select(["thought", "content", "observation", "choice", "traj_id", "turn"]).to_pylist()
    # Only what could not be read as a call is searched as it was sent: it costs a question of its own.
    if unread := [(row["traj_id"], row["turn"]) for row in said if row["choice"] is None]:
        sent = warehouse.turns_at(unread, ["traj_id", "turn", "message"]).to_pylist()
        messages = {(row["traj_id"], row["turn"]): row["message"] for row in sent}
        for row in said:
            if row["choice"] is None:
                row["content"] = messages.get((row["traj_id"], row["turn"]))
    return table.filter(pa.array(question.matching([_text(row) for row in said]), pa.bool_()))


def _text(turn: Mapping[str, str | None]) -> str:
    """`search.TEXT` in Python; `content` is the message where there was no choice."""
    return " ".join(part for part in (turn["thought"], turn["content"], turn["observation"]) if part is not None)
