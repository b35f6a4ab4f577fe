"""Write the claims' tables of data/claims/README.md from data/claims alone.

python -m lab.pages.claims_page

A claim with runs in runs.csv (`lab/pages/claims_data.py`) is measured from them, by the rule of
`analysis.measure.verdict`. Its checks follow it. The other claims have only their published tables
(published_arms.csv, published_contrasts.csv). The script computes all results that follow from those tables, and
says which results are missing without the runs.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from scipy import stats

from analysis.measure.claims import PARTS, SeedResult, arm_intervals, contrast_verdict
from analysis.measure.interval import Interval, share_interval
from analysis.measure.verdict import ALPHA, LOOKS, ClaimVerdict, compare_shares, score_word
from curricula.claims import CHECKS, Claim, claim_names, load_claim
from userrl.reports.claim_document import size
from userrl_core.number_format import limits, p_value, with_limits

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "data" / "claims" / "README.md"
DATA = ROOT / "data" / "claims"
MARK = "<!-- From here on written by lab/pages/claims_page.py -->"
Row = Mapping[str, str]
DIRECTED = ("reproduced", "above zero, delta not excluded", "below zero, delta not excluded", "the reverse", "mixed")
"""Verdicts that name a direction."""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(PAGE.read_text(), DATA))
    print(f"wrote {PAGE}")


def page(text: str, data: Path) -> str:
    """Return the page with rewritten sections of its claims."""
    runs, arms = rows(data / "runs.csv"), rows(data / "published_arms.csv")
    contrasts = rows(data / "published_contrasts.csv")
    no_verdict = withdrawn(text)
    lines = [MARK]
    for kind in ("claim", "mechanism check", "open question"):
        lines += ["", f"## {kind.capitalize()}s"]
        for claim in (load_claim(name) for name in claim_names()):
            if claim.kind == kind:
                lines += ["", *section(claim, runs, arms, contrasts, withdrawn=claim.name in no_verdict)]
                for check in checks(claim, runs):
                    lines += checked(check, runs)
    return text.partition(MARK)[0] + "\n".join(lines) + "\n"


def withdrawn(text: str) -> set[str]:
    """Return the claims whose published verdict the page's first table withdraws."""
    return set(re.findall(r"^\| `([\w-]+)` \| [^|]+ \| withdrawn\b", text, re.MULTILINE))


def checks(claim: Claim, runs: Sequence[Row]) -> Iterator[Claim]:
    """Yield the checks of the claim that were run."""
    ran = {row["claim"] for row in runs}
    yield from (claim.check(which) for which in CHECKS if f"{claim.name}.{which}" in ran)


def results_of(claim: Claim, runs: Sequence[Row]) -> list[SeedResult]:
    """Return the results of a claim or check, [] if it was not run. Of runs of several codes, the registered code's count."""
    own = [row for row in runs if row["claim"] == claim.name and not row["exploratory"]]
    if not own:
        return []  # a hash needs every recipe
    own = [row for row in own if row["hash"] in (claim.hash, claim.as_published.hash)]
    newest = [row for row in own if row["hash"] == claim.hash] or own
    return [result(row) for row in newest if row["code"] == newest[0]["code"]]


def verdict_of(claim: Claim, results: Sequence[SeedResult]) -> ClaimVerdict:
    """Return the verdict on the claim's contrast."""
    contrast = claim.contrast
    return contrast_verdict(results, claim.metric, contrast.more, contrast.than, claim.delta, claim.interval)


