"""Errors planted in scripted customers: how many the user audit finds, and how often it finds one that is not there.

    python -m lab.checks.users_planted                                     prints the table
    python -m lab.checks.users_planted --data data/users/planted.csv      also writes its numbers

For each kind of error and each seed, customers of the tau domain `bikes` talk about tasks with one gold write. A share of them
makes the error, in one of five wordings. The others are honest: they add an aside, and half of them refuse a wrong write.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from analysis.users.audit import audit
from analysis.users.findings import USER_ERRORS, possible
from tests.analysis.users.faulty import ASIDES, WORDINGS, converse, moving_tasks
from userrl.reports.document import Document, TableBlock
from userrl_core.number_format import number

SHARE, CUSTOMERS, SEEDS = 0.25, 40, 10


@dataclass(frozen=True, slots=True)
class Planted:
    """Counts of conversations. found: with the error and a finding of its kind. wordings: of the error, that were found at
    least once. alarms: honest, with a finding of the kind.
    """

    kind: str
    planted: int
    found: int
    wordings: int
    honest: int
    alarms: int


async def planted(kind: str, seeds: Sequence[int], customers: int = CUSTOMERS) -> Planted:
    """Play the conversations of one kind of error, and audit them."""
    counts, wordings_found = [0, 0, 0, 0], set()
    tasks = moving_tasks(customers)
    for seed in seeds:
        rng = random.Random(f"{kind} {seed}")
        faulty = set(rng.sample(range(customers), round(SHARE * customers)))
        talks, worded = [], {}
        for customer in range(customers):
            fault = kind if customer in faulty else rng.choice(("", "refused"))
            wording, aside = rng.randrange(len(WORDINGS[kind])), rng.randrange(len(ASIDES))
            worded[customer] = wording
            task = tasks[customer % len(tasks)]
            talks.append(await converse(task, fault, wording=wording if customer in faulty else 0, aside=aside))
        having = {customer for customer, row in enumerate(audit(talks).rows) if row.user[kind]}
        wordings_found |= {worded[customer] for customer in faulty & having}
        for at, n in enumerate((len(faulty), len(faulty & having), customers - len(faulty), len(having - faulty))):
            counts[at] += n
    return Planted(kind, counts[0], counts[1], len(wordings_found), counts[2], counts[3])


def table(counts: Sequence[Planted]) -> TableBlock:
    """Return the table. It has no limits, because the conversations share few wordings."""
    return TableBlock(
        ("error of the user", "planted", "found", "share found", "wordings found", "honest", "false alarms"),
        tuple(
            (
                f"{row.kind} (possible)" if possible(row.kind) else row.kind,
                str(row.planted),
                str(row.found),
                number(row.found / row.planted, 2),
                f"{row.wordings} of {len(WORDINGS[row.kind])}",
                str(row.honest),
                str(row.alarms),
            )
            for row in counts
        ),
    )


async def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a CSV file to write")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="number of seeds, from 0")
    arguments = parser.parse_args()
    counts = [await planted(kind, range(arguments.seeds)) for kind in USER_ERRORS]
    print(Document("", (table(counts),)).markdown())
    if arguments.data:
        pl.DataFrame(counts).write_csv(arguments.data)


if __name__ == "__main__":
    asyncio.run(main())
