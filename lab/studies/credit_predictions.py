"""Tests of predictions on fresh seeds: mean-advantage bias and audit predict which credit rules rise, stall or collapse.

    python -m lab.studies.credit_predictions errand --seeds 401-408     # runs what is missing, then prints the table
    python -m lab.studies.credit_predictions errand --table             # the table alone

credit_predictions.csv was committed before the first of these seeds was trained. Each seed has its own cold start, shared
by its rules. Each rule is then an ordinary run of the home in $USERRL_HOME. Finished runs are reused and interrupted ones
continue.
"""

from __future__ import annotations

from flows.server.settings import settle
from userrl.machine.home import runs_dir, warehouse_dir

settle()

import argparse  # noqa: E402  everything below sees the settled environment
import csv  # noqa: E402
import sys  # noqa: E402
from collections import Counter  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from statistics import fmean  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402

from analysis.measure.interval import t_interval  # noqa: E402
from flows.train import train  # noqa: E402
from userrl.run.plan import plan_run  # noqa: E402
from userrl.run.request import TrainRequest  # noqa: E402
from warehouse import open_warehouse  # noqa: E402

FORETOLD = Path(__file__).with_name("credit_predictions.csv")
TOKENS, EVERY, TURNS = 160_000, 4, 16
"""RL settings: tokens of a run (39 steps of two updates), steps between validations, horizon."""
FAR = 0.1
"""A run rises or collapses if the mean of its last validations differs from the cold start's by more than this."""
LAST = 0.2
"""Share of the steps whose validations are averaged at the end."""


def main() -> int:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description="Credit rules: foretold, then trained.")
    parser.add_argument("family", help="a gym of the laptop: errand or wish")
    parser.add_argument("--seeds", default="401-408", help="first-last")
    parser.add_argument("--table", action="store_true", help="run nothing")
    arguments = parser.parse_args()
    first, last = map(int, arguments.seeds.split("-"))
    with FORETOLD.open() as file:
        rules = [row for row in csv.DictReader(file) if row["family"] == arguments.family]
    ends: dict[str, list[tuple[float, float]]] = {}
    for seed in range(first, last + 1):
        cold = cold_start(arguments.family, seed, run=not arguments.table)
        for rule in rules if cold else ():
            request = arm(arguments.family, rule, seed, cold)
            if not arguments.table:
                done = train(**request.model_dump(exclude_unset=True))
                print(f"{done['run']}: {sum(done['cpu_seconds'].values()):.0f} CPU-s", file=sys.stderr, flush=True)
            if (end := ending(plan_run(request).run_id)) is not None:
                ends.setdefault(name_of(rule), []).append(end)
    print(table(rules, ends))
    return 0


def settings(family: str) -> dict[str, Any]:
    """Return the settings that all runs of a family share."""
    return {
        "stages": [{"tokens": TOKENS, "mix": {family: 1}, "weigh": "tokens"}],
        "schedule": {"kind": "fixed", "turns": TURNS},
        "demonstrations.horizon": 8,
        "evaluate.horizon": TURNS,
        "evaluate.gyms": [family],
        "evaluate.every": EVERY,
    }


def cold_start(family: str, seed: int, *, run: bool) -> str:
    """Return the folder of a seed's cold start, or "" if it is missing and should not be made."""
    request = TrainRequest(
        recipe="equalized-r2g",
        profile="laptop",
        seed=seed,
        name=f"cold-{family}",
        overrides=settings(family),
        until="sft",
        wandb="off",
    )
    if run:
        train(**request.model_dump(exclude_unset=True))
    folders = sorted((runs_dir() / plan_run(request).run_id).glob("stages/sft/checkpoints/step-*"))
    return str(folders[-1]) if folders else ""


def arm(family: str, rule: dict[str, str], seed: int, cold: str) -> TrainRequest:
    """Return the train request of a rule: only RL, from the seed's cold start."""
    credit = {f"credit.{key}": rule[key] for key in ("shaping", "score", "form")}
    overrides = {**settings(family), "cold_start.enabled": False, "model.path": cold, **credit}
    return TrainRequest(
        recipe="equalized-r2g", profile="laptop", seed=seed, overrides=overrides, until="rl-1", wandb="off"
    )


def name_of(rule: dict[str, str]) -> str:
    """Return the rule's name in the audit."""
    return f"{rule['shaping']}/{rule['score']}/{rule['form']}"


def ending(run_id: str) -> tuple[float, float] | None:
    """Return the validation of the cold start and the mean of the last ones. None for an unfinished run."""
    text = """select step, avg(score) from trajectories where run_id = $run and phase = 'validate' and admitted
              group by step order by step"""
    if not (runs_dir() / run_id / "stages" / "rl-1" / "result.json").is_file():
        return None
    with open_warehouse(warehouse_dir()) as warehouse:
        scores: dict[int, float] = dict(warehouse.sql(text, run=run_id).fetchall())
    steps = max(scores)
    return scores[0], fmean(score for step, score in scores.items() if step > (1 - LAST) * steps)


def came(start: float, end: float) -> str:
    """Name the result in a word."""
    return "rises" if end > start + FAR else "collapses" if end < start - FAR else "stalls"


def table(rules: Sequence[dict[str, str]], ends: dict[str, list[tuple[float, float]]]) -> str:
    """Return a table with one row per rule, and the number of runs that were predicted correctly."""
    lines = [
        "| rule | push | cosine | foretold | by push alone | by cosine alone | end less cold start, by seed | mean [95 %] | came |",
        "| --- | ---: | ---: | --- | --- | --- | --- | ---: | --- |",
    ]
    ways = ("foretold", "by_push", "by_cosine")
    hits, runs = dict.fromkeys(ways, 0), 0
    for rule in rules:
        rule_ends = ends.get(name_of(rule), [])
        changes = np.array([end - start for start, end in rule_ends])
        outcomes = [came(*each) for each in rule_ends]
        mean = t_interval(changes) if len(rule_ends) > 1 else None
        said = f"{mean.estimate:+.2f} [{mean.low:+.2f}, {mean.high:+.2f}]" if mean else ""
        cells = [f"`{name_of(rule)}`", rule["push"], rule["cosine"], *(rule[way] for way in ways)]
        cells += [
            " ".join(f"{change:+.2f}" for change in changes),
            said,
            ", ".join(f"{word} {n}" for word, n in Counter(outcomes).most_common()),
        ]
        lines.append(f"| {' | '.join(cells)} |")
        runs += len(rule_ends)
        for way in ways:
            hits[way] += sum(outcome == rule[way] for outcome in outcomes)
    starts = sorted({round(start, 3) for rule_ends in ends.values() for start, _ in rule_ends})
    lines += ["", f"Cold starts: {', '.join(f'{start:.2f}' for start in starts)}."]
    lines += [f"{way}: {count} of {runs} runs as foretold." for way, count in hits.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
