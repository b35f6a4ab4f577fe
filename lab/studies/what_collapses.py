"""Run the factorial of what_collapses.yaml: credit of later rewards x form x pay of the enabling turn, by family.

    python -m lab.studies.what_collapses --list                  # the runs that are planned, and the hash of the plan
    python -m lab.studies.what_collapses errand                  # all cells of a family, seed by seed
    python -m lab.studies.what_collapses errand --seeds 901-902
    python -m lab.studies.what_collapses errand --audit          # audits of the cold starts of the plan's audit seed
    python -m lab.studies.what_collapses_tables                  # the tables and figures, from data/what-collapses

Each cell and seed is an ordinary run of the home in $USERRL_HOME. Finished runs are not repeated, interrupted ones continue.
Each finished run adds its row to data/what-collapses/runs.csv. The cells of a seed have the same demonstrations.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from analysis.measure.collapse_rule import min_fall
from lab.studies.study_rows import DATA, ENDING, add_row, chosen, plan_hash, read_plan, study_arguments, study_request
from userrl.audits.credit import audit_checkpoint
from userrl.machine.home import quiet_process, runs_dir, warehouse_dir
from userrl.run.plan import plan_run
from userrl.run.request import TrainRequest
from userrl.stages.here import train_here
from warehouse import open_warehouse

PLAN = Path(__file__).with_suffix(".yaml")
RUNS, AUDITS = DATA / "what-collapses" / "runs.csv", DATA / "what-collapses" / "audits.csv"
CELL = ("family", "gamma", "form", "enabling_turn")
AGGREGATION = "trajectory_mean"
"""The loss aggregation of the plan's recipe."""


def main() -> int:
    """List or run the cells of one family, or audit its cold starts."""
    parser = study_arguments("Factorial: what collapses.")
    parser.add_argument("--audit", action="store_true")
    given = parser.parse_args()
    quiet_process()
    plan = read_plan(PLAN)
    print(f"plan {plan_hash(PLAN)}", file=sys.stderr)
    families = chosen(plan, given.family)
    if given.audit:
        return audited(plan, given.family)
    for family in families:
        for seed, cell in cells(plan, given.seeds):
            request = asked(plan, family, seed, cell)
            if given.listed or not given.family:
                print(family, seed, *cell.values(), plan_run(request).run_id)
            else:
                done = train_here(plan_run(request))
                spent = sum(done.cpu_seconds.values())
                add_row(RUNS, (*CELL, "seed", "plan"), row_of(family, seed, cell, done.run, spent))
                print(f"{done.run}: {spent:.0f} CPU-s", file=sys.stderr, flush=True)
    return 0


def cells(plan: Mapping[str, Any], seeds: str | None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the seeds with their cells: all cells at the first seeds, the decisive ones at the others."""
    first, last = plan["seeds"]["first"], plan["seeds"]["first"] + plan["seeds"]["decisive_cells"] - 1
    if seeds:
        first, last = map(int, seeds.split("-"))
    for seed in range(first, last + 1):
        for values in product(*plan["cells"].values()):
            cell = dict(zip(plan["cells"], values, strict=True))
            decisive = all(cell[key] in allowed for key, allowed in plan["decisive"].items())
            if decisive or seed < plan["seeds"]["first"] + plan["seeds"]["all_cells"]:
                yield seed, cell


def asked(plan: Mapping[str, Any], family: str, seed: int, cell: Mapping[str, Any]) -> TrainRequest:
    """Return the request of one run."""
    gamma, settings = cell["gamma"], plan["families"][family]
    credit = {"credit.shaping": "r2g", "credit.gamma": gamma} if gamma else {"credit.shaping": "naive"}
    overrides = {
        "stages": [{"tokens": plan["tokens"], "mix": {family: 1}, "weigh": "tokens"}],
        "schedule": {"kind": "fixed", "turns": settings["horizon"]},
        "demonstrations.horizon": 8,
        "evaluate.horizon": settings["horizon"],
        "evaluate.gyms": [family],
        "evaluate.every": plan["every"],
        "evaluate.draw": "seed",
        "evaluate.tasks": None,
        **credit,
        "credit.score": "sum",
        "credit.form": cell["form"],
        **settings.get("settings", {}),
        **settings[cell["enabling_turn"]],
    }
    return study_request(plan, seed, overrides)


def row_of(family: str, seed: int, cell: Mapping[str, Any], run: str, spent: float) -> dict[str, Any]:
    """Return the row of a finished run."""
    with open_warehouse(warehouse_dir(), run=run) as warehouse:
        ((start, best, last, fall, error),) = warehouse.sql(ENDING, run=run).fetchall()
    return {
        "family": family,
        **cell,
        "seed": seed,
        "plan": plan_hash(PLAN),
        "run": run,
        "start": round(start, 4),
        "best": round(best, 4),
        "last": round(last, 4),
        "fall": round(fall, 4),
        "fall_error": round(error, 4),
        "collapsed": int(fall > min_fall(error)),
        "cpu_seconds": round(spent),
    }


def audited(plan: Mapping[str, Any], only: str | None) -> int:
    """Audit the cold starts of the audit's seed: each pay of the enabling turn with each gamma."""
    chosen = plan["audit"]
    for family, settings in plan["families"].items():
        if "kind" not in settings or only not in (None, family):
            continue
        for gamma, pay in product([gamma for gamma in plan["cells"]["gamma"] if gamma], plan["cells"]["enabling_turn"]):
            cell = {"gamma": gamma, "form": plan["cells"]["form"][0], "enabling_turn": pay}
            run = plan_run(asked(plan, family, chosen["seed"], cell)).run_id
            folders = sorted((runs_dir() / run).glob("stages/sft/checkpoints/step-*"))
            if not folders:
                print(
                    f"{family}, gamma {gamma}, {pay}: train the cells of seed {chosen['seed']} first.", file=sys.stderr
                )
                return 1
            found = audit_checkpoint(
                str(folders[-1]), gym=family, groups=chosen["groups"], group=chosen["group"], k=chosen["k"],
                horizon=settings["horizon"], seed=chosen["seed"],
            ).as_json()  # fmt: skip
            print(f"{family}, gamma {gamma}, {pay}: {found['cpu_seconds']:.0f} CPU-s", file=sys.stderr, flush=True)
            for form in plan["cells"]["form"]:
                rules = {gamma: f"r2g/sum/{form}"}
                if gamma == plan["cells"]["gamma"][-1]:
                    rules[0.0] = f"naive/sum/{form}"  # the same for all gammas
                for of_gamma, rule in rules.items():
                    add_row(AUDITS, CELL, prediction(found, rule, settings["kind"], (family, of_gamma, form, pay)))
    return 0


def prediction(found: Mapping[str, Any], rule: str, kind: str, cell: tuple[Any, ...]) -> dict[str, Any]:
    """Return a cell's predictors. One that is not defined is empty."""
    numbers, worth = found["rules"]["sum"][f"{rule} {AGGREGATION}"], found["worth"]["sum"]
    expected, true = numbers.get(f"kind_{kind}"), worth.get(f"kind_{kind}")
    audit = None if expected is None or true is None else round(expected - true, 4)
    return dict(zip(CELL, cell, strict=True)) | {
        "push": numbers.get("push"),
        "cosine": numbers.get("cosine"),
        "audit": audit,
        "run": found["stored_as"],
    }


if __name__ == "__main__":
    sys.exit(main())
