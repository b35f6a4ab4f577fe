"""People compared with simulated users on the same tasks, paired (UserRL table 5), for all runs or one run's checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from userrl.machine.home import warehouse_dir
from userrl.reports.document import Block, Document, TableBlock, Text
from userrl.reports.report import Report
from userrl_core.errors import ConfigError
from userrl_core.number_format import number, with_limits
from warehouse import Warehouse, open_warehouse
from warehouse.files.layout import run_dir

if TYPE_CHECKING:
    from analysis.measure.interval import Interval

RUN = "people"
"""The run of the warehouse that holds the conversations of people."""

TITLE = "People compared with simulated users, on the same tasks"

FEW = 20
"""Number of tasks below which the report warns that there are few."""


@dataclass(frozen=True, slots=True)
class PeoplePair:
    """People and simulated players in the same part against the same other side, over their common tasks.

    conversations: people's conversations on these tasks. difference: people − simulated, paired by task.
    """

    gym: str
    part: str
    other_side: str
    simulated: str
    conversations: int
    people_score: Interval
    simulated_score: Interval
    difference: Interval

    @property
    def tasks(self) -> int:
        """The number of common tasks."""
        return self.difference.units


@dataclass(frozen=True, slots=True)
class PeopleReport(Report):
    """Conversations of people compared with simulated users on the same tasks."""

    def document(self) -> Document:
        """Return the comparison of all studies."""
        with open_warehouse(warehouse_dir()) as warehouse:
            return people_document(warehouse)

    def as_json(self) -> list[dict[str, Any]]:
        """Return one row per pair of people and simulated players."""
        with open_warehouse(warehouse_dir()) as warehouse:
            return as_json(paired(warehouse))

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return one row per pair of people and simulated players."""
        return self.as_json()


def paired(warehouse: Warehouse, run_id: str | None = None) -> list[PeoplePair]:
    """Return all pairs. run_id: only pairs with a checkpoint of this run as the agent."""
    if not run_dir(warehouse.root, RUN).is_dir():
        return []  # nobody has played, and the query reads every conversation
    sides: dict[tuple[str, str, str, str], list[Mapping[str, Any]]] = {}
    for row in warehouse.rows("FROM people_by_task"):
        if run_id is None or row["other_side"].partition(" ")[0] == run_id:
            sides.setdefault((row["gym"], row["part"], row["other_side"], row["simulated"]), []).append(row)
    return [_pair(*key, rows) for key, rows in sides.items()]


def _pair(gym: str, part: str, other_side: str, simulated: str, rows: Sequence[Mapping[str, Any]]) -> PeoplePair:
    from analysis.measure.checkpoints import (
        difference,
        mean_score,
    )  # imported here: scipy takes a quarter of the page's memory

    people, rules = [row["people_scores"] for row in rows], [row["simulated_scores"] for row in rows]
    between = difference(rules, people).interval
    return PeoplePair(
        gym, part, other_side, simulated, sum(map(len, people)), mean_score(people), mean_score(rules), between
    )


def people_document(warehouse: Warehouse) -> Document:
    """Return the page on all conversations of people. Raises ConfigError if there are none."""
    conversations = warehouse.rows("FROM people(run := $run)", run=RUN)
    if not conversations:
        raise ConfigError(
            "run.no_conversations",
            "No person has held a conversation yet. Start one with `userrl play GYM --as user`, or under "
            "People in `userrl view`.",
        )
    scored = [row for row in conversations if row["admitted"]]
    names = {row["person"] for row in conversations if row["person"]}
    ratings = [row["rating"] for row in conversations if row["rating"]]
    people = _many(len(names), "named person", "named people")
    sentences = [f"{_many(len(conversations), 'conversation')} of {people}; {len(scored)} could be scored."]
    if ratings:
        mean = sum(ratings) / len(ratings)
        sentences.append(f"Mean rating of the other side: {number(mean, 1)} of 5, {_many(len(ratings), 'rating')}.")
    sentences += studies(warehouse)
    pairs = [*beside_simulated(warehouse)] or [
        Text("No simulated user or agent has played the same tasks with the same other side.")
    ]
    return Document(TITLE, (*map(Text, sentences), *pairs))


