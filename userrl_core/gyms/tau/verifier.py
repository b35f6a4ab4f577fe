"""Verification of a conversation: its writes against the gold writes (TARL 2.1), or its database against gold's (tau-bench).

A write is a call that changed the database. A failed one counts on neither side, so a gold write that fails in the published
data is not required. The two verdicts differ if other writes lead to the same state, or if extra writes undo each other. Both
are recorded with every conversation, whichever is rewarded.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from userrl_core.gyms.tau.database import Database, Tables, with_integers
from userrl_core.gyms.tau.tools import Domain, ToolError

Write = tuple[str, Mapping[str, Any]]
"""A tool that changes the database, and its arguments."""


class GoldReplay(NamedTuple):
    """Executed gold actions. errors: of the failed writes, which leave the database unchanged. writes: the others, in order."""

    database: Database
    errors: list[str]
    writes: list[Write]


@dataclass(frozen=True, slots=True)
class WritesVerdict:
    """writes: the same as gold's, in any order. database: the same state as gold's. missing: outputs not told."""

    writes: bool
    database: bool
    missing: tuple[str, ...]


def replay(domain: Domain, actions: Sequence[Mapping[str, Any]], base: Tables | None = None) -> GoldReplay:
    """Execute the gold writes. base: the task's own records, which replace the domain's."""
    gold = GoldReplay(Database(domain.base if base is None else base), [], [])
    for action in actions:
        if action["name"] in domain.writes:
            try:
                domain.execute(gold.database, action["name"], action["kwargs"])
                gold.writes.append((action["name"], action["kwargs"]))
            except ToolError as error:
                gold.errors.append(f"gold action {action['name']} fails on replay: {error}")
    return gold


def verify(
    gold: GoldReplay, writes: Iterable[Write], database: Database, outputs: Iterable[str], messages: Sequence[str]
) -> WritesVerdict:
    """Compare an agent's writes, database and messages with the requirements.

    writes: the agent's successful ones. outputs: texts that the task demands; commas and case do not matter.
    """
    message_texts = [message.lower().replace(",", "") for message in messages]
    missing_outputs = tuple(
        text for text in outputs if not any(text.lower().replace(",", "") in message for message in message_texts)
    )
    same_writes = Counter(map(exact, writes)) == Counter(map(exact, gold.writes))
    return WritesVerdict(same_writes, database.digest() == gold.database.digest(), missing_outputs)


def exact(write: Write) -> str:
    """Return a write as text, the same for the same name and arguments. 5 and 5.0 are equal, reordered lists are not."""
    name, arguments = write
    return f"{name} {json.dumps(with_integers(arguments), sort_keys=True, ensure_ascii=False)}"
