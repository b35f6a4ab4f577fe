"""What came of a claim: its arms with intervals over seeds, and the verdict on its primary contrast."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from curricula.claims import CHECKS, Claim
from flows.machine.home import runs_dir
from userrl_core.errors import ConfigError
from userrl_core.json_files import read_json
from userrl_core.measure.interval import Interval, share_interval, t_interval
from userrl_core.measure.verdict import Verdict, verdict
from warehouse import Warehouse

CRASHED = "crashed"
METRICS = {
    "score": "test score, mean of the last three evaluations",
    "early": "validation score at a sixth of the budget",
    "collapsed": "share of collapsed runs",
    "cpu_seconds": "logarithm of the CPU-seconds to the target",
    "time_weighted": "time-weighted reward at the last step",
}


@dataclass(frozen=True, slots=True)
class ArmRow:
    """One arm over its seeds, those that ended. Intervals are of 95 %: Student's t, Clopper and Pearson's for shares.

    metric: what the claim measures; best: of the checkpoint that validation chose. cpu_seconds: of all stages, in the mean;
    None where a run's report is gone. exploratory: why, "" for a registered arm.
    """

    arm: str
    seeds: tuple[int, ...]
    crashed: int
    metric: Interval
    score: Interval
    best: Interval
    collapsed: Interval
    cpu_seconds: float | None
    exploratory: str


@dataclass(frozen=True, slots=True)
class ClaimTable:
    """All that is known of a claim under one hash. values: the metric by seed and arm. says: what a reader has to know.

    checks: what came of those of `CHECKS` that were run.
    """

    claim: Claim
    hash: str
    exploratory: str
    arms: tuple[ArmRow, ...]
    values: Mapping[int, Mapping[str, float]]
    verdict: Verdict
    checks: Mapping[str, Verdict]
    says: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """For programs; the same for the same runs, whenever they were made."""
        return {
            "claim": self.claim.name,
            "kind": self.claim.kind,
            "hash": self.hash,
            "exploratory": self.exploratory,
            "verdict": str(self.verdict),
            "seeds": self.verdict.seeds,
            "difference": _difference(self.verdict),
            "p": None if math.isnan(self.verdict.p) else self.verdict.p,
            "checks": {
                which: {"verdict": str(found), "seeds": found.seeds, "difference": _difference(found)}
                for which, found in self.checks.items()
            },
            "values": {str(seed): dict(by_arm) for seed, by_arm in self.values.items()},
            "arms": {
                row.arm: {
                    "seeds": len(row.seeds),
                    "crashed": row.crashed,
                    **{name: _limits(getattr(row, name)) for name in ("metric", "score", "best", "collapsed")},
                    "exploratory": row.exploratory,
                }
                for row in self.arms
            },
        }

    def text(self, adjusted: float | None = None) -> str:
        """In Markdown. adjusted: Holm's p among all primary contrasts."""
        claim, found = self.claim, self.verdict
        lines = ["| arm | seeds | score [95 %] | best on validation | collapsed | crashed | CPU-s a run |"]
        other = claim.metric not in ("score", "collapsed")
        if other:
            lines[0] = lines[0].replace("| score [95 %] |", f"| {claim.metric} [95 %] | score |")
        lines.append("| --- |" + " ---: |" * (lines[0].count("|") - 2))
        for row in self.arms:
            cells = [f"`{row.arm}`{'*' * bool(row.exploratory)}", str(len(row.seeds))]
            cells += [_said(row.metric)] if other else []
            cells += [_said(row.score), _said(row.best), _said(row.collapsed), str(row.crashed)]
            lines.append(f"| {' | '.join(cells)} | {'' if row.cpu_seconds is None else f'{row.cpu_seconds:.0f}'} |")
        contrast = f"`{claim.contrast.more}` less `{claim.contrast.than}`, {METRICS[claim.metric]}"
        interval, p = found.interval, "" if math.isnan(found.p) else f"; p {found.p:.3g}"
        p += "" if adjusted is None else f", {adjusted:.3g} by Holm"
        seen = "nothing is paired yet" if interval is None else f"{_said(interval)} (98 %, {found.seeds} seeds{p})"
        lines += ["", f"{contrast}: {seen}. **{str(found).capitalize()}**, in miniature, {self.scope()}."]
        lines += [f"Exploratory: {self.exploratory}."] if self.exploratory else []
        lines += [f"`{row.arm}`* is exploratory: {row.exploratory}." for row in self.arms if row.exploratory]
        return "\n".join([*lines, *self._checked(), *self.says]) + "\n"

    def scope(self) -> str:
        """What the verdict is about: the first family until the second agrees, and the learning rates at which its sign turns."""
        second = self.checks.get("second-family")
        agrees = second is not None and second.word == self.verdict.word != "undecided"
        where = f"on {self.claim.family}" + (f" and {self.claim.check('second-family').family}" if agrees else "")
        turned = [
            CHECKS[which] for which, found in self.checks.items() if which.endswith("rate") and self._turns(found)
        ]
        return where + (f", but its sign turns {' and '.join(turned)}" if turned else "")

    def _turns(self, found: Verdict) -> bool:
        own, other = self.verdict.interval, found.interval
        return own is not None and other is not None and own.estimate * other.estimate < 0

    def _checked(self) -> list[str]:
        lines = []
        for which, found in self.checks.items():
            where = f"on {self.claim.check(which).family}" if which == "second-family" else CHECKS[which]
            seen = "nothing is paired yet" if found.interval is None else _said(found.interval)
            word = "" if which.endswith("rate") else f": {found}"
            lines.append(f"{where.capitalize()}, {found.seeds} seeds: {seen} (98 %){word}.")
        return lines


