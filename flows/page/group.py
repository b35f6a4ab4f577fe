"""The page of one group: all trajectories of one task in one step, side by side, with the turns where they diverge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nicegui import ui

from flows.page import charts, frame
from flows.page.conversation.credit import CreditSettings, advantage_meaning, mean_advantage_bias
from userrl.reports.wording import attempt, ended, opening_words
from userrl_core.errors import ConfigError
from warehouse import Warehouse
from warehouse.query import browse
from warehouse.query.browse import StoredConversation


async def show_group(warehouse: Warehouse, traj_id: int) -> None:
    """Draw the group of this trajectory."""
    members = await frame.asked(lambda: browse.group(warehouse, traj_id))
    if not members:
        raise ConfigError("run.no_such_trajectory", f"There is no finished trajectory {traj_id}, so it has no group.")
    first = members[0].trajectory
    frame.heading(f"Group of {first['gym']}: {opening_words(first['messages'], first['task_id'])}")
    with ui.row().classes("gap-2 items-center"):
        facts = (*frame.place(first), f"task {first['task_id']}", f"{len(members)} trajectories")
        for fact in facts:
            frame.chip(fact)
        ui.link(str(first["run_id"]), f"/run/{first['run_id']}")
    members = _widest_first(members)
    parting_turns = browse.parting([member.turns for member in members])
    scores = [m.trajectory["score"] for m in members]
    valid_scores = [score for score in scores if score is not None]
    if len(valid_scores) > 1 and max(valid_scores) > min(valid_scores):
        with ui.row().classes("gap-1"):
            ui.label("Largest difference in score:")
            for member, rank in zip(members[:2], ("best", "worst"), strict=True):
                ui.link(f"{rank}, {attempt(member.trajectory)}", f"/trajectory/{member.trajectory['traj_id']}")
            [turn, _] = browse.parting([member.turns for member in members[:2]])
            ui.label("(shown first below)" if turn is None else f"(shown first below; they diverge at turn {turn})")
    elif first["stage"] is None:
        ui.label("All scores are equal." if valid_scores else "No attempt has a score.").classes("quiet")
    else:
        ui.label("All scores are equal, so all advantages are zero and this group has no gradient.").classes("mark")
    runs = await frame.asked(lambda: warehouse.rows("FROM runs WHERE run_id = $run", run=first["run_id"]))
    with ui.element("div").classes("panel"):
        values = {"score": scores, "advantage": [m.mean_advantage for m in members]}
        present = {name: data for name, data in values.items() if any(v is not None for v in data)}
        options = charts.turn_bars([m.trajectory["attempt"] + 1 for m in members], present)
        options["xAxis"] |= {"name": "Attempt", "nameLocation": "middle", "nameGap": 24}
        options["xAxis"]["axisLabel"] |= {"interval": 0}
        options["grid"] |= {"bottom": 44}
        ui.echart(options).classes("w-full").style("height: 13rem")
        if "advantage" in present:
            _explain(members, runs[0] if runs else {})
    with (
        ui.element("div")
        .classes("flex flex-nowrap gap-3 overflow-x-auto w-full pb-2")
        .props('tabindex=0 aria-label="Trajectories"')
    ):
        for n, member in enumerate(members):
            _member(member, parting_turns[n], _equals(members, n), _shared_turns(members, n))


def _explain(members: Sequence[StoredConversation], run: dict[str, Any]) -> None:
    """Explain the advantage under the run's rule, with the group's mean-advantage bias."""
    bias = mean_advantage_bias(members, run)
    bias_text = (
        ""
        if bias is None
        else f" Mean-advantage bias of this group: {frame.number(bias, 2)} (0: balanced, 1: all of one sign; docs/rewards.md)."
    )
    meaning = advantage_meaning(run, CreditSettings.logged(run))
    ui.label(f"Advantage: the mean over an attempt's turns, red if negative. Under {meaning}.{bias_text}").classes(
        "quiet text-sm"
    )


def _widest_first(members: Sequence[StoredConversation]) -> list[StoredConversation]:
    """Put the best and the worst trajectory first, so that they can be compared. Of equally good and equally bad ones, choose
    the pair with the most common first turns.
    """
    scored = [m for m in members if m.trajectory["score"] is not None]
    if len(scored) < 2:
        return [*scored, *(m for m in members if m.trajectory["score"] is None)]
    scores = [m.trajectory["score"] for m in scored]
    best = [m for m, score in zip(scored, scores, strict=True) if score == max(scores)]
    worst = [m for m, score in zip(scored, scores, strict=True) if score == min(scores)]
    pairs = [(a, b) for a in best for b in worst if a is not b]
    ends = max(pairs, key=lambda two: browse.shared_turns(two[0].turns, two[1].turns))
    return [*ends, *(m for m in members if not any(m is end for end in ends))]


def _member(
    member: StoredConversation, parting_turn: int | None, equals: Sequence[str], shared: Sequence[bool]
) -> None:
    row = member.trajectory
    with ui.element("section").classes("panel member flex flex-col gap-2"):
        ui.link(attempt(row).capitalize(), f"/trajectory/{row['traj_id']}").classes("font-semibold")
        score = frame.number(row["score"]) if row["admitted"] else "not scored"
        advantage = member.mean_advantage
        ui.label(f"score {score}, advantage {frame.number(advantage, sign=True)}").classes("number")
        ui.label(f"{ended(row['stop_reason'], member.turns)} after {frame.many(row['turns'], 'turn')}").classes(
            "quiet text-sm"
        )
        if equals:
            ui.label(f"Same as attempt{'s' if len(equals) > 1 else ''} {', '.join(equals)}").classes("mark text-sm")
        for turn, same in zip(member.turns, shared, strict=True):
            if turn["turn"] == parting_turn:
                ui.label("Differs from all other attempts from here on").classes("mark text-sm")
            frame.turn(turn, same=same)


def _equals(members: Sequence[StoredConversation], index: int) -> list[str]:
    """Return the numbers of the attempts with exactly the same turns and replies."""
    call_sequences = [[(t["choice"], t["content"], t["observation"]) for t in m.turns] for m in members]
    return [
        str(m.trajectory["attempt"] + 1)
        for n, m in enumerate(members)
        if n != index and call_sequences[n] == call_sequences[index]
    ]


def _shared_turns(members: Sequence[StoredConversation], index: int) -> list[bool]:
    """Return for each turn whether another trajectory is identical up to and including it."""
    call_sequences: list[list[Any]] = [
        [(t["choice"], t["content"], t["observation"]) for t in m.turns] for m in members
    ]
    return [
        any(other[: n + 1] == call_sequences[index][: n + 1] for m, other in enumerate(call_sequences) if m != index)
        for n in range(len(call_sequences[index]))
    ]
