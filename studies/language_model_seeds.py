"""What RL adds to a pretrained language model of 135 M parameters, on an English gym, over seeds.

    userrl train equalized-r2g --profile laptop-lm --seed 1      # and 2, 3: the settings were chosen on seed 0
    python studies/language_model_seeds.py wish                  # adds the home's runs to data/language-model
    python studies/language_model_seeds.py wish --draw           # the tables in Markdown, from the data alone

The data are a row for each step of training and validation (`steps.csv`) and, of finished runs, a row for each run
(`runs.csv`) and each held-out conversation (`scores.csv`). The perplexity is that of one fixed English text: before any
training, after the cold start, and of the best checkpoint. It shows what the model forgot.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from study_rows import DATA, add_row, read_rows

from userrl.machine.code_version import code_version
from userrl.machine.home import warehouse_dir
from userrl.machine.pretrained import models_dir
from userrl.run.ending import last_step
from userrl.run.run import Run, all_runs
from userrl_core.measure.checkpoints import difference_interval
from userrl_core.measure.interval import Interval, score_interval, t_interval
from userrl_core.number_format import with_limits
from userrl_core.training.config import ModelConfig
from userrl_core.training.local.convert import TEXT, perplexity_of
from userrl_core.training.local.model import load_model
from userrl_core.training.local.text.tokenizer import load_tokenizer
from warehouse import open_warehouse

RECIPE, PROFILE, MODEL, CHOSEN_ON = "equalized-r2g", "laptop-lm", "smollm2-135m", 0
FOLDER = DATA / "language-model"
RUNS, SCORES, STEPS = (FOLDER / f"{name}.csv" for name in ("runs", "scores", "steps"))

PLAYED = """
SELECT policy, task_id, tier, attempt, step, score, turns FROM trajectories
WHERE run_id = $run AND gym = $gym AND phase = 'evaluate' AND admitted AND score IS NOT NULL ORDER BY ALL
"""
PLAYED_STEPS = """
SELECT phase, step, count(*) AS conversations, round(avg(score), 4) AS score,
       round(stddev_samp(score) / sqrt(count(*)), 4) AS error, round(avg(turns), 2) AS turns,
       round(avg((stop_reason = 'horizon')::INT), 3) AS cut_off
FROM trajectories WHERE run_id = $run AND gym = $gym AND phase IN ('train', 'validate') AND admitted AND score IS NOT NULL
GROUP BY phase, step ORDER BY phase, step
"""

Row = dict[str, Any]


def main() -> None:
    """Add the runs of a gym to the data, or print the tables."""
    parser = argparse.ArgumentParser(description="RL above SFT, over seeds, with a pretrained language model.")
    parser.add_argument("gym")
    parser.add_argument("--draw", action="store_true", help="print the tables, from the data alone")
    given = parser.parse_args()
    if given.draw:
        print("\n".join(tables(given.gym)))
        return
    for run in all_runs():
        if run.info.recipe == RECIPE and run.info.profile == PROFILE and set(gyms(run)) == {given.gym}:
            add(run, given.gym)
            print(f"{run.id}: added", file=sys.stderr)


def gyms(run: Run) -> Iterator[str]:
    """Yield the gyms that a run trains on."""
    for stage in run.info.resolved["stages"]:
        yield from stage["mix"]


def add(run: Run, gym: str) -> None:
    """Add the rows of one run; of an unfinished one, its steps. Rows of an earlier call are replaced."""
    key = {"gym": gym, "seed": run.info.seed, "run": run.id}
    with open_warehouse(warehouse_dir(), run=frozenset([run.id])) as warehouse:
        played = warehouse.rows(PLAYED, run=run.id, gym=gym)
        steps = warehouse.rows(PLAYED_STEPS, run=run.id, gym=gym)
    for row in played:
        add_row(SCORES, ("gym", "seed", "policy", "task_id", "attempt"), {**key, **row})
    for row in steps:
        add_row(STEPS, ("gym", "seed", "phase", "step"), {**key, **row})
    if run.status.state != "completed":
        return
    results = {
        path.parent.name: json.loads(path.read_text())["value"] for path in run.folder.glob("stages/*/result.json")
    }
    spent = {name: value.get("cpu_seconds", 0.0) for name, value in results.items()}
    at = {row["policy"]: row["step"] for row in played}
    stages = run.folder / "stages"
    best = next(stages.glob(f"*/checkpoints/step-{at['RL']:06d}")) if at["RL"] else None
    cold = max(stages.glob("sft/checkpoints/step-*"))
    row = {
        **key,
        "best_step": at["RL"],
        "last_step": at.get(last_step("RL"), at["RL"]),
        "cpu_seconds": round(sum(spent.values())),
        "perplexity_before": perplexity(models_dir() / MODEL),
        "perplexity_sft": perplexity(cold),
        "perplexity_rl": perplexity(best or cold),
        "code": code_version(),
    }
    add_row(RUNS, ("gym", "seed"), row)


def perplexity(folder: Path) -> float:
    """Return the perplexity per token of the fixed English text."""
    return round(perplexity_of(load_model(folder, ModelConfig(path=str(folder))), load_tokenizer(folder), TEXT), 2)


def tables(gym: str) -> Iterator[str]:
    """Yield the lines of the tables: scores by seed, tiers, and what the model forgot."""
    scores = [row for row in read_rows(SCORES) if row["gym"] == gym]
    runs = [row for row in read_rows(RUNS) if row["gym"] == gym]
    yield "| seed | demonstrator | cold start | RL, best | RL, last | best − cold start | last − cold start |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for run in runs:
        own = [row for row in scores if row["seed"] == run["seed"]]
        cells = [_mean(own, policy) for policy in ("demonstrator", "SFT", "RL", last_policy(own))]
        note = " (settings were chosen on it)" if run["seed"] == CHOSEN_ON else ""
        gains = [_gain(own, policy) for policy in ("RL", last_policy(own))]
        yield f"| {run['seed']}{note} | {' | '.join([*cells, *(with_limits(gain, sign=True) for gain in gains)])} |"
    fresh = [[row for row in scores if row["seed"] == run["seed"]] for run in runs if run["seed"] != CHOSEN_ON]
    over = [np.array([_gain(own, choice(own)).mean for own in fresh]) for choice in (lambda own: "RL", last_policy)]
    yield f"| fresh seeds: {len(fresh)} | | | | | {' | '.join(with_limits(t_interval(x), sign=True) for x in over)} |"


def last_policy(rows: Sequence[Row]) -> str:
    """Return the name of the last step among a run's policies. It is RL's own if the best step is the last."""
    return last_step("RL") if any(row["policy"] == last_step("RL") for row in rows) else "RL"


def _by_task(rows: Sequence[Row], policy: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["policy"] == policy:
            found.setdefault(row["task_id"], []).append(row["score"])
    return found


def _mean(rows: Sequence[Row], policy: str) -> str:
    tasks = [float(np.mean(scores)) for scores in _by_task(rows, policy).values()]
    return with_limits(score_interval(np.array(tasks))) if tasks else ""


def _gain(rows: Sequence[Row], policy: str) -> Interval:
    before, after = _by_task(rows, "SFT"), _by_task(rows, policy)
    tasks = sorted(before.keys() & after.keys())
    return difference_interval([before[task] for task in tasks], [after[task] for task in tasks])


if __name__ == "__main__":
    main()
