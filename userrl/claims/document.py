"""Show a claim: its arms with intervals over seeds, the verdict on its contrast, its checks."""

from __future__ import annotations

import math
from collections.abc import Iterator

from analysis.measure.verdict import ClaimVerdict
from curricula.claims import CHECKS, Claim
from userrl.claims.report import METRICS, ArmRow, ClaimReport
from userrl.reports.document import Block, Code, Document, Inline, Items, Line, TableBlock, Text
from userrl_core.number_format import NULL, limits, number, p_value, with_limits

ALSO_SHOWN = ("score", "collapsed")
"""Metrics that have a column in every claim's table."""


def claim_document(report: ClaimReport) -> Document:
    """Return the claim's page."""
    return Document(f"Claim {report.claim.name}", tuple(_blocks(report)))


def size(claim: Claim) -> str:
    """Return the words for the size of a claim's model."""
    of_language_model = claim.name.endswith(".language-model")
    return "with a pretrained model of 135 M parameters" if of_language_model else "in miniature"


def _blocks(report: ClaimReport) -> Iterator[Block]:
    yield _arms(report)
    yield from _contrast(report)
    yield Text(f"{str(report.verdict).capitalize()}, {size(report.claim)}, {scope(report)}.", strong=True)
    if sentences := [*_exploratory(report), *_checked(report), *_by_seed(report), *report.says, *_other_code(report)]:
        yield Items(tuple(sentences))


def _arms(report: ClaimReport) -> TableBlock:
    metric = report.claim.metric
    metric_column = () if metric in ALSO_SHOWN else (f"{metric} [95 %]",)
    score = "score" if metric_column else "score [95 %]"
    cost = ("tokens", "updates")
    head = (
        "arm",
        "seeds",
        *metric_column,
        score,
        "best on validation",
        "collapsed",
        "forgot",
        "crashed",
        *cost,
        "CPU seconds per run",
    )
    return TableBlock(head, tuple(_row(row, of_metric=bool(metric_column)) for row in report.arms))


def _row(row: ArmRow, *, of_metric: bool) -> tuple[Line, ...]:
    measured = row.measured
    intervals = (*([measured.metric] if of_metric else []), measured.score, measured.best, measured.collapsed)
    return (
        _arm_name(row),
        str(len(measured.seeds)),
        *(with_limits(interval) for interval in intervals),
        str(measured.forgot),
        str(measured.crashed),
        *(NULL if math.isnan(cost) else f"{cost:,.0f}" for cost in (measured.tokens, measured.updates)),
        NULL if row.cpu_seconds is None else f"{row.cpu_seconds:.0f}",
    )


def _arm_name(row: ArmRow) -> tuple[Inline, ...]:
    """Return the arm's name, with a star if it is exploratory."""
    return (Code(row.arm), "*") if row.exploratory else (Code(row.arm),)


def _contrast(report: ClaimReport) -> Iterator[Text]:
    """Return the parts of the verdict, each with its limits and its test."""
    contrast, verdict = report.claim.contrast, report.verdict
    pair = (Code(contrast.more), " − ", Code(contrast.than))
    if verdict.shares is None and verdict.scores is None:
        yield Text((*pair, f", {METRICS[report.claim.metric]}: too few runs are finished."))
    if (shares := verdict.shares) is not None:
        level = 99 if verdict.scores is not None or report.claim.metric != "collapsed" else 98
        yield Text(
            (
                *pair,
                f", collapsed: {shares}, {with_limits(shares.interval)} (Newcombe, {level} %; Fisher's p {p_value(shares.p)}).",
            )
        )
    if (scores := verdict.scores) is not None:
        who = "among the runs that held" if scores.held else "all runs"
        runs = f"{scores.runs[0]} and {scores.runs[1]}"
        paired = "" if scores.paired is None else f"; paired {limits(scores.paired)}"
        primary = " (primary)" if report.claim.interval == "welch" else ""
        yield Text(
            (
                *pair,
                f", {METRICS[report.claim.metric]}, {who} ({runs}): {with_limits(scores.welch)} by Welch{primary}{paired} "
                f"({scores.level:.0%}; p {p_value(scores.p)}).",
            )
        )


def _by_seed(report: ClaimReport) -> Iterator[Line]:
    """Return the values of every arm by seed, so that a reader can test them otherwise."""
    for row in report.arms:
        values = [number(by_arm.get(row.arm)) for by_arm in report.values.values()]
        yield (Code(row.arm), f" by seed: {' '.join(values)}.")


def _other_code(report: ClaimReport) -> Iterator[Line]:
    for code, rows in report.other_code.items():
        for row in rows:
            seeds = ", ".join(map(str, row.measured.seeds))
            yield (
                Code(row.arm),
                f" at seeds {seeds}, trained by other code ({code}): {with_limits(row.measured.metric)}. No verdict.",
            )


def _exploratory(report: ClaimReport) -> Iterator[Line]:
    if report.exploratory:
        yield f"Exploratory: {report.exploratory}."
    for row in report.arms:
        if row.exploratory:
            yield (*_arm_name(row), f" is exploratory: {row.exploratory}.")


def scope(report: ClaimReport) -> str:
    """Return the scope of the verdict: the task families and models that agree, and the checks that change its sign."""
    verdict = report.verdict
    agree = {which for which, check in report.checks.items() if check.word == verdict.word != "undecided"}
    where = f"on {report.claim.family}"
    where += f" and {report.claim.check('second-family').family}" if "second-family" in agree else ""
    where += " and with a pretrained model of 135 million parameters" if "language-model" in agree else ""
    same_family = ("half-rate", "double-rate", "language-model")
    turned = [CHECKS[which] for which in same_family if which in report.checks and verdict.turns(report.checks[which])]
    return where + (f", but its sign changes {' and '.join(turned)}" if turned else "")


def _checked(report: ClaimReport) -> Iterator[str]:
    for which, check in report.checks.items():
        where = f"on {report.claim.check(which).family}" if which == "second-family" else CHECKS[which]
        yield f"{where.capitalize()}, {check.seeds} seeds: {_check_result(check)}{_check_outcome(which, check)}."


def _check_result(check: ClaimVerdict) -> str:
    shares, scores = check.shares, check.scores
    parts = [] if shares is None else [f"collapsed {shares}"]
    parts += [] if scores is None else [f"{with_limits(scores.interval)} ({scores.level:.0%})"]
    return ", ".join(parts) or "too few runs are finished"


def _check_outcome(which: str, check: ClaimVerdict) -> str:
    """Return the check's verdict. A check at another learning rate has too few seeds for one."""
    return "" if which.endswith("rate") else f": {check}"
