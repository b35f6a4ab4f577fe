"""Every recipe that this machine can run, at full length, as the table of data/results/README.md.

    python -m lab.studies.all_recipes [--seed 0] [RECIPE ...]

Each is an ordinary run of the home in $USERRL_HOME. Finished runs are reused and interrupted ones continue, so the study
can be stopped and restarted. Refused recipes are listed with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import warnings
from collections import Counter

import curricula
from userrl.machine.home import home
from userrl.reports.run_report import RunReport
from userrl.run.ending import last_step
from userrl.run.plan import plan_run
from userrl.run.readiness import here, resolve, verdict
from userrl.run.request import TrainRequest
from userrl_core.number_format import number, with_error

HEAD = """| recipe | gyms | steps | demonstrator | SFT | RL, best (step) | RL, last step | validation: best, last | fell | CPU-s |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: |"""


def main() -> int:
    """Run the recipes in order. Returns 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("recipes", nargs="*", default=list(curricula.recipe_names()))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    reports: list[RunReport] = []
    refused: list[tuple[str, str]] = []
    failed: list[str] = []
    for name in arguments.recipes:
        answer = verdict(resolve(name, check=False), here())
        if answer.kind == "refused":
            refused.append((answer.reason, f"{name}: {answer.sentence}"))
            continue
        print(f"{name} ...", file=sys.stderr, flush=True)
        request = {"recipe": name, "seed": arguments.seed, "wandb": "off"}
        done = subprocess.run(
            [sys.executable, "-m", "flows.train", json.dumps(request)],
            env={"PREFECT_HOME": str(home()), "PREFECT_API_URL": ""} | os.environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        path = home() / "runs" / plan_run(TrainRequest(**request)).run_id / "report.json"
        if done.returncode or not path.is_file():
            failed.append(name)
        else:
            reports.append(RunReport.model_validate_json(path.read_text()))
    print("\n".join([HEAD, *map(row, reports)]))
    print(f"\nRefused: {dict(Counter(reason for reason, _ in refused))}")
    print("\n".join(f"- {sentence}" for _, sentence in refused))
    print("\n".join(f"FAILED {name}" for name in failed), file=sys.stderr)
    return 1 if failed else 0


def row(report: RunReport) -> str:
    """Return a line of the table."""
    gyms = next(iter(report.table.values()), {})
    best, last = report.best, report.last
    cells = [f"`{report.recipe}`", ", ".join(gyms), str(last.step if last else 0)]
    cells += [_scores(report, actor) for actor in ("demonstrator", "SFT" if report.cold_start else "start")]
    cells += [f"{_scores(report, 'RL')} ({best.step})" if best else "–"]
    cells += [_scores(report, last_step("RL")) if last_step("RL") in report.table else _scores(report, "RL")]
    cells += [f"{number(best.validation, 2)}, {number(last.validation, 2)}" if best and last else "–"]
    cells += ["yes" if any("validation_fell" in sentence for sentence in report.alarms) else "no"]
    return "| " + " | ".join([*cells, f"{sum(report.cpu_seconds.values()):.0f}"]) + " |"


def _scores(report: RunReport, actor: str) -> str:
    rows = report.table.get(actor, {})
    return ", ".join(with_error(row.score, row.stderr) for row in rows.values()) or "–"


if __name__ == "__main__":
    sys.exit(main())