def claim_table(warehouse: Warehouse, claim: Claim, exploratory: str = "") -> ClaimTable:
    """Of the runs that are registered under the claim's hash. exploratory: why the whole is."""
    rows = list(warehouse.rows("FROM claim_arms(of_claim := $claim)", claim=claim.name))
    rows = [row for row in rows if row["hash"] == claim.hash and row["state"] != "started"]
    names = [*claim.arms, *dict.fromkeys(row["arm"] for row in rows if row["arm"] not in claim.arms)]
    by_arm = {name: own for name in names if (own := [row for row in rows if row["arm"] == name])}
    values: dict[int, dict[str, float]] = {}
    for row in rows:
        if (value := _value(row, claim.metric)) is not None:
            values.setdefault(row["seed"], {})[row["arm"]] = value
    more, than = claim.contrast.more, claim.contrast.than
    known = {str(row["claim"]) for row in warehouse.rows("FROM claims()")}
    paired = [values[seed] for seed in sorted(values) if {more, than} <= values[seed].keys()]
    return ClaimTable(
        claim,
        claim.hash,
        exploratory,
        tuple(_arm(name, own, claim.metric, exploratory) for name, own in by_arm.items()),
        {seed: values[seed] for seed in sorted(values)},
        verdict([each[more] - each[than] for each in paired], claim.delta),
        {
            which: table.verdict
            for which in CHECKS
            if f"{claim.name}.{which}" in known and (table := _check(warehouse, claim, which)) is not None
        },
        tuple(_says(claim, rows)),
    )


def _check(warehouse: Warehouse, claim: Claim, which: str) -> ClaimTable | None:
    """The table of a check that was run as it is written."""
    try:
        check = claim.check(which)
    except ConfigError:  # a claim without a second family any more
        return None
    table = claim_table(warehouse, check)
    return table if table.arms else None


def _arm(name: str, rows: Sequence[Mapping[str, Any]], metric: str, exploratory: str) -> ArmRow:
    fallen = sum(_value(row, "collapsed") == 1 for row in rows)
    reports = [read_json(runs_dir() / row["run_id"] / "report.json") or {} for row in rows]
    cpu = [sum(report["cpu_seconds"].values()) for report in reports if report.get("cpu_seconds")]
    reasons = [row["exploratory"] for row in rows if row["exploratory"]]
    return ArmRow(
        name,
        tuple(row["seed"] for row in rows),
        sum(row["state"] == CRASHED for row in rows),
        _interval(rows, metric),
        _interval(rows, "score"),
        _interval(rows, "best"),
        share_interval(fallen, len(rows)),
        sum(cpu) / len(cpu) if len(cpu) == len(rows) else None,
        # What the whole is exploratory for is said once, of the whole.
        reasons[0].removeprefix(exploratory).removeprefix("; ") if reasons else "",
    )


def _interval(rows: Sequence[Mapping[str, Any]], metric: str) -> Interval:
    values = [value for row in rows if (value := _value(row, metric)) is not None]
    return t_interval(np.array(values)) if values else Interval(math.nan, math.nan, math.nan, 0, "t")


def _value(row: Mapping[str, Any], metric: str) -> float | None:
    """The metric of one run that is over. One that crashed has score 0 and counts as collapsed."""
    if metric == "collapsed":
        return float(row["state"] == CRASHED or row["ending"] == "collapsed")
    value = row[metric]
    if metric == "cpu_seconds":
        return None if value is None else math.log(value)
    return 0.0 if row["state"] == CRASHED else value


def _says(claim: Claim, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Departures from what the claim's file promises."""
    said = []
    if claim.same_cold_start:
        starts: dict[int, set[str]] = {}
        for row in rows:
            if row["cold_start"] is not None and row["arm"] in claim.arms:
                starts.setdefault(row["seed"], set()).add(row["cold_start"])
        if apart := sorted(seed for seed, hashes in starts.items() if len(hashes) > 1):
            said.append(f"Arms began with different cold starts at seeds {', '.join(map(str, apart))}.")
    few = sorted({row["seed"] for row in rows if row["score"] is not None and row["evaluations"] < 3})
    if few:
        said.append(
            f"Fewer than three evaluations within the last fifth of the budget at seeds {', '.join(map(str, few))}: "
            "the score there is the mean of those."
        )
    never = [row for row in rows if claim.target is not None and row["reached_step"] is None]
    if never:
        said.append(f"{len(never)} runs never reached {claim.target:g} on validation; all their CPU-seconds count.")
    return said


def _said(interval: Interval) -> str:
    if math.isinf(interval.low):
        return f"{interval.estimate:.3f}"
    return f"{interval.estimate:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def _difference(found: Verdict) -> list[float] | None:
    return None if found.interval is None else [found.interval.estimate, found.interval.low, found.interval.high]


def _limits(interval: Interval) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in (interval.estimate, interval.low, interval.high)]
