"""What an agent's turns were over the steps of its training, so that a change of its ways is seen where it happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from flows.page import charts, frame
from warehouse import Warehouse

STEPS, EACH = 21, 40
"""Steps, evenly from the first to the last, and conversations of each: a scan of all turns of a run would need .5 GB."""

ROWS, LETTERS = 5, 80
"""Steps of the table, beside the two between which most changed; characters of what was said most."""

LEAST = 0.01
"""A choice that is less of its step's turns counts among the others."""

UNREADABLE, OTHER = "no readable call", "other"
FIRST = ("action", "search", "answer", UNREADABLE)

MEANING = (
    "action: something done, or said to the user; search: a look-up; answer: what the agent settles on. other: choices that "
    "make less than 1 % of their step's turns."
)

MEMBERS = """
SELECT traj_id, stage, step FROM (
    SELECT traj_id, stage, step, row_number() OVER (PARTITION BY step ORDER BY hash(traj_id), traj_id) AS place
    FROM trajectories WHERE run_id = $run AND phase = 'train' AND list_contains($steps, step))
WHERE place <= $each
"""

Row = dict[str, Any]


async def show_replies(warehouse: Warehouse, run_id: str) -> None:
    """Shares of the choices over steps, and what was said most at some of them."""
    found = await frame.asked(lambda: replies(warehouse, run_id))
    if not found:
        return
    steps, parts = _parts(found)
    after = _widest_change(list(parts.values()))
    with ui.element("div").classes("panel"):
        frame.heading("What the agent's turns were", level=2)
        ui.label(_change(steps, parts, 0, len(steps) - 1, "Of the turns"))
        if len(steps) > 2:
            ui.label(_change(steps, parts, after, after + 1, "The widest change between two steps shown"))
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
            f"{MEANING} Percent of the turns, of at most {EACH} conversations at each of at most {STEPS} steps."
        ).classes("quiet text-sm")
        ends = {n * (len(steps) - 1) // (ROWS - 1) for n in range(ROWS)}
        chosen = {steps[n] for n in (*ends, after, min(after + 1, len(steps) - 1))}
        columns = {
            "step": "step", "stage": "stage", "choice": "choice", "share": "share", "commonest": "said most", "one": "see",
        }  # fmt: skip
        frame.table([_shown(row) for row in found if row["step"] in chosen], columns, links=("one",), wide=("stage",))


def replies(warehouse: Warehouse, run_id: str) -> list[Row]:
    """By step, stage and choice: its share of the step's turns, what was said most with its share, and one trajectory."""
    steps = [
        row["step"]
        for row in warehouse.rows(
            "SELECT DISTINCT step FROM trajectories WHERE run_id = $run AND phase = 'train' ORDER BY step", run=run_id
        )
    ]
    chosen = sorted({steps[n * (len(steps) - 1) // (STEPS - 1)] for n in range(STEPS)} if steps else ())
    places = {row["traj_id"]: row for row in warehouse.rows(MEMBERS, run=run_id, steps=chosen, each=EACH)}
    said: dict[tuple[int, str, str], Counter[str]] = {}
    one: dict[tuple[int, str, str], int] = {}
    of_step = Counter[tuple[int, str]]()
    columns = (
        f"traj_id, coalesce(choice, '{UNREADABLE}') AS choice, left(coalesce(content, message), {LETTERS + 1}) AS text"
    )
    for turn in warehouse.stored("turns", list(places), columns) if places else ():
        place = places[turn["traj_id"]]
        key = (place["step"], place["stage"], turn["choice"])
        said.setdefault(key, Counter())[turn["text"] or ""] += 1
        one[key] = min(one.get(key, turn["traj_id"]), turn["traj_id"])
        of_step[key[:2]] += 1
    for key in [key for key, texts in said.items() if texts.total() < LEAST * of_step[key[:2]]]:
        other = (*key[:2], OTHER)
        said.setdefault(other, Counter()).update(said.pop(key))
        one[other] = min(one.get(other, one[key]), one[key])
    return [
        {
            "step": step,
            "stage": stage,
            "choice": choice,
            "n": texts.total(),
            "of_step": of_step[step, stage],
            "commonest": _commonest(texts),
            "one_id": one[step, stage, choice],
        }
        for (step, stage, choice), texts in sorted(said.items(), key=lambda each: (*each[0][:2], _order(each[0][2])))
    ]


def _order(choice: str) -> tuple[int, str]:
    """The same at every step: those of the papers, what could not be read, others by name, the rest."""
    return (FIRST.index(choice) if choice in FIRST else len(FIRST) + (choice == OTHER)), choice


def _commonest(texts: Mapping[str, int]) -> str:
    text, times = min(texts.items(), key=lambda each: (-each[1], each[0]))
    cut = f"{text[:LETTERS]}…" if len(text) > LETTERS else text
    return f"{cut or '(nothing)'} ({times / sum(texts.values()):.0%})"


def _parts(found: Sequence[Row]) -> tuple[list[int], dict[str, list[float]]]:
    """The steps, and by choice its share of the turns of each; branches of a forked run together."""
    steps = sorted({row["step"] for row in found})
    turns, of_step = Counter[tuple[str, int]](), Counter[int]()
    for row in found:
        turns[row["choice"], row["step"]] += row["n"]
        of_step[row["step"]] += row["n"]
    choices = sorted({row["choice"] for row in found}, key=_order)
    return steps, {choice: [turns[choice, step] / of_step[step] for step in steps] for choice in choices}


def _widest_change(parts: Sequence[Sequence[float]]) -> int:
    """After which of the steps shown the shares change most; the first of equals."""
    changes = [sum(abs(own[n + 1] - own[n]) for own in parts) for n in range(len(parts[0]) - 1)]
    return changes.index(max(changes)) if changes else 0


def _change(steps: Sequence[int], parts: Mapping[str, Sequence[float]], first: int, last: int, what: str) -> str:
    """Two steps in a sentence, with the choices that are 1 % of either."""
    if first == last:
        return f"Step {steps[first]} alone."
    told = [
        f"{choice} {own[first]:.0%} → {own[last]:.0%}"
        for choice, own in parts.items()
        if max(own[first], own[last]) >= LEAST and choice != OTHER
    ]
    return f"{what}, from step {steps[first]} to step {steps[last]}: {', '.join(told)}."


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
