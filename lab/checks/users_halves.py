"""Halves of one recorded user, and two different users: what the distances of the user audit can tell apart.

    python -m lab.checks.users_halves DATA                                prints the table
    python -m lab.checks.users_halves DATA --data data/users/halves.csv   also writes every comparison

DATA is tau-bench's folder. It holds 200 recorded airline conversations of a gpt-4o user: 50 tasks with four attempts each.

Each seed splits the attempts of every task in two halves. The first half is the reference. Three users are compared with it:
the second half, the second half without its words of courtesy, and tau's rule customer. The rule customer answers the agent
messages of the second half.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from analysis.users.conversation import conversation
from analysis.users.distance import Users, distance
from analysis.users.features import DIMENSIONS, fingerprint
from tests.analysis.users.recorded import recorded
from userrl.reports.document import Document, TableBlock
from userrl_core.gyms.tau.rule_user import RuleTauUser
from userrl_core.gyms.tau.stopping import STOP
from userrl_core.number_format import number
from userrl_core.records import Trajectory

SEEDS, TREES = 5, 50
COURTESY = re.compile(
    r",? *\b(please|thank you( so much| very much)?( for [\w ]+)?|thanks|i appreciate[\w ]*)\b[.!,]?", re.I
)
HALF, CURT, RULE = "the other half", "the other half without courtesy", "the rule customer"


@dataclass(frozen=True, slots=True)
class Compared:
    """One comparison. below: which of D1 to D4 are below the floor's lower limit. js_above: whether the divergence is above it."""

    user: str
    seed: int
    auc: float
    floor: float
    apart: bool
    below: str
    js_above: bool


def halves(talks: Sequence[Trajectory], seed: int) -> tuple[list[Trajectory], list[Trajectory]]:
    """Split the attempts of every task in two."""
    rng, by_task = random.Random(seed), dict[str, list[Trajectory]]()
    for trajectory in talks:
        by_task.setdefault(trajectory.task.id, []).append(trajectory)
    first, second = [], []
    for attempts in by_task.values():
        drawn = rng.sample(attempts, len(attempts))
        first += drawn[: len(drawn) // 2]
        second += drawn[len(drawn) // 2 :]
    return first, second


async def answered_by_rule(recorded_talk: Trajectory) -> list[str]:
    """Return what the rule customer says to the agent's messages of a recorded conversation."""
    user, utterances = RuleTauUser(recorded_talk.task, random.Random(recorded_talk.attempt)), []
    for message in [
        "Hi! How can I help you today?",
        *(t.content for t in recorded_talk.turns if t.choice == "message"),
    ]:
        reply = await user.reply(message or "")
        utterances.append(reply.replace(STOP, "").strip())
        if STOP in reply:
            break
    return [text for text in utterances if text]


def users(name: str, texts_by_conversation: Sequence[tuple[str, Sequence[str]]]) -> Users:
    """Return the fingerprints. texts_by_conversation: task and utterances of each conversation."""
    nonempty = [(task, texts) for task, texts in texts_by_conversation if texts]
    return Users(
        name, np.array([list(fingerprint(texts).values()) for _, texts in nonempty]), tuple(t for t, _ in nonempty)
    )


def compared(user: Users, reference: Users, seed: int) -> Compared:
    """Measure one comparison."""
    measured = distance(user, reference, trees=TREES)
    below = [key for key in DIMENSIONS if measured.dimensions[key] < measured.floor[key][1]]
    test = measured.classifier
    return Compared(
        user.name, seed, test.auc, test.floor, test.apart, " ".join(below), measured.js > measured.floor["js"][2]
    )


def table(rows: Sequence[Compared]) -> TableBlock:
    """Return the table: one row per user."""
    table_rows = []
    for name in dict.fromkeys(row.user for row in rows):
        user_rows = [row for row in rows if row.user == name]
        aucs = sorted(row.auc for row in user_rows)
        dimensions = [f"{key} {sum(key in row.below.split() for row in user_rows)}" for key in DIMENSIONS]
        table_rows.append(
            (
                name,
                f"{sum(row.apart for row in user_rows)} of {len(user_rows)}",
                f"{number(float(np.mean(aucs)), 2)} ({number(aucs[0], 2)} to {number(aucs[-1], 2)})",
                number(float(np.mean([row.floor for row in user_rows])), 2),
                ", ".join(dimensions),
                f"{sum(row.js_above for row in user_rows)} of {len(user_rows)}",
            )
        )
    head = ("compared with half of the recorded user", "told apart", "AUC", "its floor", "below the floor", "JS above")
    return TableBlock(head, tuple(table_rows))


async def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, help="a CSV file to write")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="number of seeds, from 0")
    arguments = parser.parse_args()
    talks = recorded(arguments.folder)
    rows = []
    for seed in range(arguments.seeds):
        first, second = ([(trajectory.task.id, trajectory) for trajectory in half] for half in halves(talks, seed))
        reference = users("reference", [(task, conversation(trajectory).utterances()) for task, trajectory in first])
        second_half = [(task, conversation(trajectory).utterances()) for task, trajectory in second]
        curt = [
            (task, [kept for text in texts if (kept := COURTESY.sub("", text).strip())]) for task, texts in second_half
        ]
        rule = [(task, await answered_by_rule(trajectory)) for task, trajectory in second]
        for name, utterances in ((HALF, second_half), (CURT, curt), (RULE, rule)):
            rows.append(compared(users(name, utterances), reference, seed))
    print(Document("", (table(rows),)).markdown())
    if arguments.data:
        pl.DataFrame(rows).write_csv(arguments.data)


if __name__ == "__main__":
    asyncio.run(main())
