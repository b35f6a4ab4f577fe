"""Print the tables of data/language-model/trials.md, and that of unread answers in its README.md.

    python -m lab.pages.language_model_trials

They come from data/language-model/steps.csv: training and validation of a pretrained language model of 135 M parameters on an
English gym, step by step. A finished script collected the rows (data/finished-studies.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from lab.rows import DATA, read_rows
from userrl_core.number_format import with_error

STEPS = DATA / "language-model" / "steps.csv"
SHOWN = (0, 1, 5, 10, 12, 14, 16, 20, 22, 30, 32, 40)
"""Steps in the tables, as far as a run has them."""
UNNAMED = "-"
"""The name that the data give to an unnamed run."""
RUNS = (
    ("wish", 1, UNNAMED), ("wish", 4, UNNAMED), ("wish", 0, "lean-2e-5"), ("wish", 0, "line-1e-5"), ("wish", 0, "wish-clean"),
    ("errand", 0, "errand-3b"), ("errand", 0, "errand-2e-5"), ("errand", 0, "errand-8e-5"),
)  # fmt: skip
"""Gym, seed and name of each run whose steps are shown."""
COMPARED = ("elicitation-pay-paid-2e-5", "elicitation-pay-unpaid-2e-5", "unpaid-search-own-2e-5")
"""Trials on wish that have the same steps."""
FORMS = ("lean-2e-5", "line-1e-5")
"""Trials that compare forms of a call."""


def main() -> None:
    """Print all tables."""
    print("\n\n".join("\n".join(table) for table in (*page(), unread_answers("wish"))))


def page() -> Iterator[Iterator[str]]:
    """Yield the tables of the page of trials, each as its lines."""
    for gym, seed, name in RUNS:
        yield by_step(gym, seed, name)
    yield validations("wish", COMPARED)
    for gym in ("wish", "errand"):
        yield trials(gym)


def by_step(gym: str, seed: int, name: str) -> Iterator[str]:
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
    rows_by_name = {
        name: sorted(
            (row for row in read_rows(STEPS) if (row["gym"], row["name"], row["phase"]) == (gym, name, "validate")),
            key=lambda row: int(row["step"]),
        )
        for name in names
    }
    steps = [row["step"] for row in rows_by_name[names[0]]]
    yield f"| run | {' | '.join(f'step {step}' for step in steps)} | turns, first | last |"
    yield "| --- |" + " ---: |" * (len(steps) + 2)
    for name, rows in rows_by_name.items():
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
