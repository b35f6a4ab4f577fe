"""The agent's choices and replies over its training steps, to show when its behaviour changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from flows.page import charts, frame
from warehouse import Warehouse

STEPS, EACH = 21, 40
"""Number of steps, evenly spaced, and of conversations per step. Scanning all turns of a run would need .5 GB."""

ROWS, LETTERS = 5, 80
"""Steps in the table, not counting the two with the largest change between them; characters of the most frequent text."""

LEAST = 0.01
"""A choice with a smaller share of its step's turns is counted as "other"."""

UNREADABLE, OTHER = "no readable call", "other"
FIRST = ("action", "search", "answer", UNREADABLE)

MEANING = (
    "action: an action, or a message to the user; search: a look-up; answer: the agent's final answer; other: choices with "
    "less than 1 % of their step's turns."
)

MEMBERS = """
SELECT traj_id, stage, step FROM (
    SELECT traj_id, stage, step, row_number() OVER (PARTITION BY step ORDER BY hash(traj_id), traj_id) AS place
    FROM trajectories WHERE run_id = $run AND phase = 'train' AND list_contains($steps, step))
WHERE place <= $each
"""

Row = dict[str, Any]


def has_replies(warehouse: Warehouse, run_id: str) -> bool:
    """Return whether the run has a training conversation."""
    return bool(
        warehouse.rows("SELECT 1 FROM trajectories WHERE run_id = $run AND phase = 'train' LIMIT 1", run=run_id)
    )


