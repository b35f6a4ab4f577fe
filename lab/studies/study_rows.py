"""Registered studies of families: their arguments, the plan with its hash, and one row a run in a CSV file under data/.

A plan's hash is that of its bytes. Each row has it, so that runs of another plan are told apart.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from userrl.run.request import TrainRequest

DATA = Path(__file__).parents[2] / "data"

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
    parser.add_argument("--list", action="store_true", dest="listed")
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


def plan_hash(path: Path) -> str:
    """Return the hash of a plan, in 16 hex digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def plans(path: Path) -> list[str]:
    """Return the hashes of a plan and of those that it amends, newest first. Their runs are shown together."""
    return [plan_hash(path), *read_plan(path).get("amends", [])]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file, in order; nothing if there is no file."""
    return pl.read_csv(path, infer_schema_length=None).to_dicts() if path.is_file() else []


def add_row(path: Path, key: Sequence[str], row: Mapping[str, Any]) -> None:
    """Add a row to a file, in the order of the key. A row with the same key is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = {tuple(str(each[name]) for name in key): each for each in read_rows(path)}
    rows[tuple(str(row[name]) for name in key)] = dict(row)
    pl.DataFrame([rows[each] for each in sorted(rows)], infer_schema_length=None).write_csv(path)
