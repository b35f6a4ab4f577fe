"""Thirty failed conversations of tau-bench's recorded airline, drawn by seed, for a hand check of the user audit.

    python -m lab.checks.users_hand_check draw DATA FOLDER       writes the conversations without verdicts, and an empty label file
    python -m lab.checks.users_hand_check confusion DATA LABELS  prints the audit's verdicts against the labels

DATA: tau-bench's folder. LABELS: a CSV with conversation, label (user, agent, both, neither seen) and labeller.
"""

from __future__ import annotations

import csv
import json
import random
import sys
from collections import Counter
from pathlib import Path

from analysis.users.audit import audit
from analysis.users.findings import VERDICTS
from tests.analysis.users.recorded import recorded
from userrl_core.records import Trajectory

SEED, CHOSEN = 40, 30


def drawn(trajectories: list[Trajectory]) -> list[str]:
    """Return the keys (task/trial) of the drawn conversations."""
    failed = sorted(f"{one.task.id}/{one.attempt}" for one in trajectories if one.stop_reason != "success")
    return sorted(random.Random(SEED).sample(failed, CHOSEN))


def draw(root: Path, folder: Path) -> None:
    """Write the conversations for the labeller."""
    keys = set(drawn(recorded(root)))
    folder.mkdir(parents=True, exist_ok=True)
    rows = json.loads((root / "trajectories_gpt-4o-airline.json").read_text(encoding="utf-8"))
    parts = []
    for row in rows:
        key = f"{row['task_id']}/{row['trial']}"
        if key not in keys:
            continue
        task = row["info"]["task"]
        parts.append(f"{'=' * 100}\nCONVERSATION {key}\nINSTRUCTION OF THE USER: {task['instruction']}")
        parts += [f"GOLD: {action['name']} {json.dumps(action['kwargs'])}" for action in task["actions"]]
        parts.append(f"REQUIRED OUTPUTS: {task['outputs']}")
        for message in row["traj"][1:]:
            calls = [f"{c['function']['name']} {c['function']['arguments']}" for c in message.get("tool_calls") or []]
            parts.append(f"[{message['role']}] {(message.get('content') or '')[:1500]} {' '.join(calls)}")
    (folder / "conversations.txt").write_text("\n".join(parts), encoding="utf-8")
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("conversation", "label", "labeller"), *((key, "", "") for key in sorted(keys))])


def confusion(root: Path, labels: Path) -> None:
    """Print the confusion table, both agreements, and the share of labels that confirm each kind of user error."""
    rows = {row.key: row for row in audit(recorded(root)).rows}
    with labels.open(encoding="utf-8") as file:
        given = {line["conversation"]: line["label"] for line in csv.DictReader(file)}
    table = Counter((rows[key].verdict, label) for key, label in given.items())
    print("audit \\ hand".ljust(16) + "".join(f"{name:>14}" for name in VERDICTS))
    for verdict in VERDICTS:
        print(verdict.ljust(16) + "".join(f"{table[verdict, name]:>14}" for name in VERDICTS))
    agree, agent = sum(table[name, name] for name in VERDICTS), sum(label == "agent" for label in given.values())
    print(f"the audit agrees in {agree} of {len(given)}, always the agent in {agent}")
    found = {
        key: {kind for kind, all_found in rows[key].user.items() if any(f.harmful for f in all_found)} for key in given
    }
    for kind in sorted(set().union(*found.values())):
        having = [key for key in given if kind in found[key]]
        right = sum(given[key] in ("user", "both") for key in having)
        print(f"{kind}: {right} of {len(having)} are labelled user or both")


if __name__ == "__main__":
    {"draw": draw, "confusion": confusion}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
