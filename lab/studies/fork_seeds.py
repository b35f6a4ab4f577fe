"""The laptop's fork over many seeds: does training help, and does the horizon matter?

    python -m lab.studies.fork_seeds [--recipe horizon-fork] [--seeds 1-10] [--tier "errand depth-3"]

Each seed is an ordinary run of the home in $USERRL_HOME, with its own cold start, training and draws. Finished runs are
reused and interrupted ones continue. The seed is the unit of every interval (Student's t over paired differences). The
test tasks are the same for all.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis.measure.interval import Interval, t_interval
from analysis.measure.recipes import contrast
from userrl.reports.run_report import RunReport
from userrl_core.records import branch_of
from warehouse import open_warehouse

PROGRAM = """
import json, sys
from flows.train import train
print("RESULT " + json.dumps(train(**json.loads(sys.argv[1])), default=str))
"""


@dataclass(frozen=True, slots=True)
class Seed:
    """One run. validation: by branch, the mean validation scores of the first and the last stage."""

    report: RunReport
    validation: Mapping[str, tuple[float, float]]

    def last(self, branch: str) -> str:
        """Return the name of a branch's last step in the report's tables."""
        return f"{branch} last step" if f"{branch} last step" in self.report.table else branch


def main() -> int:
    """Run what is missing, then print the table. Returns 1 if a run failed."""
    parser = argparse.ArgumentParser(description="The laptop's fork over many seeds.")
    parser.add_argument("--recipe", default="horizon-fork")
    parser.add_argument("--seeds", default="1-10", help="first-last")
    parser.add_argument("--tier", default="errand depth-3")
    arguments = parser.parse_args()
    first, last = map(int, arguments.seeds.split("-"))
    seeds: dict[int, Seed] = {}
    for seed in range(first, last + 1):
        report = run(arguments.recipe, seed)
        if report is None:
            return 1
        seeds[seed] = Seed(report, validations(report))
        print(f"seed {seed}: {report.run}, {sum(report.cpu_seconds.values()):.0f} CPU-s", file=sys.stderr, flush=True)
    print(table(seeds, arguments.tier))
    return 0


def run(recipe: str, seed: int, overrides: Mapping[str, Any] | None = None) -> RunReport | None:
    """Return a run's report, or None if it failed."""
    changed = {"overrides": dict(overrides)} if overrides else {}
    asked = json.dumps({"recipe": recipe, "profile": "laptop", "seed": seed, "wandb": "off", **changed})
    environment = {**os.environ, "PREFECT_API_URL": "", "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, asked], env=environment, capture_output=True, text=True, check=False
    )
    line = next((line for line in done.stdout.splitlines() if line.startswith("RESULT ")), None)
    if line is None:
        print(f"{recipe}, seed {seed} failed:\n{(done.stdout + done.stderr)[-2000:]}", file=sys.stderr)
        return None
    return RunReport.model_validate(json.loads(line.removeprefix("RESULT ")))


def validations(report: RunReport) -> dict[str, tuple[float, float]]:
    """Return, by branch, the mean validation scores of the first stage (after its first step) and of the branch's last stage."""
    text = """select stage, avg(score) from (select stage, step, avg(score) as score from trajectories
              where run_id = $run and phase = 'validate' and step > 0 and admitted group by all) group by stage order by stage"""
    with open_warehouse(Path(report.warehouse)) as warehouse:
        means: dict[str, float] = dict(warehouse.sql(text, run=report.run).fetchall())
    return {
        branch: (means["rl-1"], means[[stage for stage in means if branch_of(stage) == branch][-1]])
        for branch in report.branches
    }


def table(seeds: Mapping[int, Seed], tier: str) -> str:
    """Return a table of every seed, and the differences with their intervals."""
    branches = list(next(iter(seeds.values())).report.branches)
    head = ["seed", "SFT", *(f"{b}: validation first, last stage" for b in branches)]
    head += [f"{b}: test best, last" for b in branches] + [f"{b}: {tier} best, last" for b in branches] + ["CPU-s"]
    lines = [f"| {' | '.join(head)} |", "|" + " ---: |" * len(head)]
    for number, seed in seeds.items():
        cells = [str(number), f"{overall(seed, 'SFT'):.3f}"]
        cells += ["{:.3f}, {:.3f}".format(*seed.validation[b]) for b in branches]
        cells += [f"{overall(seed, b):.3f}, {overall(seed, seed.last(b)):.3f}" for b in branches]
        cells += [f"{at(seed, b, tier):.2f}, {at(seed, seed.last(b), tier):.2f}" for b in branches]
        lines.append(f"| {' | '.join([*cells, f'{sum(seed.report.cpu_seconds.values()):.0f}'])} |")
    lines.append("")
    for branch in branches:
        rise = contrast(
            {n: s.validation[branch][0] for n, s in seeds.items()},
            {n: s.validation[branch][1] for n, s in seeds.items()},
        )
        final = t_interval(np.array([overall(seed, seed.last(branch)) for seed in seeds.values()]))
        lines.append(
            f"- `{branch}`: last stage's mean validation less the first's {said(rise.interval)}; final {said(final)}."
        )
    one, other = branches[0], branches[-1]
    for name, row in (("best on validation", lambda s, b: b), ("last step", lambda s, b: s.last(b))):
        difference = contrast(
            {n: at(s, row(s, one), tier) for n, s in seeds.items()},
            {n: at(s, row(s, other), tier) for n, s in seeds.items()},
        )
        lines.append(f"- `{other}` less `{one}` at {tier}, {name}: {said(difference.interval)}.")
    lines.append(f"\nIntervals: 95 %, Student's t over {len(seeds)} seeds, paired where it says less.")
    return "\n".join(lines)


def overall(seed: Seed, actor: str) -> float:
    """Return the mean held-out score over all trajectories."""
    rows = seed.report.table[actor].values()
    return sum((row.score or 0.0) * row.attempts for row in rows) / sum(row.attempts for row in rows)


def at(seed: Seed, actor: str, tier: str) -> float:
    """Return the mean held-out score at a tier."""
    return seed.report.tiers[actor][tier].score or 0.0


def said(interval: Interval) -> str:
    """Format a number with its interval."""
    return f"{interval.estimate:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"


if __name__ == "__main__":
    sys.exit(main())
