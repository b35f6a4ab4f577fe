"""ScalingInter, a short and a long fixed horizon, and an adaptive one on the laptop's TextCraft, at equal tokens.

    python -m lab.studies.textcraft_study [--seeds 1-5] [--tier "textcraft depth-3"]

Each seed of each arm is an ordinary run of the home in $USERRL_HOME, with its own cold start, training and draws. Finished
runs are reused. The seed is the unit of every interval (Student's t, paired by seed). The held-out tasks are the same for
all, and all arms are evaluated at 16 turns.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from analysis.measure.interval import Interval, t_interval
from analysis.measure.recipes import contrast
from lab.studies.fork_seeds import run
from userrl.reports.run_report import RunReport

SHOWN = {"demonstrations.horizon": 12}
"""Fixed to the recipes' own value. Otherwise it would follow an overridden schedule, and the arms would have other cold
starts.
"""

ARMS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "scaling-inter": ("scaling-inter-textcraft", {}),
    "fixed-short": ("fixed-textcraft", {"schedule.turns": 6, **SHOWN}),
    "fixed-long": ("fixed-textcraft", {}),
    "adaptive": (
        "fixed-textcraft",
        {
            **SHOWN,
            "schedule": {
                "kind": "adaptive",
                "horizons": [6, 11, 16],
                "gate": {"success": 0.7, "window": 5, "hold": 2, "at_most": 40},
            },
        },
    ),
}


def main() -> int:
    """Run what is missing, then print the tables. Returns 1 if a run failed."""
    parser = argparse.ArgumentParser(description="Four schedules on the laptop's TextCraft.")
    parser.add_argument("--seeds", default="1-5", help="first-last")
    parser.add_argument("--tier", default="textcraft depth-3")
    arguments = parser.parse_args()
    first, last = map(int, arguments.seeds.split("-"))
    reports: dict[str, dict[int, RunReport]] = {arm: {} for arm in ARMS}
    for seed in range(first, last + 1):
        for arm in ARMS:
            recipe, overrides = ARMS[arm]
            report = run(recipe, seed, overrides)
            if report is None:
                return 1
            reports[arm][seed] = report
            spent = sum(report.cpu_seconds.values())
            print(f"{arm}, seed {seed}: {report.run}, {spent:.0f} CPU-s", file=sys.stderr, flush=True)
    print(table(reports, arguments.tier))
    return 0


def table(reports: Mapping[str, Mapping[int, RunReport]], tier: str) -> str:
    """Return every run, then each arm's mean and ScalingInter's difference from the others."""
    lines = [f"| arm | seed | SFT | best | last | {tier}: best, last |", "| --- | ---: | ---: | ---: | ---: | ---: |"]
    for arm, runs in reports.items():
        for seed, report in runs.items():
            best, last = report.table["RL"], report.table[_last(report)]
            lines.append(
                f"| {arm} | {seed} | {report.table['SFT']['textcraft'].score:.3f} | {best['textcraft'].score:.3f} | "
                f"{last['textcraft'].score:.3f} | {_at(report, 'RL', tier):.2f}, {_at(report, _last(report), tier):.2f} |"
            )
    lines.append("")
    for arm, runs in reports.items():
        finals = np.array([_score(report) for report in runs.values()])
        if len(finals) > 1:
            lines.append(f"- `{arm}`, last step: {_said(t_interval(finals))}.")
    ours = {seed: _score(report) for seed, report in reports["scaling-inter"].items()}
    for arm, runs in reports.items():
        if arm != "scaling-inter" and len(runs) > 1:
            difference = contrast({seed: _score(report) for seed, report in runs.items()}, ours)
            lines.append(f"- `scaling-inter` less `{arm}`, last step: {_said(difference.interval)}.")
    lines.append(f"\nIntervals: 95 %, Student's t over {len(ours)} seeds, differences paired by seed.")
    return "\n".join(lines)


def _last(report: RunReport) -> str:
    return "RL last step" if "RL last step" in report.table else "RL"


def _score(report: RunReport) -> float:
    return report.table[_last(report)]["textcraft"].score or 0.0


def _at(report: RunReport, actor: str, tier: str) -> float:
    return report.tiers[actor][tier].score or 0.0


def _said(interval: Interval) -> str:
    return f"{interval.estimate:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"


if __name__ == "__main__":
    sys.exit(main())
