"""Registered studies of families: their arguments, the plan with its hash, their runs, and one row a run in a CSV file under data/.

A plan's hash is that of its bytes. Each row has it, so that runs of another plan are told apart.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from userrl.run.plan import plan_run
from userrl.run.request import TrainRequest
from userrl.stages.here import train_here

Cell = Mapping[str, Any]
"""What distinguishes a run of a study, by name: its family, seed and settings."""
Planned = tuple[Cell, TrainRequest]

VALIDATED = """
SELECT step, avg(score) AS score FROM trajectories
WHERE run_id = $run AND phase = 'validate' AND admitted AND score IS NOT NULL GROUP BY step ORDER BY step
"""

ENDING = f"""
WITH validated AS ({VALIDATED}), shown AS (SELECT max(step) AS steps FROM validated)
SELECT min_by(score, step), max(score), avg(score) FILTER (step > .8 * steps), any_value(own_fall), any_value(own_stderr)
FROM validated, shown, run_endings(run := $run) WHERE branch IS NULL
"""
"""Score of the cold start, best score, mean of the last fifth, and the fall of the collapse rule with its error."""


def study_arguments(description: str) -> argparse.ArgumentParser:
    """Return the arguments that every study of families has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("family", nargs="?")
    parser.add_argument("--seeds", help="first-last; none: those of the plan")
    parser.add_argument("--list", action="store_true", dest="listed", help="the runs that are planned")
    parser.add_argument("--tables", action="store_true", help="print the tables, from data/ alone")
    return parser


def chosen(plan: Mapping[str, Any], family: str | None) -> list[str]:
    """Return the named family, or all of the plan. Ends the script for an unknown one."""
    if family is not None and family not in plan["families"]:
        sys.exit(f"There is no family {family}; there are {', '.join(plan['families'])}.")
    return [family] if family else list(plan["families"])


def read_plan(path: Path) -> dict[str, Any]:
    """Return the plan of a study."""
    plan: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return plan


def study_request(plan: Mapping[str, Any], seed: int, overrides: Mapping[str, Any]) -> TrainRequest:
    """Return the request of one run, up to its last RL step. Runs of a seed with the same cold start train it once."""
    return TrainRequest(
        recipe=plan["recipe"],
        profile=plan["profile"],
        seed=seed,
        overrides=dict(overrides),
        until="rl-1",
        share_cold_start=True,
        wandb="off",
    )


def run_each(runs: Iterable[Planned], add: Callable[[Cell, str, float], None], *, listed: bool) -> None:
    """Train each run that is not finished, and add its row. add: takes the cell, the run's id and its CPU-seconds.

    listed: print the cells with their runs' ids, and run nothing.
    """
    for cell, request in runs:
        if listed:
            print(*cell.values(), plan_run(request).run_id)
            continue
        done = train_here(plan_run(request), progress=_print_step)
        spent = sum(done.cpu_seconds.values())
        add(cell, done.run, spent)
        print(f"{done.run}: {spent:.0f} CPU-s", file=sys.stderr, flush=True)


def _print_step(stage: str, line: Mapping[str, Any]) -> None:
    if "score" in line:
        print(stage, line["step"], line["score"], file=sys.stderr, flush=True)


def seeds_of(seed_range: str | None, first: int, last: int) -> range:
    """Return the seeds of an argument ``first-last``, or those of the plan."""
    if seed_range:
        first, last = map(int, seed_range.split("-"))
    return range(first, last + 1)


def plan_hash(path: Path) -> str:
    """Return the hash of a plan, in 16 hex digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def plans(path: Path) -> list[str]:
    """Return the hashes of a plan and of those that it amends, newest first. Their runs are shown together."""
    return [plan_hash(path), *read_plan(path).get("amends", [])]
