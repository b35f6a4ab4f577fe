"""The audit tables of data/credit/README.md, from the output of `userrl audit credit` for each checkpoint.

userrl audit credit CHECKPOINT --gym errand --json > FOLDER/errand-sft.json      # and so on: GYM-WHEN.json
python -m lab.studies.audit_tables FOLDER                                            # writes them into the page
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.credit.agreement import RANKED_FROM

PAGE = Path(__file__).parents[2] / "data" / "credit" / "README.md"
FIRST, LAST = "<!-- From here on written by lab/studies/audit_tables.py -->", "<!-- Up to here -->"
WHEN = ("sft", "middle", "end")
GOALS = ("sum", "r2g", "score")
LOSS = "trajectory_mean"
SHOWN = (
    "equalized/r2g/released", "equalized/sum/released", "equalized/mean/released",
    "em/r2g/released", "em/r2g/paper", "em/r2g/centred",
    "r2g/r2g/released", "r2g/r2g/paper", "r2g/r2g/centred", "r2g/sum/paper",
    "naive/sum/released", "naive/sum/paper", "naive/sum/centred",
    "index_rewards", "index_returns",
)  # fmt: skip
"""Rules on the page: the recipes' rules, their other forms, and two per turn index that no recipe can train with. The
warehouse and the JSON have all rules, under both aggregations and all three goals.
"""


def main() -> None:
    """Write the tables of all gyms in the folder."""
    parser = argparse.ArgumentParser(description="Tables of credit audits.")
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    gyms: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*-*.json")):
        gym, _, when = path.stem.rpartition("-")
        (gyms.setdefault(gym, {})[when],) = json.loads(path.read_text())
    lines = [line for gym, audits in gyms.items() for line in section(gym, {w: audits[w] for w in WHEN if w in audits})]
    before, _, rest = PAGE.read_text().partition(FIRST)
    PAGE.write_text(f"{before}{FIRST}\n" + "\n".join(lines) + f"\n{LAST}{rest.partition(LAST)[2]}")
    print(f"wrote {PAGE}")


def section(gym: str, audits: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the section of one gym: the audits, then each rule in every audit."""
    horizon = {audit["horizon"] for audit in audits.values()}
    assert len(horizon) == 1, f"{gym} was audited at several horizons"
    return ["", f"### {gym}, {horizon.pop()} turns", "", *facts(audits), "", *rules(audits)]


def facts(audits: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a table with one row per fact and one column per audit."""
    audit = list(audits.values())
    rows = {
        "checkpoint": [f"`{a['checkpoint']}`" for a in audit],
        "tasks x trajectories, turns": [f"{a['groups']} x {a['group']}, {a['turns']:,}" for a in audit],
        "K in either half, continuations": [f"{a['k']}, {a['continuations']:,}" for a in audit],
        f"split-half reliability: {', '.join(GOALS)}": [
            ", ".join(reliability(a, goal) for goal in GOALS) for a in audit
        ],
        "significant turns (sum)": [f"{max(r['significant'] for r in a['rules']['sum'].values()):.0f}" for a in audit],
        "sum identity within": [f"{a['identity']:.0e}" for a in audit],
        "CPU-s": [f"{a['cpu_seconds']:.0f}" for a in audit],
    }
    return table(["", *audits], [[name, *cells] for name, cells in rows.items()])


def rules(audits: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a table with one row per rule, and cosine, wrong and push of each audit."""
    titles = [title for when in audits for title in (f"{when}: cosine", "wrong", "push")]
    rows = []
    for name in SHOWN:
        rule_rows = [a["rules"]["sum"].get(f"{name} {LOSS}", {}) for a in audits.values()]
        cells = [
            cell for row in rule_rows for cell in (limits(row, "cosine"), limits(row, "wrong"), two(row.get("push")))
        ]
        rows.append([f"`{name}`", *cells])
    return table(["rule", *titles], rows)


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Format a Markdown table with right-aligned numbers."""
    head = [f"| {' | '.join(titles)} |", "| --- |" + " ---: |" * (len(titles) - 1)]
    return [*head, *(f"| {' | '.join(row)} |" for row in rows)]


def reliability(audit: Mapping[str, Any], goal: str) -> str:
    """Format a reliability, in bold if it is too low to compare rules."""
    value = audit["reliability"][goal]
    said = two(value)
    return said if value is not None and value >= RANKED_FROM else f"**{said}**"


def limits(row: Mapping[str, float], name: str) -> str:
    """Format an estimate with its interval over tasks."""
    return f"{two(row[name])} [{two(row.get(f'{name}_low'))}, {two(row.get(f'{name}_high'))}]" if name in row else "–"


def two(value: float | None) -> str:
    """Format two digits, without the zero before the point."""
    return "–" if value is None or math.isnan(value) else f"{value:.2f}".replace("0.", ".", 1)


if __name__ == "__main__":
    main()