def checked(check: Claim, runs: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of a check; none if it was not run in its present form."""
    if not (results := results_of(check, runs)):
        return
    which = check.name.rpartition(".")[2]
    yield from ("", f"#### {check.name}", "", f"{CHECKS[which].capitalize()}. Hash `{check.hash}`.", "")
    yield from from_results(check, results, size(check))


def rows(path: Path) -> list[Row]:
    """Return the rows of a CSV file; none where it is not there."""
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def section(
    claim: Claim, runs: Sequence[Row], arms: Sequence[Row], contrasts: Sequence[Row], *, withdrawn: bool = False
) -> Iterator[str]:
    """Yield the lines of one claim. withdrawn: its published runs give no verdict."""
    yield f"### {claim.name}"
    yield ""
    yield f"{claim.text} ({claim.paper})"
    yield ""
    measured = results_of(claim, runs)
    published = [row for row in arms if row["claim"] == claim.name]
    yield from design(claim, "" if measured or not published else published[0]["registered"])
    if measured:
        yield from from_results(claim, measured, f"in miniature{also_at_135_million(claim, measured, runs)}")
    elif published:
        own = [row for row in contrasts if row["claim"] == claim.name]
        yield from from_tables(claim, published, own, withdrawn=withdrawn)
    else:
        yield f"Arms: {', '.join(f'`{arm}`' for arm in claim.arms)}. Not run."


def design(claim: Claim, registered: str) -> Iterator[str]:
    """Yield the table of a claim's settings, its hashes and, of published runs, the time of their registration."""
    yield "| family | turns | tokens a run | delta | this form | published runs |"
    yield "| --- | ---: | ---: | ---: | --- | --- |"
    time = f", {registered} UTC" if registered else ""
    hashes = f"hash `{claim.hash}` | registered as `{claim.as_published.hash}`{time}"
    yield f"| {claim.family} | {claim.horizon} | {claim.tokens:,} | {claim.delta:g} | {hashes} |"
    yield ""


def also_at_135_million(claim: Claim, results: Sequence[SeedResult], runs: Sequence[Row]) -> str:
    """Return the words for a verdict that the check with the language model shares, else nothing."""
    word = verdict_of(claim, results).word
    for check in checks(claim, runs):
        large = results_of(check, runs) if check.name.endswith(".language-model") else []
        if large and word != "undecided" and verdict_of(check, large).word == word:
            return ", at 0.1 M and at 135 M parameters"
    return ""


def from_results(claim: Claim, results: Sequence[SeedResult], where: str) -> Iterator[str]:
    """Yield the table and the verdict from single runs."""
    yield "| arm | seeds | score [95 %] | collapsed | forgot | crashed | by seed |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | --- |"
    for arm in claim.arms:
        if own := [each for each in results if each.arm == arm]:
            found = arm_intervals(own, claim.metric)
            values = " ".join(f"{value:.3f}" for each in own if (value := each.value("score")) is not None)
            share = with_limits(found.collapsed)
            cells = (str(len(own)), with_limits(found.score), share, str(found.forgot), str(found.crashed), values)
            yield f"| `{arm}` | {' | '.join(cells)} |"
    verdict = verdict_of(claim, results)
    yield ""
    yield f"`{claim.contrast.more}` less `{claim.contrast.than}`:"
    yield ""
    if (shares := verdict.shares) is not None:
        yield f"- collapsed {shares}: {with_limits(shares.interval)}, Fisher's p {p_value(shares.p)}: {shares.word}."
    if (scores := verdict.scores) is not None:
        paired = "" if scores.paired is None else f", paired {limits(scores.paired)}"
        yield f"- {claim.metric}: {with_limits(scores.welch)} by Welch{paired}, p {p_value(scores.p)}: {scores.word}."
    if verdict.seeds < LOOKS[0]:
        yield f"- These words count from the first look on, at {LOOKS[0]} seeds."
    yield ""
    yield f"**{str(verdict).capitalize()}, {where}, on {claim.family}.**"


def result(row: Row) -> SeedResult:
    """Return a row of runs.csv as the result of a seed."""
    names = ("score", "best", "early", "cpu_seconds", "time_weighted", "tokens", "updates")
    measured = {name: float(row[name]) if row[name] else None for name in names}
    crashed, forgot = row["state"] == "crashed", row["forgot"] == "true"
    return SeedResult(row["arm"], int(row["seed"]), crashed, row["ending"] == "collapsed", **measured, forgot=forgot)


def from_tables(
    claim: Claim, arms: Sequence[Row], contrasts: Sequence[Row], *, withdrawn: bool = False
) -> Iterator[str]:
    """Yield the published table, and the results that follow from it by the present rule. withdrawn: without a verdict."""
    own = bool(arms[0]["metric"])
    metric = claim.as_published.metric
    titles = [
        "arm",
        "seeds",
        *([f"{metric} [95 %]"] if own else []),
        "score [95 %]",
        "best on validation",
        "collapsed",
        "CPU-s a run",
    ]
    yield f"| {' | '.join(titles)} |"
    yield "| --- |" + " ---: |" * (len(titles) - 1)
    for row in arms:
        share = share_interval(int(row["collapsed_runs"]), int(row["seeds"]))
        cells = [
            row["seeds"],
            *([shown(row, "metric", metric)] if own else []),
            shown(row, "score"),
            shown(row, "best"),
        ]
        cells += [f"{row['collapsed_runs']} {limits(share)}", row["cpu_seconds_a_run"]]
        yield f"| `{row['arm']}` | {' | '.join(cells)} |"
    yield ""
    contrast = next(row for row in contrasts if not row["check"])
    pair = [next(row for row in arms if row["arm"] == contrast[side]) for side in ("more", "than")]
    yield f"| `{contrast['more']}` less `{contrast['than']}` | difference | limits | p | verdict |"
    yield "| --- | ---: | --- | ---: | --- |"
    for *cells, word in recomputed(metric, claim.delta, pair, contrast):
        verdict = "withdrawn" if withdrawn and word in DIRECTED else word
        yield f"| {' | '.join((*cells, verdict))} |"
    for row in (row for row in contrasts if row["check"]):
        yield f"| {row['check']}, {row['seeds']} seeds | {published_limits(row)} | paired, 98 % | – | former rule |"


def recomputed(metric: str, delta: float, pair: Sequence[Row], contrast: Row) -> Iterator[tuple[str, ...]]:
    """Yield rows of the contrast's table: what the printed values of two arms give by the present rule."""
    counts = [(int(row["collapsed_runs"]), int(row["seeds"])) for row in pair]
    parts = PARTS[metric]  # type: ignore[index]
    alpha = ALPHA / 2 if parts == "both" else ALPHA
    shares = compare_shares(counts[0], counts[1], alpha, more_is_collapse=metric == "collapsed")
    if parts != "scores":
        limits_by = f"Newcombe, {1 - alpha:.0%}"
        yield f"collapsed {shares}", with_limits(shares.interval), limits_by, p_value(shares.p), shares.word
    if parts == "shares":
        return
    name = "metric" if pair[0]["metric"] else "score"
    if parts == "both" and any(count for count, _ in counts):
        yield f"{metric} of the runs that held", "–", "–", "–", "not recomputed yet"
    elif (found := welch_of_printed(pair, name, 1 - alpha)) is not None:
        interval, p = found
        yield metric, with_limits(interval), f"Welch, {1 - alpha:.0%}", p_value(p), score_word(interval, delta)
    yield "published", published_limits(contrast), "paired, 98 %", contrast["p"], "former rule"


def welch_of_printed(pair: Sequence[Row], name: str, level: float) -> tuple[Interval, float] | None:
    """Return Welch's limits and p from printed means and 95 % t limits, or None if the limits have zero width."""
    means, errors, seeds = [], [], []
    for row in pair:
        n = int(row["seeds"])
        half = (float(row[f"{name}_high"]) - float(row[f"{name}_low"])) / 2
        means.append(float(row[name]))
        errors.append((half / float(stats.t.ppf(0.975, n - 1))) ** 2)
        seeds.append(n)
    if sum(errors) == 0:
        return None
    estimate, error = means[0] - means[1], math.sqrt(sum(errors))
    freedom = sum(errors) ** 2 / sum(e**2 / (n - 1) for e, n in zip(errors, seeds, strict=True))
    half = float(stats.t.ppf((1 + level) / 2, freedom)) * error
    p = 2 * float(stats.t.sf(abs(estimate) / error, freedom))
    return Interval(estimate, estimate - half, estimate + half, min(seeds), "Welch"), p


def shown(row: Row, name: str, metric: str = "score") -> str:
    """Return a printed interval. Limits of a score are cut at the ends of its scale, and few seeds are printed
    without limits.
    """
    estimate, low, high = (float(row[key]) for key in (name, f"{name}_low", f"{name}_high"))
    if int(row["seeds"]) < 4:
        return f"{estimate:.3f}"
    if metric in ("score", "early"):
        low, high = max(low, 0.0), min(high, 1.0)
    return with_limits(Interval(estimate, low, high, int(row["seeds"]), "t"))


def published_limits(row: Row) -> str:
    """Return the published difference with its limits."""
    return with_limits(
        Interval(*(float(row[f"paired_98{end}"]) for end in ("", "_low", "_high")), int(row["seeds"]), "t")
    )


if __name__ == "__main__":
    main()
