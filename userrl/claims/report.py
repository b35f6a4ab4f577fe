"""Gather the runs of a registered claim and measure them: the arms over their seeds, and the verdict on the contrast."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.measure.claims import ArmIntervals, SeedResult, arm_intervals, contrast_verdict, values_by_seed
from analysis.measure.interval import finite
from analysis.measure.verdict import ClaimVerdict
from curricula.claims import CHECKS, Claim
from userrl.comparison.report import mean_cpu_seconds
from userrl_core.errors import ConfigError
from warehouse import Warehouse

CRASHED = "crashed"
METRICS = {
    "score": "test score, mean of the last three evaluations",
    "early": "validation score at a sixth of the budget",
    "collapsed": "share of collapsed runs",
    "cpu_seconds": "logarithm of the CPU-seconds to the target",
    "tokens": "logarithm of the tokens until validation stays at the target",
    "time_weighted": "time-weighted reward at the last step",
}


@dataclass(frozen=True, slots=True)
class ArmRow:
    """One arm over its finished seeds.

    cpu_seconds: mean over the runs, all stages; None if a run's report is gone. exploratory: the reason, "" for a registered
    arm.
    """

    arm: str
    measured: ArmIntervals
    cpu_seconds: float | None
    exploratory: str


@dataclass(frozen=True, slots=True)
class ClaimReport:
    """All results of a claim under one hash.

    values: the metric by seed and arm. checks: the verdicts of the `CHECKS` that were run. other_code: arms of runs
    that other code trained, by the hash of that code; they are in no verdict. says: departures from the claim's file.
    """

    claim: Claim
    hash: str
    exploratory: str
    arms: tuple[ArmRow, ...]
    values: Mapping[int, Mapping[str, float]]
    verdict: ClaimVerdict
    checks: Mapping[str, ClaimVerdict]
    says: tuple[str, ...]
    other_code: Mapping[str, tuple[ArmRow, ...]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the report for programs. The same runs give the same text, whenever they were made."""
        return {
            "claim": self.claim.name,
            "kind": self.claim.kind,
            "hash": self.hash,
            "exploratory": self.exploratory,
            "verdict": str(self.verdict),
            "seeds": self.verdict.seeds,
            "difference": _difference(self.verdict),
            "p": None if math.isnan(self.verdict.p) else self.verdict.p,
            "parts": _parts(self.verdict),
            "continues": self.verdict.continues,
            "checks": {
                which: {"verdict": str(verdict), "seeds": verdict.seeds, "difference": _difference(verdict)}
                for which, verdict in self.checks.items()
            },
            "values": {str(seed): dict(by_arm) for seed, by_arm in self.values.items()},
            "arms": {
                row.arm: {
                    "seeds": len(row.measured.seeds),
                    "crashed": row.measured.crashed,
                    **{
                        name: [*getattr(row.measured, name).as_json().values()]
                        for name in ("metric", "score", "best", "collapsed")
                    },
                    "forgot": row.measured.forgot,
                    "tokens": finite(row.measured.tokens),
                    "updates": finite(row.measured.updates),
                    "exploratory": row.exploratory,
                }
                for row in self.arms
            },
            "other_code": {
                code: {row.arm: list(row.measured.seeds) for row in rows} for code, rows in self.other_code.items()
            },
        }


def claim_report(warehouse: Warehouse, claim: Claim, exploratory: str = "") -> ClaimReport:
    """Return the report on the runs registered under the claim's hash. exploratory: why the whole reproduction is
    exploratory.
    """
    rows = list(warehouse.rows("FROM claim_arms(of_claim := $claim)", claim=claim.name))
    rows = [row for row in rows if row["hash"] == claim.hash and row["state"] != "started"]
    registrations = list(warehouse.rows("FROM claims(of_claim := $claim)", claim=claim.name))
    code = next((row["code"] for row in registrations if row["hash"] == claim.hash), None)
    # A registration without a hash of its code (up to 25 November 2026) tells no runs apart.
    other_code_rows = [row for row in rows if code is not None and row["code"] != code]
    rows = [row for row in rows if code is None or row["code"] == code]
    names = [*claim.arms, *dict.fromkeys(row["arm"] for row in rows if row["arm"] not in claim.arms)]
    by_arm = {name: arm_rows for name in names if (arm_rows := [row for row in rows if row["arm"] == name])}
    results = [_result(row) for row in rows]
    contrast = claim.contrast
    registered_names = {str(row["claim"]) for row in warehouse.rows("FROM claims()")}
    return ClaimReport(
        claim,
        claim.hash,
        exploratory,
        tuple(_arm(name, arm_rows, claim, exploratory) for name, arm_rows in by_arm.items()),
        values_by_seed(results, claim.metric),
        contrast_verdict(results, claim.metric, contrast.more, contrast.than, claim.delta, claim.interval),
        {
            which: check.verdict
            for which in CHECKS
            if f"{claim.name}.{which}" in registered_names and (check := _check(warehouse, claim, which)) is not None
        },
        tuple(_departures(claim, rows)),
        _by_code(other_code_rows, claim, exploratory),
    )