async def show_replies(warehouse: Warehouse, run_id: str) -> None:
    """Draw the shares of the choices over steps, and the most frequent texts at some steps."""
    rows = await frame.asked(lambda: replies(warehouse, run_id))
    if not rows:
        ui.label("No turn was logged.")
        return
    steps, parts = _parts(rows)
    after = _widest_change(list(parts.values()))
    with ui.element("div").classes("w-full"):
        ui.label(_change(steps, parts, 0, len(steps) - 1, "Shares of turns"))
        if len(steps) > 2:
            ui.label(_change(steps, parts, after, after + 1, "Largest change between two steps shown"))
            ui.echart(
                charts.shares(steps, parts),
                on_point_click=lambda event: ui.navigate.to(
                    frame.address("/trajectories", run=run_id, step=int(event.data[0]), phase="train")
                ),
            ).classes("w-full").style("height: 16rem")
            with ui.row().classes("gap-x-4 gap-y-0 items-center"):
                for name, color in charts.colors(parts).items():
                    with ui.row().classes("gap-0 items-center"):
                        ui.element("span").classes("dot").style(f"background: {color}")
                        ui.label(name).classes("text-sm")
        ui.label(
            f"{MEANING} Percent of turns, over at most {EACH} conversations at each of at most {STEPS} steps."
        ).classes("quiet text-sm")
        ends = {n * (len(steps) - 1) // (ROWS - 1) for n in range(ROWS)}
        chosen = {steps[n] for n in (*ends, after, min(after + 1, len(steps) - 1))}
        columns = {
            "step": "Step", "stage": "Stage", "choice": "Choice", "share": "Share", "commonest": "Most frequent text",
            "one": "Example",
        }  # fmt: skip
        frame.table([_shown(row) for row in rows if row["step"] in chosen], columns, links=("one",), wide=("stage",))


def replies(warehouse: Warehouse, run_id: str) -> list[Row]:
    """Return for each step, stage and choice its share of turns, its most frequent text, and one trajectory."""
    steps = [
        row["step"]
        for row in warehouse.rows(
            "SELECT DISTINCT step FROM trajectories WHERE run_id = $run AND phase = 'train' ORDER BY step", run=run_id
        )
    ]
    chosen = sorted({steps[n * (len(steps) - 1) // (STEPS - 1)] for n in range(STEPS)} if steps else ())
    trajectories = {row["traj_id"]: row for row in warehouse.rows(MEMBERS, run=run_id, steps=chosen, each=EACH)}
    texts_by_key: dict[tuple[int, str, str], Counter[str]] = {}
    example_ids: dict[tuple[int, str, str], int] = {}
    of_step = Counter[tuple[int, str]]()
    columns = (
        f"traj_id, coalesce(choice, '{UNREADABLE}') AS choice, left(coalesce(content, message), {LETTERS + 1}) AS text"
    )
    for turn in warehouse.stored("turns", list(trajectories), columns) if trajectories else ():
        trajectory = trajectories[turn["traj_id"]]
        key = (trajectory["step"], trajectory["stage"], turn["choice"])
        texts_by_key.setdefault(key, Counter())[turn["text"] or ""] += 1
        example_ids[key] = min(example_ids.get(key, turn["traj_id"]), turn["traj_id"])
        of_step[key[:2]] += 1
    for key in [key for key, texts in texts_by_key.items() if texts.total() < LEAST * of_step[key[:2]]]:
        other = (*key[:2], OTHER)
        texts_by_key.setdefault(other, Counter()).update(texts_by_key.pop(key))
        example_ids[other] = min(example_ids.get(other, example_ids[key]), example_ids[key])
    return [
        {
            "step": step,
            "stage": stage,
            "choice": choice,
            "n": texts.total(),
            "of_step": of_step[step, stage],
            "commonest": _commonest(texts),
            "one_id": example_ids[step, stage, choice],
        }
        for (step, stage, choice), texts in sorted(
            texts_by_key.items(), key=lambda item: (*item[0][:2], _order(item[0][2]))
        )
    ]


def _order(choice: str) -> tuple[int, str]:
    """Return a sort key that is the same at every step: the papers' choices, unreadable calls, others by name, "other"."""
    return (FIRST.index(choice) if choice in FIRST else len(FIRST) + (choice == OTHER)), choice


def _commonest(texts: Mapping[str, int]) -> str:
    text, times = min(texts.items(), key=lambda item: (-item[1], item[0]))
    cut = f"{text[:LETTERS]}…" if len(text) > LETTERS else text
    return f"{cut or '(nothing)'} ({times / sum(texts.values()):.0%})"


def _parts(rows: Sequence[Row]) -> tuple[list[int], dict[str, list[float]]]:
    """Return the steps, and the share of turns by choice at each. Branches of a forked run are pooled."""
    steps = sorted({row["step"] for row in rows})
    turns, of_step = Counter[tuple[str, int]](), Counter[int]()
    for row in rows:
        turns[row["choice"], row["step"]] += row["n"]
        of_step[row["step"]] += row["n"]
    choices = sorted({row["choice"] for row in rows}, key=_order)
    return steps, {choice: [turns[choice, step] / of_step[step] for step in steps] for choice in choices}


def _widest_change(parts: Sequence[Sequence[float]]) -> int:
    """Return the index of the step after which the shares change most. Ties go to the first."""
    changes = [
        sum(abs(choice_shares[n + 1] - choice_shares[n]) for choice_shares in parts) for n in range(len(parts[0]) - 1)
    ]
    return changes.index(max(changes)) if changes else 0


def _change(steps: Sequence[int], parts: Mapping[str, Sequence[float]], first: int, last: int, subject: str) -> str:
    """Describe the change between two steps in a sentence, with the choices that reach 1 % at either."""
    if first == last:
        return f"Only step {steps[first]} has data."
    changes = [
        f"{choice} {choice_shares[first]:.0%} → {choice_shares[last]:.0%}"
        for choice, choice_shares in parts.items()
        if max(choice_shares[first], choice_shares[last]) >= LEAST and choice != OTHER
    ]
    return f"{subject}, from step {steps[first]} to step {steps[last]}: {', '.join(changes)}."


def _shown(row: Row) -> Row:
    return {
        "id": f"{row['stage']} {row['step']} {row['choice']}",
        "step": row["step"],
        "stage": row["stage"],
        "choice": row["choice"],
        "share": f"{row['n'] / row['of_step']:.0%}",
        "commonest": row["commonest"],
        "one": "open",
        "href_one": f"/trajectory/{row['one_id']}",
    }
