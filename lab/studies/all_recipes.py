"""Every recipe that the laptop profile can run, at full length, over seeds that chose nothing.

    python -m lab.studies.all_recipes [RECIPE ...] [--seeds 1201-1205] [--set KEY=VALUE ...]

Each run is an ordinary run of the home in $USERRL_HOME. Finished runs are not repeated, interrupted ones continue, and runs
with the same cold start train it once. Each finished run adds its row to data/recipes/runs.csv. There `values` is the hash of
the recipe without its name: recipes with the same values share their runs. With ``--set``, with which settings are chosen on
seed 0, the rows are printed and not written.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import curricula
from curricula import Recipe
from flows.cli.training.recipe import parse_changes
from lab.rows import DATA, add_rows, read_rows
from userrl.machine.home import quiet_process, warehouse_dir
from userrl.reports.run_report import RunReport
from userrl.run.ending import last_step
from userrl.run.plan import plan_run
from userrl.run.readiness import here, resolve, verdict
from userrl.run.request import TrainRequest
from userrl.stages.here import train_here
from userrl_core.errors import UserRLError
from userrl_core.processes import ProcessDied
from warehouse.files.runs import find_run

RUNS = DATA / "recipes" / "runs.csv"
KEY = ("recipe", "values", "seed")
SEEDS = (1201, 1205)
"""First and last of the seeds that are reported. Settings are chosen on seed 0."""


def main() -> int:
    """Run the recipes seed by seed. Returns 1 if one of them failed."""
    parser = argparse.ArgumentParser(description="Every recipe over fresh seeds.")
    parser.add_argument("recipes", nargs="*", default=list(curricula.recipe_names()))
    parser.add_argument("--seeds", default="-".join(map(str, SEEDS)), help="first-last")
    parser.add_argument("--set", action="append", default=[], dest="changes", metavar="KEY=VALUE")
    arguments = parser.parse_args()
    first, last = map(int, arguments.seeds.split("-"))
    overrides = parse_changes(arguments.changes)
    quiet_process()
    warnings.simplefilter("ignore", UserWarning)
    failed = []
    for seed in range(first, last + 1):
        for name in arguments.recipes:
            answer = verdict(resolve(name, check=False), here())
            if answer.kind == "refused":
                print(f"{name}: {answer.sentence}", file=sys.stderr)
            elif not run(name, seed, overrides):
                failed.append(f"{name}, seed {seed}")
    for sentence in failed:
        print(f"failed: {sentence}", file=sys.stderr)
    return 1 if failed else 0


def run(name: str, seed: int, overrides: dict[str, Any]) -> bool:
    """Train one recipe and add its row. Returns whether the run reached its end."""
    plan = plan_run(
        TrainRequest(recipe=name, profile="laptop", seed=seed, overrides=overrides, share_cold_start=True, wandb="off")
    )
    values = values_of(plan.recipe)
    rows = [row for row in read_rows(RUNS) if row["values"] == values and row["seed"] == seed]
    if rows and not overrides:
        add_rows(RUNS, KEY, {**rows[0], "recipe": name})
        return True
    try:
        report = train_here(plan)
    except (UserRLError, ProcessDied) as error:
        print(f"{name}, seed {seed}: {error}", file=sys.stderr, flush=True)
        return False
    row = {
        "recipe": name,
        "values": values,
        "seed": seed,
        "run": report.run,
        **origin(report.run),
        **scores(report),
        "cpu_seconds": round(sum(report.cpu_seconds.values()), 1),
    }
    print(row, flush=True)
    if not overrides:
        add_rows(RUNS, KEY, row)
    return True


def values_of(recipe: Recipe) -> str:
    """Return the hash of a recipe without its name."""
    return recipe.model_copy(update={"name": ""}).hash


def scores(report: RunReport) -> dict[str, Any]:
    """Return the scores on held-out tasks of the cold start, the best and the last checkpoint: the mean, and each gym's.

    A recipe without RL has its cold start alone. Of a run with branches it is the branch that ends lowest.
    """
    branch = min(
        report.branches or ["RL"], key=lambda name: fmean(held_out(report, ended(report, name)).values() or [0])
    )
    reached = report.branches[branch] if report.branches else (report.best, report.last)
    steps = [end.step if end else None for end in reached]
    row: dict[str, Any] = {"steps": steps[1] or 0}
    for column, actor in {
        "start": "SFT" if report.cold_start else "start",
        "best": branch,
        "last": ended(report, branch),
    }.items():
        gyms = held_out(report, actor)
        row[column] = round(fmean(gyms.values()), 4) if gyms else None
        row[f"{column}_by_gym"] = " ".join(f"{gym}={score:.4f}" for gym, score in sorted(gyms.items()))
    return row | {"best_step": steps[0]}


def ended(report: RunReport, branch: str) -> str:
    """Return the evaluation's name of a branch's last checkpoint."""
    return last_step(branch) if last_step(branch) in report.table else branch


def held_out(report: RunReport, actor: str) -> dict[str, float]:
    """Return a policy's scores on held-out tasks by gym."""
    return {gym: row.score for gym, row in report.table.get(actor, {}).items() if row.score is not None}


def origin(run: str, root: Path | None = None) -> dict[str, str]:
    """Return commit and start (UTC) of a run, and this machine. A run that was finished earlier keeps its commit and its start.

    root: its warehouse; None: that of the home.
    """
    stored = find_run(root or warehouse_dir(), run)
    started = datetime.fromtimestamp(stored["created"], UTC).strftime("%Y-%m-%d %H:%M:%S")
    return {"commit": stored["code_version"], "started": started, "machine": processor()}


def processor() -> str:
    """Return the processor's name."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


if __name__ == "__main__":
    sys.exit(main())
