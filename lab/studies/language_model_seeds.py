"""Training and validation of a pretrained language model of 135 M parameters on an English gym, step by step.

userrl train equalized-r2g --profile laptop-lm --seed 1      # the settings were chosen on seed 0
python -m lab.studies.language_model_seeds wish                  # adds the home's runs to data/language-model/steps.csv
python -m lab.studies.language_model_seeds wish --draw 1         # the table of seed 1 in Markdown, from the data alone
python -m lab.studies.language_model_seeds wish --draw 0 --name line-1e-5     # of a trial of settings, a run with a name
python -m lab.studies.language_model_seeds wish --trials         # a row for each run: first and last steps, signal, format errors
python -m lab.studies.language_model_seeds wish --validations elicitation-pay-paid-2e-5      # of trials on seed 0: scores by step
python -m lab.studies.language_model_seeds wish --unread         # share of answers that the user could not read, by trial
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from lab.studies.study_rows import DATA, add_row, read_rows
from userrl.machine.home import warehouse_dir
from userrl.run.run import Run, all_runs
from userrl_core.number_format import with_error
from warehouse import open_warehouse

RECIPE, PROFILE = "equalized-r2g", "laptop-lm"
STEPS = DATA / "language-model" / "steps.csv"
SHOWN = (0, 1, 5, 10, 12, 14, 16, 20, 22, 30, 32, 40)
"""Steps in the tables, as far as a run has them."""
FORMS = ("lean-2e-5", "line-1e-5")
"""Trials that compare forms of a call."""
UNNAMED = "-"
"""The name that the data give to an unnamed run."""

PLAYED = """
WITH earned AS (
    SELECT traj_id, sum(reward) AS reward, count(*) FILTER (choice = 'action') AS questions,
           count(*) FILTER (choice = 'answer') AS answers, count(*) FILTER (flags & 1 > 0) AS no_call
    FROM turns WHERE run_id = $run GROUP BY traj_id
), differ AS (
    SELECT phase, step, round(avg((least <> most)::INT), 3) AS signal
    FROM (
        SELECT phase, step, group_id, min(return_sum) AS least, max(return_sum) AS most
        FROM trajectories WHERE run_id = $run AND gym = $gym AND phase = 'train' AND admitted GROUP BY phase, step, group_id
    ) GROUP BY phase, step
)
SELECT phase, step, count(*) AS conversations, round(avg(score), 4) AS score,
       round(stddev_samp(score) / sqrt(count(*)), 4) AS error, round(avg(turns), 2) AS turns,
       round(avg((stop_reason = 'horizon')::INT), 3) AS cut_off, round(avg(reward), 4) AS reward,
       sum(questions)::INT AS questions, sum(answers)::INT AS answers,
       (sum(answers) - count(*) FILTER (answers > 0 AND stop_reason <> 'horizon'))::INT AS unread,
       round(sum(no_call) / sum(turns), 4) AS no_call, any_value(signal) AS signal
