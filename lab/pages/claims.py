"""Data and page of the claims: the runs of homes go to data/claims, and its README.md is written from there alone.

    python -m lab.pages.claims                                  # writes the page
    python -m lab.pages.claims .userrl [OTHER_HOME ...] [--only CLAIM ...]     # adds the homes' runs first
    python -m lab.pages.claims --turns elicitation-pay.language-model          # a table of data/language-model

runs.csv            one row a run: claim, hashes, arm, seed, and every number that a verdict needs
validation.parquet  one row a run, step and task tier: score, score within the training horizon, tokens and conversations so far
test.parquet        one row a run, policy, step and test conversation: task, tier, score, turns, return, how it ended
steps.parquet       one row a run and training step: horizon, conversations, tokens, updates, CPU-seconds, entropy, signal

A row that is there already is replaced by the newer one. A claim with runs in runs.csv is measured from them, by the rule of
`analysis.measure.verdict`. Its checks follow it. The other claims have only their published tables (published_arms.csv,
published_contrasts.csv). The page has all results that follow from those tables, and says which are missing without the runs.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import polars as pl
from scipy import stats

from analysis.measure.claims import PARTS, SeedResult, arm_intervals, contrast_verdict
from analysis.measure.interval import Interval, share_interval
from analysis.measure.verdict import ALPHA, LOOKS, ClaimVerdict, compare_shares, score_word
from curricula.claims import CHECKS, Claim, claim_names, load_claim
from userrl.claims.document import size
from userrl_core.number_format import limits, p_value, with_limits
from warehouse import Warehouse, open_warehouse

ROOT = Path(__file__).parents[2]
DATA = ROOT / "data" / "claims"
PAGE = DATA / "README.md"
MARK = "<!-- From here on written by lab/pages/claims.py -->"
Row = Mapping[str, str]
DIRECTED = ("reproduced", "above zero, delta not excluded", "below zero, delta not excluded", "the reverse", "mixed")
"""Verdicts that name a direction."""
START, LAST = "SFT", "RL last step"
"""Policies of the table of turns."""

RUNS = """
SELECT a.claim, a.hash, c.registration, a.code, c.measure, c.registered::VARCHAR AS registered, a.arm, a.seed,
       a.run_id AS run, a.exploratory, a.state, a.score, a.evaluations, a.best, a.early, a.time_weighted, a.ending,
       a.forgot, e.best_step, e.last_step, e.fall, e.stderr,
       e.own_horizon, e.own_fall, e.own_stderr, a.tokens, a.updates, a.cpu_seconds, a.held_step, a.reached_step, a.cold_start
FROM claim_arms() a LEFT JOIN claims() c ON c.claim = a.claim AND c.hash = a.hash
LEFT JOIN run_endings() e ON e.run_id = a.run_id AND e.branch IS NULL
WHERE a.state <> 'started' ORDER BY a.claim, a.hash, a.arm, a.seed
"""
VALIDATION = """
SELECT t.run_id AS run, t.step, t.gym, coalesce(t.tier, '') AS tier, count(*) AS n, avg(t.score) AS score,
       avg(CASE WHEN t.turns > coalesce(l.horizon, e.own_horizon) THEN 0.0 ELSE t.score END) AS own_score,
       any_value(l.all_tokens_so_far) AS tokens, any_value(l.episodes_so_far) AS conversations
FROM trajectories t LEFT JOIN training_log() l ON l.run_id = t.run_id AND l.step = t.step
LEFT JOIN run_endings() e ON e.run_id = t.run_id AND e.branch IS NULL
WHERE t.phase = 'validate' AND t.admitted AND t.score IS NOT NULL AND t.run_id = $run GROUP BY ALL ORDER BY ALL
"""
TEST = """
SELECT t.run_id AS run, t.policy, t.step, t.gym, coalesce(t.tier, '') AS tier, t.task_id AS task, t.attempt, t.score, t.turns,
       t.return_sum, t.stop_reason
