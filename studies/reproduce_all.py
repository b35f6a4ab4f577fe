"""Every claim over its seeds, and the page of results: docs/reproduction.md.

    python studies/reproduce_all.py [--seeds 8] [--parallel 2] [--only CLAIM ...] [--page]

All claims are registered before the first run, because claims share runs of the same arm. Finished runs are reused and
interrupted ones continue. ``--page`` runs nothing and writes the page from the results in $USERRL_HOME.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from curricula.claims import Claim, claim_names, load_claim
from userrl.claims.register import registered, runs_of
from userrl.machine.home import check_writable, home, warehouse_dir
from userrl.reports.claim_document import claim_document
from userrl.reports.claim_report import METRICS, ClaimReport, claim_report
from userrl_core.measure.recipes import holm
from warehouse import open_warehouse

PAGE = Path(__file__).parents[1] / "docs" / "reproduction.md"
MARK = "<!-- From here on written by studies/reproduce_all.py -->"


def main() -> int:
    """Run what is missing, then write the page. Returns 1 if a claim could not be run."""
    parser = argparse.ArgumentParser(description="Every claim over its seeds.")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--only", nargs="+", default=list(claim_names()))
    parser.add_argument("--page", action="store_true", help="run nothing")
    given = parser.parse_args()
    claims = [load_claim(name) for name in given.only]
    failed = [] if given.page else run(claims, given.seeds, given.parallel)
    write([load_claim(name) for name in claim_names()])
    for name in failed:
        print(f"{name} could not be run to its end; start this again", file=sys.stderr)
    return int(bool(failed))


def run(claims: Sequence[Claim], seeds: int, parallel: int) -> list[str]:
    """Return the names of the claims whose flow failed."""
    check_writable(home(), warehouse_dir())
    for claim in claims:
        with registered(claim, changed_budget=False):
            pass
    command = [sys.executable, "-m", "flows.cli.main", "reproduce"]
    options = ["--seeds", str(seeds), "--parallel", str(parallel)]
    return [claim.name for claim in claims if subprocess.run([*command, claim.name, *options], check=False).returncode]


def write(claims: Sequence[Claim]) -> None:
    """Write the page's tables. The text above the mark is hand-written."""
    registrations: dict[str, Mapping[str, Any]] = {}
    tables: dict[str, ClaimReport] = {}
    for claim in claims:
        with open_warehouse(warehouse_dir(), run=runs_of([claim.name])) as warehouse:
            registrations |= {
                row["hash"]: row for row in warehouse.rows("FROM claims(of_claim := $claim)", claim=claim.name)
            }
            if claim.hash in registrations:
                tables[claim.name] = claim_report(warehouse, claim, registrations[claim.hash]["exploratory"])
    tested = [name for name, table in tables.items() if table.verdict.p == table.verdict.p and not table.exploratory]
    adjusted = dict(zip(tested, holm([tables[name].verdict.p for name in tested]), strict=True))
    lines = [MARK]
    for kind in ("claim", "mechanism check", "open question"):
        lines += ["", f"## {kind.capitalize()}s"]
        for claim in (each for each in claims if each.kind == kind):
            table = tables.get(claim.name)
            since = registrations[claim.hash]["registered"] if table else None
            lines += ["", *section(claim, table, str(since)[:16], adjusted.get(claim.name))]
    before = PAGE.read_text().partition(MARK)[0] if PAGE.is_file() else ""
    PAGE.write_text(before + "\n".join(lines) + "\n")
    print(f"wrote {PAGE}")


def section(claim: Claim, table: ClaimReport | None, since: str, adjusted: float | None) -> list[str]:
    """Return the section of one claim."""
    metric = METRICS[claim.metric]
    about = (
        f"{claim.text} ({claim.paper}) {metric[0].upper()}{metric[1:]}; {claim.family}, {claim.horizon} turns, "
        f"{claim.tokens:,} tokens a run, delta {claim.delta:g}; hash `{claim.hash}`."
    )
    if table is None or not table.arms:
        return [f"### {claim.name}", "", about, "", f"Arms: {', '.join(f'`{arm}`' for arm in claim.arms)}. Not run."]
    said = f"    userrl reproduce {claim.name} --seeds {len(table.values)}      # registered {since} UTC"
    return [
        f"### {claim.name}",
        "",
        about,
        "",
        said,
        "",
        replace(claim_document(table, adjusted), title="").markdown().rstrip(),
    ]


if __name__ == "__main__":
    sys.exit(main())
