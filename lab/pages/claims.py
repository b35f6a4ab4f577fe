"""Data and page of the claims: the runs of homes go to data/claims, and the table of its README.md is written from there alone.

    python -m lab.pages.claims                                  # writes the table and the picture
    python -m lab.pages.claims .userrl [OTHER_HOME ...] [--only CLAIM ...]     # adds the homes' runs first
    python -m lab.pages.claims --turns elicitation-pay.language-model          # a table of data/language-model

runs.csv            one row a run: claim, hashes, arm, seed, every number that a verdict needs; commit, start (UTC) and machine
validation.parquet  one row a run, step and task tier: score, score within the training horizon, tokens and conversations so far
test.parquet        one row a run, policy, step and test conversation: task, tier, score, turns, return, how it ended
steps.parquet       one row a run and training step: horizon, conversations, tokens, updates, CPU-seconds, entropy, signal
alarms.parquet      one row a run and training step: what the alarms read, and whether validations had fallen by then

A row that is there already is replaced by the newer one. A verdict is computed from runs.csv, by the rule of
`analysis.measure.verdict`. former.csv has the hashes of each claim, and its verdict and difference under the rule of before.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import polars as pl

from analysis.drawing import COLORS, QUIET, drawing, in_both
from analysis.measure.claims import SeedResult, contrast_verdict
from analysis.measure.verdict import ClaimVerdict
from curricula.claims import CHECKS, Claim, claim_names, load_claim
from lab.pages.data_tables import with_lines
from lab.studies.all_recipes import processor
from userrl.run.alarms import SERIES, alarm_rules, fell, validations
from userrl_core.number_format import NULL, with_limits
from warehouse import Warehouse, open_warehouse

ROOT = Path(__file__).parents[2]
DATA = ROOT / "data" / "claims"
PAGE = DATA / "README.md"
PICTURE = DATA / "claims.svg"
HEAD = "| claim | at 0.1 M parameters | at 135 M | difference [limits] | seeds | under the former rule |"
LARGE = "language-model"
"""The check that has a column."""
KINDS = ("claim", "mechanism check", "open question")
"""The order of the rows."""
COLUMNS = 3
Row = Mapping[str, str]
START, LAST = "SFT", "RL last step"
"""Policies of the table of turns."""

RUNS = """
SELECT a.claim, a.hash, c.registration, a.code, c.measure, c.registered::VARCHAR AS registered, a.arm, a.seed,
       a.run_id AS run, a.exploratory, a.state, a.score, a.evaluations, a.best, a.early, a.time_weighted, a.ending,
       a.forgot, e.best_step, e.last_step, e.fall, e.stderr,
       e.own_horizon, e.own_fall, e.own_stderr, a.tokens, a.updates, a.cpu_seconds, a.held_step, a.reached_step, a.cold_start,
       r.code_version AS commit, strftime(to_timestamp(r.created) AT TIME ZONE 'UTC', '%Y-%m-%d %H:%M:%S') AS started
FROM claim_arms() a LEFT JOIN claims() c ON c.claim = a.claim AND c.hash = a.hash
LEFT JOIN run_endings() e ON e.run_id = a.run_id AND e.branch IS NULL LEFT JOIN runs r ON r.run_id = a.run_id
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


def main() -> None:
    """Add the runs of the homes that are named, and write table and picture; or print a claim's table of turns."""
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
        print(f"{home}: {append(home / 'warehouse', DATA, arguments.only)} runs")
    PAGE.write_text(page(PAGE.read_text(), DATA))
    PICTURE.write_text(draw(rows(DATA / "runs.csv")))
    print(f"wrote {PAGE} and {PICTURE}")