def beside_simulated(warehouse: Warehouse, run_id: str | None = None) -> Iterator[Block]:
    """Yield the paired table with its notes. Yields nothing if people and simulated players share no task."""
    pairs = paired(warehouse, run_id)
    if not pairs:
        return
    yield TableBlock(
        ("gym", "part", "other side", "simulated by", "tasks", "conversations", "people", "simulated", "people − simulated"),
        tuple(
            (
                pair.gym, pair.part, pair.other_side, pair.simulated, str(pair.tasks), str(pair.conversations),
                with_limits(pair.people_score), with_limits(pair.simulated_score), with_limits(pair.difference, sign=True),
            )
            for pair in pairs
        ),
        NOTE,
    )  # fmt: skip
    yield from map(Text, unseen(pairs))
    if caution := few(pairs):
        yield Text(caution, strong=True)


NOTE = (
    "Mean scores with 95 % limits; the difference is paired over tasks (Student's t, whose limits may exceed the score range; "
    "Wilson's for few 0/1 scores; a dash for a single task). Conversations: those of people. The limits are over tasks: they "
    "say nothing about other people."
)


def unseen(pairs: Sequence[PeoplePair]) -> list[str]:
    """Return what the number of conversations of each pair cannot see."""
    from analysis.measure.power import SCORE_DEVIATION, smallest_seen

    return [
        f"{pair.gym}, {pair.part}, with {pair.other_side}: with {_many(pair.conversations, 'conversation')} a difference below "
        f"{number(smallest_seen(pair.conversations), 2)} is not seen (80 % power at 5 %; standard deviation "
        f"{number(SCORE_DEVIATION, 1)} of a paired difference, as planned)."
        for pair in pairs
    ]


def studies(warehouse: Warehouse) -> list[str]:
    """Return a sentence about each planned study: conversations and persons so far, and what its full size cannot see."""
    from analysis.measure.power import smallest_seen

    planned = warehouse.rows(
        "SELECT fields->>'study' AS study, max((fields->>'persons')::INT) AS persons, "
        "max((fields->>'conversations')::INT) AS each FROM events WHERE run_id = $run AND kind = 'study' GROUP BY ALL",
        run=RUN,
    )
    sentences = []
    for row in planned:
        conversations = warehouse.rows(
            "FROM people(run := $run) WHERE study = $study AND admitted", run=RUN, study=row["study"]
        )
        size = row["persons"] * row["each"]
        sentences.append(
            f"Study {row['study']}: {_many(len(conversations), 'conversation')} of "
            f"{_many(len({conversation['person'] for conversation in conversations}), 'person')}; planned are "
            f"{size} of {row['persons']} persons. With {size} conversations a difference in success below "
            f"{number(smallest_seen(size), 2)} is not seen."
        )
    return sentences


def few(pairs: Sequence[PeoplePair]) -> str:
    """Return a warning if there are few tasks, else ""."""
    fewest = min((pair.tasks for pair in pairs), default=FEW)
    if fewest >= FEW:
        return ""
    return f"Few tasks (minimum {fewest}): treat this as a pilot of the study, not as its result."


def as_json(pairs: Sequence[PeoplePair]) -> list[dict[str, Any]]:
    """Return the pairs for programs. Infinite limits are null."""
    return [
        {
            "gym": pair.gym,
            "part": pair.part,
            "other_side": pair.other_side,
            "simulated": pair.simulated,
            "tasks": pair.tasks,
            "conversations": pair.conversations,
            "people": pair.people_score.as_json(),
            "simulated_score": pair.simulated_score.as_json(),
            "difference": pair.difference.as_json(),
        }
        for pair in pairs
    ]


def _many(count: int, singular: str, plural: str = "") -> str:
    return f"{count} {singular if count == 1 else plural or singular + 's'}"
