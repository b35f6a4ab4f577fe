"""The study of language_model.yaml: does RL add to the cold start of a pretrained language model, on English gyms?

    python -m lab.studies.language_model      # the tables, from data/language-model

The half that ran the study is finished (data/finished-studies.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis.measure.interval import t_interval
from lab.rows import DATA, read_rows
from lab.studies.registered import plans, read_plan
from userrl_core.number_format import with_error

PLAN = Path(__file__).with_suffix(".yaml")
SCORES = DATA / "language-model" / "scores.csv"
TIERS = DATA / "language-model" / "tiers.csv"
FORGETTING = DATA / "language-model" / "forgetting.csv"
DEMONSTRATOR, BEFORE, BEST, LAST = "demonstrator", "SFT", "RL", "RL last step"
POLICIES = {DEMONSTRATOR: "demonstrator", BEFORE: "cold start", BEST: "RL, best on validation", LAST: "RL, last step"}
"""Policies in the tables, with their titles."""


def main() -> None:
    """Print the tables."""
    print("\n".join([*tables(), "", *by_tier(), "", *forgotten()]))


def forgotten() -> Iterator[str]:
    """Yield a table of perplexity, divergences and an answer, from forgetting.csv. A finished script measured them."""
    yield "| gym | seed | policy | perplexity | KL from the fetched model | from the cold start | answer |"
    yield "| --- | ---: | --- | ---: | ---: | ---: | --- |"
    for row in sorted(
        read_rows(FORGETTING), key=lambda row: (row["family"] or "", int(row["seed"] or 0), row["policy"] != BEFORE)
    ):
        policy = POLICIES.get(row["policy"], row["policy"])
        divergences = (row.get(f"from {start}") for start in ("fetched", BEFORE))
        cells = " | ".join("" if value is None else f"{value:.3f}" for value in divergences)
        yield f"| {row['family'] or ''} | {row['seed'] or ''} | {policy} | {row['perplexity']:.1f} | {cells} | {row['answer']} |"


def tables() -> Iterator[str]:
    """Yield a table of the scores of each run, and one of the gain from RL with Student's t limits over seeds."""
    plan, hashes = read_plan(PLAN), plans(PLAN)
    rows = [row for row in read_rows(SCORES) if row["plan"] in hashes]
    by_run = {
        (row["family"], row["seed"], row["temperature"], DEMONSTRATOR if "(" in row["policy"] else row["policy"]): row
        for row in rows
    }
    for family, seed, temperature, policy in list(by_run):  # the last step is not played twice if it is the best one
        if policy == BEST:
            by_run.setdefault((family, seed, temperature, LAST), by_run[family, seed, temperature, BEST])
    yield f"| gym | seed | decoding | {' | '.join(POLICIES.values())} | turns | questions |"
    yield "| --- | ---: | --- |" + " ---: |" * (len(POLICIES) + 2)
    for run in sorted({key[:3] for key in by_run}):
        played = [by_run.get((*run, policy)) for policy in POLICIES]
        scores = " | ".join(with_error(row["score"], row["error"], 3) if row else "" for row in played)
        ends = by_run[*run, BEFORE], by_run[*run, LAST]
        changes = " | ".join(" to ".join(f"{row[key]:.1f}" for row in ends) for key in ("turns", "questions"))
        yield f"| {run[0]} | {run[1]} | {_decoding(run[2])} | {scores} | {changes} |"
    yield ""
    yield "| gym | decoding | policy | seeds | gain over the cold start [limits] | each seed |"
    yield "| --- | --- | --- | --- | ---: | --- |"
    for family, temperature in sorted({(key[0], key[2]) for key in by_run}):
        for policy in (LAST, BEST):
            runs = sorted(key[1] for key in by_run if (key[0], *key[2:]) == (family, temperature, policy))
            for of_seeds, level in looks(plan, family, runs):
                pairs = [
                    [by_run[family, seed, temperature, gain_text]["score"] for gain_text in (BEFORE, policy)]
                    for seed in of_seeds
                ]
                gains = np.array([after - before for before, after in pairs])
                gain = t_interval(gains, level)
                limits = f"{gain.estimate:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]" if gains.size > 1 else ""
                gain_text = ", ".join(f"{value:+.3f}" for value in gains)
                yield (
                    f"| {family} | {_decoding(temperature)} | {POLICIES[policy]} | {_span(of_seeds)}, {100 * level:g} % "
                    f"| {limits} | {gain_text} |"
                )


def looks(plan: Mapping[str, Any], family: str, runs: Sequence[int]) -> Iterator[tuple[Sequence[int], float]]:
    """Yield the seeds that are taken together, with the level of their limits.

    With a second look: the first seeds, the new ones, and all at the plan's level.
    """
    second = plan["second_look"].get(family)
    new = [seed for seed in runs if second and seed >= second["first"]]
    for of_seeds, level in (([seed for seed in runs if seed not in new], 0.95), (new, 0.95)):
        if of_seeds:
            yield of_seeds, level
    if new:
        yield runs, second["level"]


def by_tier() -> Iterator[str]:
    """Yield a table of the greedy scores by tier, one column a seed: the cold start and the last step."""
    rows = [row for row in read_rows(TIERS) if row["plan"] in plans(PLAN) and not row["temperature"]]
    by_cell = {(row["family"], row["tier"], row["seed"], row["policy"]): row for row in rows}
    seeds = sorted({row["seed"] for row in rows})
    yield f"| gym | tier | tasks |{''.join(f' seed {seed} |' for seed in seeds)}"
    yield "| --- | --- | ---: |" + " ---: |" * len(seeds)
    for family, tier in sorted({key[:2] for key in by_cell}):
        of_seeds = [[by_cell.get((family, tier, seed, policy)) for policy in (BEFORE, LAST, BEST)] for seed in seeds]
        tasks = next(before["conversations"] for before, *_ in of_seeds if before)
        ends = [(before, last or best) for before, last, best in of_seeds]
        cells = " | ".join(f"{one['score']:.2f} to {two['score']:.2f}" if one and two else "" for one, two in ends)
        yield f"| {family} | {tier} | {tasks} | {cells} |"


def _span(seeds: Sequence[int]) -> str:
    return f"{seeds[0]} to {seeds[-1]}" if seeds[1:] else str(seeds[0])


def _decoding(temperature: float) -> str:
    return "sampled" if temperature else "greedy"


if __name__ == "__main__":
    main()
