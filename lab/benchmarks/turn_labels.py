"""The rule judge compared with two labellings of turns, for each half: agreement, and hits by kind.

python -m lab.benchmarks.turn_labels        # needs the published tau-bench data in $USERRL_PUBLISHED_DATA
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from tests.userrl_core.judging.turn_labels import labels, marks


def main() -> None:
    """Print the agreement of judge and labellers, and the judge's hits for each kind."""
    folder = Path(os.environ["USERRL_PUBLISHED_DATA"]) / "tau-bench"
    a, b = labels("A"), labels("B")
    print("| half | turns | A and B | judge and A | judge and B |\n| --- | ---: | ---: | ---: | ---: |")
    for half in ("dev", "held"):
        judge_marks = marks(half, folder)
        pairs = [
            sum(a[t][0] == b[t][0] for t in judge_marks),
            *(sum(judge_marks[t] == who[t][0] for t in judge_marks) for who in (a, b)),
        ]
        print(
            f"| {half} | {len(judge_marks)} | "
            + " | ".join(f"{alike / len(judge_marks):.2f}" for alike in pairs)
            + " |"
        )
        for label in (-1, 0):
            totals = Counter(kind for t, (mark, kind) in a.items() if t in judge_marks and mark == label)
            hit = Counter(a[t][1] for t in judge_marks if a[t][0] == label == judge_marks[t])
            print(
                f"{half}, label {label}: "
                + ", ".join(f"{kind} {hit[kind]} of {n}" for kind, n in sorted(totals.items()))
            )


if __name__ == "__main__":
    main()
