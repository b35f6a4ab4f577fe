"""Run the factorial of what_collapses.yaml: credit of later rewards x form x pay of the enabling turn, by family.

    python studies/what_collapses.py --list                  # the runs that are planned, and the hash of the plan
    python studies/what_collapses.py errand                  # all cells of a family, seed by seed
    python studies/what_collapses.py errand --seeds 901-902

Each cell and seed is an ordinary run of the home in $USERRL_HOME. Finished runs are not repeated, interrupted ones continue.
The cells of a seed share its cold start.
"""

from __future__ import annotations

from flows.server.settings import settle

settle()

import argparse  # noqa: E402  everything below sees the settled environment
import hashlib  # noqa: E402
import sys  # noqa: E402
from collections.abc import Iterator, Mapping  # noqa: E402
from itertools import product  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import yaml  # noqa: E402

from flows.train import train  # noqa: E402
from userrl.run.plan import plan_run  # noqa: E402
from userrl.run.request import TrainRequest  # noqa: E402

PLAN = Path(__file__).with_suffix(".yaml")


def main() -> int:
    """List or run the cells of one family."""
    parser = argparse.ArgumentParser(description="Factorial: what collapses.")
    parser.add_argument("family", nargs="?")
    parser.add_argument("--seeds", help="first-last; none: those of the plan")
    parser.add_argument("--list", action="store_true", dest="listed")
    given = parser.parse_args()
    plan = yaml.safe_load(PLAN.read_text())
    print(f"plan {hashlib.sha256(PLAN.read_bytes()).hexdigest()[:16]}", file=sys.stderr)
    built = [name for name, family in plan["families"].items() if family.get("built", True)]
    if given.family is not None and given.family not in built:
        print(f"No switch is built for {given.family}; there are {', '.join(built)}.", file=sys.stderr)
        return 2
    for family in [given.family] if given.family else built:
        for seed, cell in cells(plan, given.seeds):
            request = asked(plan, family, seed, cell)
            if given.listed or not given.family:
                print(family, seed, *cell.values(), plan_run(request).run_id)
            else:
                done = train(**request.model_dump(exclude_unset=True))
                print(f"{done['run']}: {sum(done['cpu_seconds'].values()):.0f} CPU-s", file=sys.stderr, flush=True)
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
    gamma = cell["gamma"]
    credit = {"credit.shaping": "r2g", "credit.gamma": gamma} if gamma else {"credit.shaping": "naive"}
    overrides = {
        "stages": [{"tokens": plan["tokens"], "mix": {family: 1}, "weigh": "tokens"}],
        "schedule": {"kind": "fixed", "turns": plan["horizon"]},
        "demonstrations.horizon": 8,
        "evaluate.horizon": plan["horizon"],
        "evaluate.gyms": [family],
        "evaluate.every": plan["every"],
        "evaluate.draw": "seed",
        "evaluate.tasks": None,
        **credit,
        "credit.score": "sum",
        "credit.form": cell["form"],
        **plan["families"][family][cell["enabling_turn"]],
    }
    return TrainRequest(recipe=plan["recipe"], profile=plan["profile"], seed=seed, overrides=overrides, wandb="off")


if __name__ == "__main__":
    sys.exit(main())
