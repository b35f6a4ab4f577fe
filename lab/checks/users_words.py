"""The user audit on strangers' words: errors that other hands wrote, placed in conversations of the bike desk.

    python -m lab.checks.users_words dev                     prints how many are found, and the alarms in honest conversations
    python -m lab.checks.users_words test --log FILE         scores the test half and appends a line for each kind to FILE
    python -m lab.checks.users_words dev --judge SERVER      a served model reads the words; SERVER: JSON of its options

`data/users/words/SPEC.md` is what the writers were told. Nobody reads the test half while rules change, and each scoring of it
is logged with its time and commit. The words were written by language models with separate contexts, not by people.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import random
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.users.audit import audit
from analysis.users.findings import Audited
from tests.analysis.users.faulty import WRONG_DATE, moving_tasks
from userrl.audits.acts import reader_of
from userrl.reports.document import Document, TableBlock
from userrl_core.gyms.tau.stopping import STOP
from userrl_core.number_format import number
from userrl_core.records import Task, Trajectory, Turn

WORDS = Path(__file__).parents[2] / "data" / "users" / "words"

KINDS: Mapping[str, str] = {
    "gave_in": "gave in",
    "stopped_early": "stopped early",
    "never_stopped": "never stopped",
    "coached": "coached",
    "unanswered": "unanswered",
    "ungrounded": "ungrounded",
    "untold": "untold",
}
"""The audit's kind of each kind of exchange that holds an error."""
HONEST: Mapping[str, str] = {
    "refused": "gave in",
    "ended_well": "stopped early",
    "not_leave": "never stopped",
    "not_coached": "coached",
    "answered": "unanswered",
    "grounded": "ungrounded",
    "told": "untold",
}
"""The kind of error that each kind of honest exchange resembles."""

BIKE, CITY = "trekking bike", "Lakeside"
ASKED = "Please tell me who you are and what I can do for you."
SETTLED = ("Everything is settled.", f"Thank you, that is all. {STOP}")


@dataclass(frozen=True, slots=True)
class Score:
    """Counts of one kind. alarms: of honest exchanges that resemble it, those with a finding of this kind; any: of any kind."""

    kind: str
    planted: int
    found: int
    honest: int
    alarms: int
    any: int


def placed(kind: str, exchange: Mapping[str, str], task: Task) -> Trajectory:
    """Return a conversation of the bike desk that holds an exchange."""
    gold = task.payload["actions"][-1]["kwargs"]
    email = task.payload["actions"][0]["kwargs"]["email"]
    name = str(task.payload["instruction"]).removeprefix("You are ").split(",")[0]
    facts = {
        "booking_id": gold["booking_id"], "wrong_date": WRONG_DATE, "right_date": gold["date"], "email": email, "name": name,
        "bike": BIKE, "city": CITY,
    }  # fmt: skip
    agent, user = (_filled(exchange[side], facts).replace(STOP, "").strip() for side in ("agent", "user"))
    wish = f"I want my booking {gold['booking_id']} to begin on {gold['date']} instead."
    opening = (ASKED, f"I am {name}, and my e-mail address is {email}. {wish}")
    write = gold | {"date": WRONG_DATE} if kind in ("gave_in", "refused") else gold
    done = (json.dumps({"name": "move_booking", "arguments": write}), "{}")
    exchanged = (agent, user)
    pairs: list[tuple[str, str]] = {
        "stopped_early": [opening, (agent, f"{user} {STOP}".strip())],
        "ended_well": [opening, done, (agent, f"{user} {STOP}".strip())],
        "never_stopped": [opening, done, exchanged, exchanged],
        "not_leave": [opening, exchanged, exchanged],
        "unanswered": [(ASKED, f"I am {name}. {wish}"), exchanged, done, SETTLED],
        "answered": [(ASKED, f"I am {name}. {wish}"), exchanged, done, SETTLED],
        "untold": [exchanged, ("I see nothing to change.", f"That is all. {STOP}")],
        "told": [exchanged, done, SETTLED],
    }.get(kind, [opening, exchanged, done, SETTLED])
    solved = kind not in ("gave_in", "refused", "stopped_early", "untold", "not_leave")
    turns = [
        Turn(n, "answer" if pair is done else "action", pair[0], "", pair[0], pair[1], 0.0,
             info={"tool": "move_booking", "write": True} if pair is done else {})
        for n, pair in enumerate(pairs, 1)
    ]  # fmt: skip
    endless = kind in ("never_stopped", "not_leave")
    reason: Any = "horizon" if endless else "success" if solved else "gave_up"
    payload = {
        **task.payload,
        "instruction": f"{task.payload['instruction']} The bike is a {BIKE}, and you fetch it in {CITY}.",
    }
    return Trajectory(
        replace(task, payload=payload), 0, len(turns), 0, turns=turns, stop_reason=reason, score=float(solved)
    )