FROM trajectories t WHERE t.phase = 'evaluate' AND t.admitted AND t.run_id = $run ORDER BY ALL
"""
STEPS = """
SELECT t.run_id AS run, t.step, t.horizon, t.episodes AS conversations, t.all_tokens AS tokens, t.updates, t.cpu_seconds, t.entropy,
       t.signal_share AS signal
FROM training_log() t WHERE t.run_id = $run ORDER BY run, step
"""
RUNS_KEY = ("claim", "hash", "arm", "seed")
OF_A_RUN: Mapping[str, tuple[str, Sequence[str]]] = {
    "validation.parquet": (VALIDATION, ("run", "step", "gym", "tier")),
    "test.parquet": (TEST, ("run", "policy", "step", "gym", "task", "attempt")),
    "steps.parquet": (STEPS, ("run", "step")),
}
"""Query and key of each file of single runs."""


def main() -> None:
    """Add the runs of the homes that are named, and write the page; or print a claim's table of turns."""
    parser = argparse.ArgumentParser(description="Data and page of the claims.")
    parser.add_argument("homes", nargs="*", type=Path, metavar="HOME")
    parser.add_argument("--only", nargs="+", metavar="CLAIM", help="claims whose runs are added; default: all")
    parser.add_argument(
        "--turns", metavar="CLAIM", help="print scores and turns of its arms by seed, and write nothing"
    )
    arguments = parser.parse_args()
    if arguments.turns:
        print("\n".join(turns_table(arguments.turns)))
        return
    for home in arguments.homes:
        with open_warehouse(home / "warehouse") as warehouse:
            print(f"{home}: {append(warehouse, DATA, arguments.only)} runs")
    PAGE.write_text(page(PAGE.read_text(), DATA))
    print(f"wrote {PAGE}")


def append(warehouse: Warehouse, folder: Path, only: Sequence[str] | None = None) -> int:
    """Add the claims' runs of one warehouse to the files of a folder. Return their number. only: these claims alone."""
    runs = warehouse.sql(RUNS).pl()
    runs = runs.filter(pl.col("claim").is_in(only)) if only else runs
    if runs.is_empty():
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    add(runs, folder / "runs.csv", RUNS_KEY)
    ids = runs["run"].drop_nulls().unique()
    for name, (query, key) in OF_A_RUN.items():
        # One query for all runs would join the turns of all of them in memory.
        add(pl.concat([warehouse.sql(query, run=run).pl() for run in ids]), folder / name, key)
    return len(runs)


def add(rows: pl.DataFrame, path: Path, key: Sequence[str]) -> None:
    """Add rows to a file. A row with the same key is replaced."""
    if path.is_file():
        earlier = pl.read_csv(path, infer_schema_length=None) if path.suffix == ".csv" else pl.read_parquet(path)
        types: Any = dict(rows.schema)
        rows = pl.concat([earlier.cast(types, strict=False), rows], how="diagonal_relaxed")
    rows = rows.unique(key, keep="last", maintain_order=True).sort(key)
    if path.suffix == ".csv":
        rows.write_csv(path)
    else:
        rows.write_parquet(path, compression="zstd")


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
    claim_runs = [row for row in runs if row["claim"] == claim.name and not row["exploratory"]]
    if not claim_runs:
        return []  # a hash needs every recipe
    claim_runs = [row for row in claim_runs if row["hash"] in (claim.hash, claim.as_published.hash)]
    newest = [row for row in claim_runs if row["hash"] == claim.hash] or claim_runs
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
        claim_contrasts = [row for row in contrasts if row["claim"] == claim.name]
        yield from from_tables(claim, published, claim_contrasts, withdrawn=withdrawn)
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
    verdict = verdict_of(claim, results).word
    for check in checks(claim, runs):
        large = results_of(check, runs) if check.name.endswith(".language-model") else []
        if large and verdict != "undecided" and verdict_of(check, large).word == verdict:
            return ", at 0.1 M and at 135 M parameters"
    return ""


