"""The user audit beside a person's labels of thirty failed conversations of tau-bench's recorded airline.

    python -m lab.checks.users_hand_check DATA LABELS      prints the audit's verdicts against the labels

DATA: tau-bench's folder. LABELS: a CSV with conversation, label (user, agent, both, neither seen) and labeller.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from pathlib import Path

from analysis.users.audit import audit
from analysis.users.findings import VERDICTS
from tests.analysis.users.recorded import recorded


def confusion(root: Path, labels: Path) -> None:
    """Print the confusion table, both agreements, and the share of labels that confirm each kind of user error."""
    rows = {row.key: row for row in audit(recorded(root)).rows}
    with labels.open(encoding="utf-8") as file:
        hand_labels = {line["conversation"]: line["label"] for line in csv.DictReader(file)}
    table = Counter((rows[key].verdict, label) for key, label in hand_labels.items())
    print("audit \\ hand".ljust(16) + "".join(f"{name:>14}" for name in VERDICTS))
    for verdict in VERDICTS:
        print(verdict.ljust(16) + "".join(f"{table[verdict, name]:>14}" for name in VERDICTS))
    agree, agent = sum(table[name, name] for name in VERDICTS), sum(label == "agent" for label in hand_labels.values())
    print(f"the audit agrees in {agree} of {len(hand_labels)}, always the agent in {agent}")
    harmful_kinds = {
        key: {kind for kind, all_found in rows[key].user.items() if any(f.harmful for f in all_found)}
        for key in hand_labels
    }
    for kind in sorted(set().union(*harmful_kinds.values())):
        having = [key for key in hand_labels if kind in harmful_kinds[key]]
        right = sum(hand_labels[key] in ("user", "both") for key in having)
        print(f"{kind}: {right} of {len(having)} are labelled user or both")


if __name__ == "__main__":
    confusion(Path(sys.argv[1]), Path(sys.argv[2]))