def append(root: Path, folder: Path, only: Sequence[str] | None = None) -> int:
    """Add the claims' runs of one warehouse to the files of a folder. Return their number. only: these claims alone."""
    with open_warehouse(root) as warehouse:
        runs: pl.DataFrame = warehouse.sql(RUNS).pl()
    runs = runs.filter(pl.col("claim").is_in(only)) if only else runs
    if runs.is_empty():
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    add(runs.with_columns(machine=pl.lit(processor())), folder / "runs.csv", RUNS_KEY)
    tables: dict[str, list[pl.DataFrame]] = {name: [] for name in OF_A_RUN}
    for run in runs["run"].drop_nulls().unique():
        with open_warehouse(root, run=run) as warehouse:  # all runs at once would be joined turn by turn
            for name, (read, _) in OF_A_RUN.items():
                tables[name].append(read(warehouse, run))
    for name, (_, key) in OF_A_RUN.items():
        add(pl.concat(tables[name], how="diagonal_relaxed"), folder / name, key)
    return len(runs)


def by_query(query: str) -> Callable[[Warehouse, str], pl.DataFrame]:
    """Return a function that asks the warehouse a query about a run."""
    return lambda warehouse, run: warehouse.sql(query, run=run).pl()


def alarm_series(warehouse: Warehouse, run: str) -> pl.DataFrame:
    """Return what the alarms of a run read at each step. validation_fell: whether the alarm had cause to sound by that step."""
    falls = [alarm.step for alarm in fell(validations(warehouse, run), alarm_rules({}))]
    series: pl.DataFrame = warehouse.sql(SERIES, run=run, branch="").pl()
    has_fallen = pl.col("step") >= min(falls, default=math.inf)
    return series.with_columns(has_fallen.alias("validation_fell"), pl.lit(run).alias("run"))


OF_A_RUN: Mapping[str, tuple[Callable[[Warehouse, str], pl.DataFrame], Sequence[str]]] = {
    "validation.parquet": (by_query(VALIDATION), ("run", "step", "gym", "tier")),
    "test.parquet": (by_query(TEST), ("run", "policy", "step", "gym", "task", "attempt")),
    "steps.parquet": (by_query(STEPS), ("run", "step")),
    "alarms.parquet": (alarm_series, ("run", "step")),
}
"""What is read, and the key, of each file of single runs."""


def add(rows: pl.DataFrame, path: Path, key: Sequence[str]) -> None:
    """Add rows to a file. A row with the same key is replaced."""
    if path.is_file():
        earlier = pl.read_csv(path, infer_schema_length=None) if path.suffix == ".csv" else pl.read_parquet(path)
        types: Any = {name: kind for name, kind in rows.schema.items() if name in earlier.columns}
        rows = pl.concat([earlier.cast(types, strict=False), rows], how="diagonal_relaxed")
    rows = rows.unique(key, keep="last", maintain_order=True).sort(key)
    if path.suffix == ".csv":
        rows.write_csv(path)
    else:
        rows.write_parquet(path, compression="zstd")


def page(text: str, data: Path) -> str:
    """Return the page with its table rewritten."""
    runs, previous = rows(data / "runs.csv"), {row["claim"]: row for row in rows(data / "former.csv")}
    lines = ["", HEAD, "| --- | --- | --- | --- | ---: | --- |"]
    for claim in sorted(map(load_claim, claim_names()), key=lambda claim: KINDS.index(claim.kind)):
        ran = {
            which: claim.check(which)
            for which in CHECKS
            if any(row["claim"] == f"{claim.name}.{which}" for row in runs)
        }
        large = measured(ran.pop(LARGE), runs) if LARGE in ran else []
        lines.append(line(claim, runs, large, previous.get(claim.name, {})))
        for check in ran.values():
            if cells := measured(check, runs):
                lines.append(f"| `{check.name}` | {cells[0]} | {NULL} | {' | '.join(cells[1:])} | {NULL} |")
    changes = ", ".join(changed(runs, previous)) or "none"
    lines += ["", f"Verdicts that are not those of the former rule: {changes}."]
    return with_lines(text, "claims", lines)


