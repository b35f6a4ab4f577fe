"""Run every claim over its seeds, one after the other.

    python -m lab.studies.reproduce_all [--seeds 8] [--parallel 2] [--only CLAIM ...] [--continue]

All claims are registered before the first run, since claims share runs of the same arm. Finished runs are not repeated, and
interrupted ones continue. ``--continue`` runs the next look of every undecided claim that can still be decided.
Afterwards: python -m lab.pages.claims $USERRL_HOME.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence

from curricula.claims import Claim, claim_names, load_claim
from userrl.claims.register import as_registered, registered, runs_of
from userrl.claims.report import claim_report
from userrl.machine.home import check_writable, home, warehouse_dir
from warehouse import open_warehouse


def main() -> int:
    """Run what is missing; return 1 when a claim could not be run."""
    parser = argparse.ArgumentParser(description="Every claim over its seeds.")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--only", nargs="+", default=list(claim_names()))
    parser.add_argument("--continue", dest="more", action="store_true", help="the next look of undecided claims")
    arguments = parser.parse_args()
    claims = [load_claim(name) for name in arguments.only]
    if arguments.more:
        failed = [
            name for seeds, undecided in continued(claims).items() for name in run(undecided, seeds, arguments.parallel)
        ]
    else:
        failed = run(claims, arguments.seeds, arguments.parallel)
    for name in failed:
        print(f"{name} could not be run to its end; start this again", file=sys.stderr)
    return int(bool(failed))


def run(claims: Sequence[Claim], seeds: int, parallel: int) -> list[str]:
    """Run claims and return the names of those that failed."""
    check_writable(home(), warehouse_dir())
    for claim in claims:
        with registered(claim, changed_budget=False):
            pass
    command = [sys.executable, "-m", "flows.cli.main", "reproduce"]
    options = ["--seeds", str(seeds), "--parallel", str(parallel)]
    return [claim.name for claim in claims if subprocess.run([*command, claim.name, *options], check=False).returncode]


def continued(claims: Sequence[Claim]) -> dict[int, list[Claim]]:
    """Return the claims that the rule continues, by their next number of seeds (`ClaimVerdict.continues`)."""
    by_seeds: dict[int, list[Claim]] = {}
    for claim in map(as_registered, claims):
        with open_warehouse(warehouse_dir(), run=runs_of([claim.name])) as warehouse:
            seeds = claim_report(warehouse, claim).verdict.continues
        if seeds is not None:
            by_seeds.setdefault(seeds, []).append(claim)
    return by_seeds


if __name__ == "__main__":
    sys.exit(main())
