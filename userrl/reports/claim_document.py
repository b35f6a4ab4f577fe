"""The page of a claim: its arms with intervals over seeds, the verdict on its contrast, its checks."""

from __future__ import annotations

import math
from collections.abc import Iterator

from curricula.claims import CHECKS
from userrl.reports.claim_report import METRICS, ArmRow, ClaimReport
from userrl.reports.document import Block, Code, Document, Inline, Items, Line, TableBlock, Text
from userrl_core.measure.verdict import ClaimVerdict
from userrl_core.number_format import NULL, p_value, with_limits

ALSO_SHOWN = ("score", "collapsed")
"""Metrics that have a column in every claim's table."""


def claim_document(report: ClaimReport, adjusted: float | None = None) -> Document:
    """Return the claim's page. adjusted: Holm's p among all primary contrasts."""
    return Document(f"Claim {report.claim.name}", tuple(_blocks(report, adjusted)))


def _blocks(report: ClaimReport, adjusted: float | None) -> Iterator[Block]:
    yield _arms(report)
    yield _contrast(report, adjusted)
    yield Text(f"{str(report.verdict).capitalize()}, in miniature, {scope(report)}.", strong=True)
    if said := [*_exploratory(report), *_checked(report), *report.says]:
        yield Items(tuple(said))


def _arms(report: ClaimReport) -> TableBlock:
    metric = report.claim.metric
    own = () if metric in ALSO_SHOWN else (f"{metric} [95 %]",)
    score = "score" if own else "score [95 %]"
    head = ("arm", "seeds", *own, score, "best on validation", "collapsed", "crashed", "CPU seconds per run")
    return TableBlock(head, tuple(_row(row, of_metric=bool(own)) for row in report.arms))


def _row(row: ArmRow, *, of_metric: bool) -> tuple[Line, ...]:
    measured = row.measured
    intervals = (*([measured.metric] if of_metric else []), measured.score, measured.best, measured.collapsed)
    return (
        _named(row),
        str(len(measured.seeds)),
        *(with_limits(interval) for interval in intervals),
        str(measured.crashed),
        NULL if row.cpu_seconds is None else f"{row.cpu_seconds:.0f}",
    )


def _named(row: ArmRow) -> tuple[Inline, ...]:
    """Return the arm's name, with a star if it is exploratory."""
    return (Code(row.arm), "*") if row.exploratory else (Code(row.arm),)


def _contrast(report: ClaimReport, adjusted: float | None) -> Text:
    contrast, verdict = report.claim.contrast, report.verdict
    p = "" if math.isnan(verdict.p) else f"; p {p_value(verdict.p)}"
    p += "" if adjusted is None else f", {p_value(adjusted)} by Holm"
    more = f"98 %, {verdict.seeds} seeds{p}"
    seen = "no paired seeds yet" if verdict.interval is None else f"{with_limits(verdict.interval)} ({more})"
    return Text((Code(contrast.more), " − ", Code(contrast.than), f", {METRICS[report.claim.metric]}: {seen}."))


def _exploratory(report: ClaimReport) -> Iterator[Line]:
    if report.exploratory:
        yield f"Exploratory: {report.exploratory}."
    for row in report.arms:
        if row.exploratory:
            yield (*_named(row), f" is exploratory: {row.exploratory}.")


def scope(report: ClaimReport) -> str:
    """Return the scope of the verdict: the task families that agree, and the learning rates at which its sign changes."""
    verdict, second = report.verdict, report.checks.get("second-family")
    agrees = second is not None and second.word == verdict.word != "undecided"
    where = f"on {report.claim.family}" + (f" and {report.claim.check('second-family').family}" if agrees else "")
    rates = {which: check for which, check in report.checks.items() if which.endswith("rate")}
    turned = [CHECKS[which] for which, check in rates.items() if verdict.turns(check)]
    return where + (f", but its sign changes {' and '.join(turned)}" if turned else "")


def _checked(report: ClaimReport) -> Iterator[str]:
    for which, check in report.checks.items():
        where = f"on {report.claim.check(which).family}" if which == "second-family" else CHECKS[which]
        yield f"{where.capitalize()}, {check.seeds} seeds: {_seen(check)} (98 %){_word(which, check)}."


def _seen(check: ClaimVerdict) -> str:
    return "no paired seeds yet" if check.interval is None else with_limits(check.interval)


def _word(which: str, check: ClaimVerdict) -> str:
    """Return the check's verdict. A check at another learning rate has too few seeds for one."""
    return "" if which.endswith("rate") else f": {check}"