def from_results(claim: Claim, results: Sequence[SeedResult], where: str) -> Iterator[str]:
    """Yield the table and the verdict from single runs."""
    yield "| arm | seeds | score [95 %] | collapsed | forgot | crashed | by seed |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | --- |"
    for arm in claim.arms:
        if arm_results := [result for result in results if result.arm == arm]:
            intervals = arm_intervals(arm_results, claim.metric)
            by_seed = [value for result in arm_results if (value := result.value("score")) is not None]
            cells = [str(len(arm_results)), with_limits(intervals.score), with_limits(intervals.collapsed)]
            cells += [str(intervals.forgot), str(intervals.crashed), " ".join(f"{score:.3f}" for score in by_seed)]
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
    has_metric = bool(arms[0]["metric"])
    metric = claim.as_published.metric
    titles = [
        "arm",
        "seeds",
        *([f"{metric} [95 %]"] if has_metric else []),
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
            *([shown(row, "metric", metric)] if has_metric else []),
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
    for *cells, verdict_word in recomputed(metric, claim.delta, pair, contrast):
        verdict = "withdrawn" if withdrawn and verdict_word in DIRECTED else verdict_word
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
    elif (welch_result := welch_of_printed(pair, name, 1 - alpha)) is not None:
        interval, p = welch_result
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
    estimate, low, high = (float(row[f"paired_98{end}"]) for end in ("", "_low", "_high"))
    return with_limits(Interval(estimate, low, high, int(row["seeds"]), "t"))


def turns_table(claim: str) -> Iterator[str]:
    """Yield the lines of the table: a row for each seed with all arms, and their means. The arms share a cold start."""
    means = mean_turns(claim)
    arms = sorted({arm for arm, _, _ in means})
    seeds = [seed for seed in sorted({seed for _, seed, _ in means}) if all((arm, seed, LAST) in means for arm in arms)]
    [scripted] = {policy for _, _, policy in means if policy.startswith("scripted")}
    columns_shown = [(arms[0], scripted), (arms[0], START), *((arm, LAST) for arm in arms)]
    cells = [[means[arm, seed, policy] for arm, policy in columns_shown] for seed in seeds]
    arm_names = " | ".join(f"`{arm}`" for arm in arms)
    yield f"| seed | demonstrator | SFT | {arm_names} | turns, SFT | {arm_names} |"
    yield "| --- |" + " ---: |" * (2 * len(arms) + 3)
    for seed, row in zip(seeds, cells, strict=True):
        yield turns_line(str(seed), row)
    columns = zip(*cells, strict=True)
    yield turns_line(
        "mean", [(fmean(score for score, _ in column), fmean(turns for _, turns in column)) for column in columns]
    )


def turns_line(name: str, row: list[tuple[float, float]]) -> str:
    """Return a row of the table. row: score and turns of demonstrator, cold start and arms."""
    scores, turns = [f"{score:.2f}" for score, _ in row], [f"{turns:.1f}" for _, turns in row[1:]]
    return f"| {name} | {' | '.join(scores + turns)} |"


def mean_turns(claim: str) -> dict[tuple[str, int, str], tuple[float, float]]:
    """Return mean score and mean turns over the test tasks, by arm, seed and policy."""
    rows = pl.read_csv(DATA / "runs.csv", infer_schema_length=None)
    runs = rows.filter(pl.col("hash") == load_claim(claim).hash).select("run", "arm", "seed")
    played = pl.read_parquet(DATA / "test.parquet").join(runs, on="run")
    means = played.group_by("arm", "seed", "policy").agg(pl.col("score").mean(), pl.col("turns").mean())
    return {(arm, seed, policy): (score, turns) for arm, seed, policy, score, turns in means.iter_rows()}


if __name__ == "__main__":
    main()