FROM trajectories JOIN earned USING (traj_id) LEFT JOIN differ USING (phase, step)
WHERE run_id = $run AND gym = $gym AND phase IN ('train', 'validate') AND admitted AND score IS NOT NULL
GROUP BY phase, step ORDER BY phase, step
"""


def main() -> None:
    """Add the runs of a gym to the data, or print the table of a seed."""
    parser = argparse.ArgumentParser(description="A pretrained language model on an English gym, step by step.")
    parser.add_argument("gym")
    parser.add_argument("--draw", type=int, metavar="SEED", help="print the table of a seed, from the data alone")
    parser.add_argument("--trials", action="store_true", help="print a row for each run, from the data alone")
    parser.add_argument(
        "--unread", action="store_true", help="print the share of unreadable answers, from the data alone"
    )
    parser.add_argument("--validations", nargs="+", metavar="NAME", help="print the validations of trials on seed 0")
    parser.add_argument("--name", default=UNNAMED, help="name of the run to print")
    given = parser.parse_args()
    if given.trials:
        print("\n".join(trials(given.gym)))
        return
    if given.validations:
        print("\n".join(validations(given.gym, given.validations)))
        return
    if given.unread:
        print("\n".join(unread_answers(given.gym)))
        return
    if given.draw is not None:
        print("\n".join(table(given.gym, given.draw, given.name)))
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
    """Add the steps of one run. Rows of an earlier call are replaced."""
    with open_warehouse(warehouse_dir(), run=frozenset([run.id])) as warehouse:
        rows = warehouse.rows(PLAYED, run=run.id, gym=gym)
    for row in rows:
        named = {
            "gym": gym,
            "name": UNNAMED if run.info.name in ("", RECIPE) else run.info.name,
            "seed": run.info.seed,
            "run": run.id,
        }
        add_row(STEPS, ("gym", "name", "seed", "phase", "step"), {**named, **row})


def table(gym: str, seed: int, name: str = UNNAMED) -> Iterator[str]:
    """Yield the lines of a run's table. Errors are standard errors over conversations."""
    rows: dict[tuple[str, int], dict[str, Any]] = {
        (row["phase"], row["step"]): row
        for row in read_rows(STEPS)
        if (row["gym"], row["seed"], row["name"]) == (gym, seed, name)
    }
    yield "| step | training score | turns | cut off | reward of a conversation | validation score | its turns |"
    yield "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for step in (step for step in SHOWN if any(at == step for _, at in rows)):
        trained, validated = rows.get(("train", step)), rows.get(("validate", step))
        cells = ["", "", "", ""]
        if trained:
            score = with_error(trained["score"], trained["error"], 2)
            cells = [score, f"{trained['turns']:.1f}", f"{trained['cut_off']:.0%}", f"{trained['reward']:.2f}"]
        cells += (
            [with_error(validated["score"], validated["error"], 2), f"{validated['turns']:.1f}"]
            if validated
            else ["", ""]
        )
        yield f"| {step} | {' | '.join(cells)} |"


def validations(gym: str, names: Sequence[str]) -> Iterator[str]:
    """Yield a table of trials on seed 0 that have the same steps: validation scores, and turns before and after."""
    found = {
        name: sorted(
            (row for row in read_rows(STEPS) if (row["gym"], row["name"], row["phase"]) == (gym, name, "validate")),
            key=lambda row: int(row["step"]),
        )
        for name in names
    }
    steps = [row["step"] for row in found[names[0]]]
    yield f"| run | {' | '.join(f'step {step}' for step in steps)} | turns, first | last |"
    yield "| --- |" + " ---: |" * (len(steps) + 2)
    for name, rows in found.items():
        scores = [with_error(row["score"], row["error"], 2) for row in rows]
        yield f"| `{name}` | {' | '.join(scores)} | {rows[0]['turns']:.1f} | {rows[-1]['turns']:.1f} |"


def trials(gym: str) -> Iterator[str]:
    """Yield a table of runs: the ends of each curve, the groups with a signal, and the format errors."""
    yield "| run | steps | score, first five steps | last five | turns, first | last | groups with signal | turns without a call |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    by_name: dict[str, list[dict[str, Any]]] = {}
    for row in read_rows(STEPS):
        if row["gym"] == gym and row["phase"] == "train" and row.get("signal") is not None:
            by_name.setdefault(f"{row['name']}, seed {row['seed']}", []).append(row)
    for name, rows in sorted(by_name.items()):
        rows.sort(key=lambda row: row["step"])
        ends = rows[:5], rows[-5:]
        score = " | ".join(f"{fmean(row['score'] for row in end):.2f}" for end in ends)
        turns = " | ".join(f"{fmean(row['turns'] for row in end):.1f}" for end in ends)
        shares = f"{fmean(row['signal'] for row in rows):.0%} | {fmean(row['no_call'] for row in rows):.1%}"
        yield f"| {name} | {len(rows)} | {score} | {turns} | {shares} |"


def unread_answers(gym: str) -> Iterator[str]:
    """Yield a table of the share of answers in training that did not end the conversation, by step and trial."""
    trained = [row for row in read_rows(STEPS) if row["gym"] == gym and row["phase"] == "train"]
    rows = [row for row in trained if row["name"] in FORMS and row["answers"]]
    shares = {(row["name"], row["step"]): row["unread"] / row["answers"] for row in rows}
    names = sorted({name for name, _ in shares})
    yield f"| step | {' | '.join(f'`{name}`' for name in names)} |"
    yield "| ---: |" + " ---: |" * len(names)
    for step in (step for step in SHOWN if any(at == step for _, at in shares)):
        yield f"| {step} | {' | '.join(f'{shares[name, step]:.2f}' if (name, step) in shares else '' for name in names)} |"


if __name__ == "__main__":
    main()
