"""Test scores and turns of a claim's arms by seed, beside the demonstrator and the cold start.

python -m lab.studies.claim_turns elicitation-pay.language-model     # a table in Markdown, from data/claims alone
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from statistics import fmean

import polars as pl

from curricula.claims import load_claim
from lab.studies.study_rows import DATA

START, LAST = "SFT", "RL last step"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Test scores and turns of a claim's arms by seed.")
    parser.add_argument("claim")
    print("\n".join(table(parser.parse_args().claim)))


def table(claim: str) -> Iterator[str]:
    """Yield the lines of the table: a row for each seed with all arms, and their means. The arms share a cold start."""
    means = read_means(claim)
    arms = sorted({arm for arm, _, _ in means})
    seeds = [seed for seed in sorted({seed for _, seed, _ in means}) if all((arm, seed, LAST) in means for arm in arms)]
    [scripted] = {policy for _, _, policy in means if policy.startswith("scripted")}
    shown = [(arms[0], scripted), (arms[0], START), *((arm, LAST) for arm in arms)]
    cells = [[means[arm, seed, policy] for arm, policy in shown] for seed in seeds]
    named = " | ".join(f"`{arm}`" for arm in arms)
    yield f"| seed | demonstrator | SFT | {named} | turns, SFT | {named} |"
    yield "| --- |" + " ---: |" * (2 * len(arms) + 3)
    for seed, row in zip(seeds, cells, strict=True):
        yield line(str(seed), row)
    columns = zip(*cells, strict=True)
    yield line(
        "mean", [(fmean(score for score, _ in column), fmean(turns for _, turns in column)) for column in columns]
    )


def line(name: str, row: list[tuple[float, float]]) -> str:
    """Return a row of the table. row: score and turns of demonstrator, cold start and arms."""
    scores, turns = [f"{score:.2f}" for score, _ in row], [f"{turns:.1f}" for _, turns in row[1:]]
    return f"| {name} | {' | '.join(scores + turns)} |"


def read_means(claim: str) -> dict[tuple[str, int, str], tuple[float, float]]:
    """Return mean score and mean turns over the test tasks, by arm, seed and policy."""
    rows = pl.read_csv(DATA / "claims" / "runs.csv", infer_schema_length=None)
    runs = rows.filter(pl.col("hash") == load_claim(claim).hash).select("run", "arm", "seed")
    played = pl.read_parquet(DATA / "claims" / "test.parquet").join(runs, on="run")
    found = played.group_by("arm", "seed", "policy").agg(pl.col("score").mean(), pl.col("turns").mean())
    return {(arm, seed, policy): (score, turns) for arm, seed, policy, score, turns in found.iter_rows()}


if __name__ == "__main__":
    main()