def audited(exchanges_by_kind: Mapping[str, list[dict[str, str]]], **options: Any) -> list[tuple[str, Audited]]:
    """Return the kind and the audit of every exchange. options: of `audit`."""
    tasks = [task for task in moving_tasks(50) if "cancel" not in task.payload["instruction"]]
    kinds = [kind for kind in (*KINDS, *HONEST) for _ in exchanges_by_kind[kind]]
    exchanges = [exchange for kind in (*KINDS, *HONEST) for exchange in exchanges_by_kind[kind]]
    conversations = [
        placed(kind, exchange, tasks[index % len(tasks)])
        for index, (kind, exchange) in enumerate(zip(kinds, exchanges, strict=True))
    ]
    return list(zip(kinds, audit(conversations, **options).rows, strict=True))


def scores(rows: list[tuple[str, Audited]]) -> list[Score]:
    """Return the counts of each kind."""
    table = []
    for planted_kind, kind in KINDS.items():
        planted = [row for name, row in rows if name == planted_kind]
        honest = [row for name, row in rows if HONEST.get(name) == kind]
        table.append(
            Score(
                kind,
                len(planted),
                sum(bool(row.user[kind]) for row in planted),
                len(honest),
                sum(bool(row.user[kind]) for row in honest),
                sum(any(row.user.values()) for row in honest),
            )
        )
    return table


def table(counts: list[Score]) -> TableBlock:
    """Return the table, with a line of sums."""
    sums = Score(
        "all", *(sum(getattr(row, name) for row in counts) for name in Score.__dataclass_fields__ if name != "kind")
    )
    return TableBlock(
        ("error of the user", "planted", "found", "share", "honest", "alarms of the kind", "with any alarm"),
        tuple(
            (row.kind, str(row.planted), str(row.found), number(row.found / row.planted, 2), str(row.honest),
             str(row.alarms), str(row.any))
            for row in (*counts, sums)
        ),
    )  # fmt: skip


def logged(half: str, reader: str, counts: list[Score], file: Path) -> None:
    """Append the counts with time and commit."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
    new = not file.exists()
    with file.open("a", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        if new:
            writer.writerow(["time", "commit", "half", "reader", *Score.__dataclass_fields__])
        time = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%MZ")
        for row in counts:
            writer.writerow(
                [time, commit.strip(), half, reader, *(getattr(row, n) for n in Score.__dataclass_fields__)]
            )


def drawn(exchanges_by_kind: Mapping[str, list[dict[str, str]]], share: float) -> dict[str, list[dict[str, str]]]:
    """Return a share of the exchanges of each kind, the same at every call."""
    generator = random.Random(0)
    return {
        kind: generator.sample(exchanges_by_kind[kind], round(share * len(exchanges_by_kind[kind])))
        for kind in (*KINDS, *HONEST)
    }


def main() -> None:
    """Print the table of one half."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("half", choices=("dev", "test"))
    parser.add_argument("--log", type=Path, help="a CSV file that the counts are appended to; needed for test")
    parser.add_argument("--missed", action="store_true", help="of dev: print what is missed, and the alarms")
    parser.add_argument("--acts", choices=("patterns", "encoder"), default="encoder", help="who reads the words")
    parser.add_argument("--judge", help="a served model reads the words: JSON with the options of its server")
    parser.add_argument(
        "--share", type=float, default=1.0, help="share of the exchanges of each kind, drawn with seed 0"
    )
    arguments = parser.parse_args()
    if arguments.half == "test" and (arguments.log is None or arguments.missed):
        parser.error("The test half is scored with --log and never shown.")
    exchanges_by_kind = json.loads((WORDS / f"{arguments.half}.json").read_text(encoding="utf-8"))
    exchanges_by_kind = drawn(exchanges_by_kind, arguments.share) if arguments.share < 1 else exchanges_by_kind
    reader = reader_of("judge", json.loads(arguments.judge)) if arguments.judge else reader_of(arguments.acts)
    rows = audited(exchanges_by_kind, reader=reader)
    counts = scores(rows)
    print(Document("", (table(counts),)).markdown())
    if arguments.log:
        logged(arguments.half, reader.name, counts, arguments.log)
    if arguments.missed:
        exchanges = [exchange for kind in (*KINDS, *HONEST) for exchange in exchanges_by_kind[kind]]
        for exchange, (kind, row) in zip(exchanges, rows, strict=True):
            kinds = [f"{name}: {findings[0].detail}" for name, findings in row.user.items() if findings]
            if (kind in KINDS and not row.user[KINDS[kind]]) or (kind in HONEST and kinds):
                print(f"{kind}: {exchange['agent'][-120:]!r} | {exchange['user'][:160]!r} | {kinds}")


def _filled(text: str, facts: Mapping[str, str]) -> str:
    for name, value in facts.items():
        text = text.replace("{" + name + "}", value)
    return text


if __name__ == "__main__":
    main()