def _by_code(rows: Sequence[Mapping[str, Any]], claim: Claim, exploratory: str) -> dict[str, tuple[ArmRow, ...]]:
    """Return the arms of runs that other code trained, by that code."""
    by_code: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for row in rows:
        by_code.setdefault(row["code"] or "unknown", {}).setdefault(row["arm"], []).append(row)
    return {
        code: tuple(_arm(name, arm_rows, claim, exploratory) for name, arm_rows in arms.items())
        for code, arms in by_code.items()
    }


def _check(warehouse: Warehouse, claim: Claim, which: str) -> ClaimReport | None:
    """Return the report on a check, or None if it was not run as written."""
    try:
        check = claim.check(which)
    except ConfigError:  # a claim that no longer has a second family
        return None
    report = claim_report(warehouse, check)
    return report if report.arms else None


def _arm(name: str, rows: Sequence[Mapping[str, Any]], claim: Claim, exploratory: str) -> ArmRow:
    reasons = [row["exploratory"] for row in rows if row["exploratory"]]
    return ArmRow(
        name,
        arm_intervals([_result(row) for row in rows], claim.metric),
        mean_cpu_seconds([row["run_id"] for row in rows]),
        # The reason why the whole reproduction is exploratory is given once.
        reasons[0].removeprefix(exploratory).removeprefix("; ") if reasons else "",
    )


def _result(row: Mapping[str, Any]) -> SeedResult:
    names = ("score", "best", "early", "cpu_seconds", "time_weighted", "tokens", "updates")
    measured = {name: row[name] for name in names}
    crashed, collapsed = row["state"] == CRASHED, row["ending"] == "collapsed"
    return SeedResult(row["arm"], row["seed"], crashed, collapsed, **measured, forgot=bool(row["forgot"]))


def _departures(claim: Claim, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the departures from the claim's file."""
    departures = []
    if claim.same_cold_start:
        starts: dict[int, set[str]] = {}
        for row in rows:
            if row["cold_start"] is not None and row["arm"] in claim.arms:
                starts.setdefault(row["seed"], set()).add(row["cold_start"])
        if differing_seeds := sorted(seed for seed, hashes in starts.items() if len(hashes) > 1):
            departures.append(f"Arms have different cold starts at seeds {', '.join(map(str, differing_seeds))}.")
    few = sorted({row["seed"] for row in rows if row["score"] is not None and row["evaluations"] < 3})
    if few:
        departures.append(
            f"Fewer than three evaluations in the last fifth of the budget at seeds {', '.join(map(str, few))}; "
            "their score is the mean of these evaluations."
        )
    reached = "held_step" if claim.metric == "tokens" else "reached_step"
    never = [row for row in rows if claim.target is not None and row[reached] is None]
    if never:
        stay = "stayed at" if claim.metric == "tokens" else "reached"
        departures.append(
            f"{len(never)} runs never {stay} {claim.target:g} on validation; all of their training counts."
        )
    return departures


def _parts(verdict: ClaimVerdict) -> dict[str, Any]:
    """Return both parts of a verdict for programs."""
    parts: dict[str, Any] = {}
    if (shares := verdict.shares) is not None:
        limits = [shares.interval.estimate, shares.interval.low, shares.interval.high]
        parts["collapsed"] = {
            "more": shares.more,
            "than": shares.than,
            "newcombe": limits,
            "p": shares.p,
            "word": shares.word,
        }
    if (scores := verdict.scores) is not None:
        intervals = {"welch": scores.welch, "paired": scores.paired}
        limits_of = {
            name: None if interval is None else [*interval.as_json().values()] for name, interval in intervals.items()
        }
        parts["score"] = {"runs": scores.runs, "level": scores.level, "p": scores.p, "word": scores.word, **limits_of}
    return parts


def _difference(verdict: ClaimVerdict) -> list[float] | None:
    interval = verdict.interval
    return None if interval is None else [interval.estimate, interval.low, interval.high]