def changed(runs: Sequence[Row], previous: Mapping[str, Row]) -> Iterator[str]:
    """Yield the claims whose verdict differs from that under the former rule, with both."""
    for name in claim_names():
        former, now = previous.get(name, {}).get("verdict", ""), measured(load_claim(name), runs)
        if former and now and now[0].strip("*") != former:
            yield f"`{name}` ({former}; now {now[0].strip('*')})"


def line(claim: Claim, runs: Sequence[Row], large: Sequence[str], previous: Row) -> str:
    """Return the row of one claim. large: `measured` of the check with the language model. previous: the row of former.csv."""
    decision, contrast, seeds = measured(claim, runs) or ("no runs by this rule", NULL, NULL)
    verdict = previous.get("verdict") or NULL
    if previous.get("difference") and seeds == NULL:
        verdict += f", {previous['difference']} [{previous['low']}, {previous['high']}]"
    at_135_million = f"{large[0]}, {large[2]} seeds: {large[1]}" if large else NULL
    cells = [f"`{claim.name}`: {claim.text} *{claim.paper}*", decision, at_135_million, contrast, seeds, verdict]
    return f"| {' | '.join(cells)} |"


def measured(claim: Claim, runs: Sequence[Row]) -> list[str]:
    """Return verdict, difference and seeds of a claim or check as cells; none if it was not run in its present form."""
    if not (results := results_of(claim, runs)):
        return []
    verdict = verdict_of(claim, results)
    return [f"**{verdict.word}**", difference(claim, verdict), str(verdict.seeds)]


def difference(claim: Claim, verdict: ClaimVerdict) -> str:
    """Return collapsed runs and the difference of the metric, with the limits at the level of the rule."""
    parts = [f"collapsed {verdict.shares}"] if verdict.shares is not None else []
    parts += [f"{claim.metric} {with_limits(verdict.scores.welch)}"] if verdict.scores is not None else []
    return "; ".join(parts) or NULL


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


def result(row: Row) -> SeedResult:
    """Return a row of runs.csv as the result of a seed."""
    names = ("score", "best", "early", "cpu_seconds", "time_weighted", "tokens", "updates")
    measured = {name: float(row[name]) if row[name] else None for name in names}
    crashed, forgot = row["state"] == "crashed", row["forgot"] == "true"
    return SeedResult(row["arm"], int(row["seed"]), crashed, row["ending"] == "collapsed", **measured, forgot=forgot)


def rows(path: Path) -> list[Row]:
    """Return the rows of a CSV file; none where it is not there."""
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def draw(runs: Sequence[Row]) -> str:
    """Return the picture as SVG text: a panel a claim, a line an arm, a dot the score of a seed; open where the run collapsed."""
    from matplotlib.figure import Figure

    measured = [(claim, results) for claim in map(load_claim, claim_names()) if (results := results_of(claim, runs))]
    lines = -(-len(measured) // COLUMNS)
    with drawing():
        figure = Figure(figsize=(9.4, 1.75 * lines), layout="constrained")
        grid = figure.subplots(lines, COLUMNS, squeeze=False, sharex=True)
        for axes, (claim, results) in zip(grid.flat, measured, strict=False):
            for number, arm in enumerate(claim.arms):
                seeds = [result for result in results if result.arm == arm]
                for fell in (False, True):
                    scores = [seed.value("score") or 0.0 for seed in seeds if bool(seed.value("collapsed")) is fell]
                    color = COLORS[1] if arm in (claim.contrast.more, claim.contrast.than) else QUIET
                    filled = "none" if fell else color
                    axes.plot(scores, [number] * len(scores), "o", ms=4.5, mec=color, mfc=filled, alpha=0.75)
            axes.set_yticks(range(len(claim.arms)), list(claim.arms))
            axes.set_ylim(len(claim.arms) - 0.5, -0.5)
            axes.set_xlim(-0.03, 1.03)
            axes.set_title(claim.name)
        for axes in list(grid.flat)[len(measured) :]:
            axes.set_axis_off()
        figure.supxlabel("test score")
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return in_both(text.getvalue())


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
