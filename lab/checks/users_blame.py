"""The user audit's verdicts, and the rule judge's marks, beside two readers' labels of failed conversations of tau-bench's airline.

    python -m lab.checks.users_blame DATA dev
    python -m lab.checks.users_blame DATA test --log FILE      scores the test half and appends its figures to FILE

DATA: tau-bench's folder. `data/users/blame/HALF_readerN.csv` has conversation, verdict, deviation_turn and flaw_turns. The
readers are language models with separate contexts, not people. The test half is never looked at while rules change.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.users.audit import audit
from analysis.users.findings import BY_WORDS, VERDICTS
from lab.checks.users_turns import Marks, judged
from tests.analysis.users.recorded import recorded
from userrl.audits.acts import reader_of
from userrl.audits.user import airline

LABELS = Path(__file__).parents[2] / "data" / "users" / "blame"
READERS = (1, 2)


@dataclass(frozen=True, slots=True)
class Label:
    """A reader's label. marks: of the agent's turns that are not right, -1 or 0."""

    verdict: str
    marks: Mapping[int, int]


def labels(half: str, reader: int) -> dict[str, Label]:
    """Return a reader's labels by conversation."""
    with (LABELS / f"{half}_reader{reader}.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {
        row["conversation"]: Label(
            row["verdict"],
            {int(turn): 0 for turn in row["flaw_turns"].split()}
            | ({int(row["deviation_turn"]): -1} if row["deviation_turn"] else {}),
        )
        for row in rows
    }


def kappa(pairs: Sequence[tuple[str, str]]) -> float:
    """Return Cohen's kappa of pairs of labels."""
    observed = sum(a == b for a, b in pairs) / len(pairs)
    first, second = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    chance = sum(first[name] * second[name] for name in first) / len(pairs) ** 2
    return (observed - chance) / (1 - chance) if chance < 1 else 1.0


def confusion(pairs: Sequence[tuple[str, str]]) -> str:
    """Return the table of the audit's verdicts (rows) against a reader's."""
    table = Counter(pairs)
    lines = ["| audit \\\\ reader | " + " | ".join(VERDICTS) + " |", "| --- |" + " ---: |" * len(VERDICTS)]
    lines += [f"| {row} | " + " | ".join(str(table[row, name]) for name in VERDICTS) + " |" for row in VERDICTS]
    return "\n".join(lines)


def agreement(name: str, pairs: Sequence[tuple[str, str]]) -> tuple[str, int, int, float]:
    """Return a name, the number of equal pairs, all pairs, and kappa."""
    return name, sum(a == b for a, b in pairs), len(pairs), kappa(pairs)


def turn_scores(marks: Mapping[str, Marks], read: Mapping[str, Label], mark: int) -> tuple[int, int, int]:
    """Return the right marks of the judge, all of them, and the reader's, of turns with a mark."""
    ours = {(key, turn) for key, by_turn in marks.items() for turn, m in by_turn.items() if m == mark and key in read}
    theirs = {
        (key, turn) for key, label in read.items() for turn, m in label.marks.items() if m == mark and key in marks
    }
    return len(ours & theirs), len(ours), len(theirs)


def main() -> None:
    """Print the tables of one half; of test, only the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("half", choices=("dev", "test"))
    parser.add_argument("--log", type=Path, help="a CSV file that the figures are appended to; needed for test")
    parser.add_argument("--acts", choices=("patterns", "encoder"), default="encoder", help="who reads the words")
    parser.add_argument("--judge", type=int, default=2, help="the version of the rule judge")
    arguments = parser.parse_args()
    if arguments.half == "test" and arguments.log is None:
        parser.error("The test half is scored with --log.")
    read = {reader: labels(arguments.half, reader) for reader in READERS}
    keys = list(read[1])
    talks = recorded(arguments.data)
    rows = {row.key: row for row in audit(talks, policy=airline(), reader=reader_of(arguments.acts)).rows}
    figures: list[tuple[str, int, int, float]] = []
    figures.append(agreement("readers 1 and 2", [(read[1][key].verdict, read[2][key].verdict) for key in keys]))
    for reader, by_key in read.items():
        pairs = [(str(rows[key].verdict), by_key[key].verdict) for key in keys]
        figures.append(agreement(f"audit and reader {reader}", pairs))
        figures.append(agreement(f"always the agent and reader {reader}", [("agent", label) for _, label in pairs]))
        blamed = [(a, label) for a, label in pairs if label in ("user", "both")]
        figures.append(
            (f"user at fault found, reader {reader}", sum(a in ("user", "both") for a, _ in blamed), len(blamed), 0.0)
        )
        named = [(a, label) for a, label in pairs if a in ("user", "both")]
        figures.append(
            (f"user named rightly, reader {reader}", sum(b in ("user", "both") for _, b in named), len(named), 0.0)
        )
        for kind in sorted(BY_WORDS):
            alarms = [key for key in keys if any(finding.harmful for finding in rows[key].user.get(kind, ()))]
            right = sum(by_key[key].verdict in ("user", "both") for key in alarms)
            figures.append((f"{kind} confirmed, reader {reader}", right, len(alarms), 0.0))
        print(f"reader {reader}\n\n{confusion(pairs)}\n")
    marks = judged(arguments.data, keys, arguments.judge)
    for reader, by_key in read.items():
        for mark, name in ((-1, "deviations"), (0, "flaws")):
            right, ours, theirs = turn_scores(marks, by_key, mark)
            figures.append((f"{name}: marks right, reader {reader}", right, ours, 0.0))
            figures.append((f"{name}: found, reader {reader}", right, theirs, 0.0))
    either = {key: {turn for label in read.values() for turn, m in label[key].marks.items() if m == -1} for key in keys}
    marked = [(key, turn) for key, by_turn in marks.items() for turn, m in by_turn.items() if m == -1]
    figures.append(
        ("deviations: marks right by either reader", sum(turn in either[key] for key, turn in marked), len(marked), 0.0)
    )
    for name, right, total, k in figures:
        print(f"{name}: {right} of {total}" + (f", kappa {k:.2f}" if k else ""))
    if arguments.log:
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
        ).stdout
        new = not arguments.log.exists()
        with arguments.log.open("a", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            if new:
                writer.writerow(["time", "commit", "half", "acts", "judge", "figure", "right", "of", "kappa"])
            time = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%MZ")
            for name, right, total, k in figures:
                writer.writerow(
                    [
                        time,
                        commit.strip(),
                        arguments.half,
                        arguments.acts,
                        arguments.judge,
                        name,
                        right,
                        total,
                        f"{k:.3f}",
                    ]
                )


if __name__ == "__main__":
    main()
