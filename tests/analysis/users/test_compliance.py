"""How often a served user shows the moves it was told to make, in a run's report."""

from __future__ import annotations

from pathlib import Path

from tests.warehouse.makers import make_task, make_turn
from userrl.reports.document import TableBlock, Text, unmarked
from userrl.reports.users.users_section import users_of
from userrl_core.records import RolloutContext, Trajectory
from warehouse import TurnLog, open_warehouse


def talk(log: TurnLog, task: str, shown: list[bool | None], move: str = "hesitates") -> None:
    """Log a conversation of a served user. shown: of each turn, None where no move was due."""
    context = RolloutContext("evaluate", 1, "evaluate", "model", "c1")
    trajectory = Trajectory(make_task("wish", task), 0, 8, 0, context, group=task, user="qwen")
    log.begin(trajectory)
    for number, showed in enumerate(shown, 1):
        turn = make_turn(number, 0.0)
        turn.info = {} if showed is None else {"persona": {"move": move, "shown": showed}}
        trajectory.turns.append(turn)
        log.turn(trajectory, turn)
    trajectory.admitted, trajectory.score, trajectory.stop_reason = True, 1.0, "success"
    log.end(trajectory)


def test_the_report_of_a_run_has_the_compliance_of_its_served_user(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        talk(log, "t1", [True, None, False])
        talk(log, "t1", [True, True])
        talk(log, "t2", [False, False, None])
        talk(log, "t3", [True], move="slips")
    with open_warehouse(tmp_path) as warehouse:
        [table, sentence] = users_of(warehouse, "r1")
        [without] = users_of(warehouse, "another")
    assert isinstance(table, TableBlock)
    assert [tuple(map(unmarked, row)) for row in table.rows] == [
        ("evaluate", "wish", "qwen", "hesitates", "6", "0.750, 0.000"),
        ("evaluate", "wish", "qwen", "slips", "1", "1.000"),
    ]
    assert isinstance(sentence, Text)
    assert isinstance(without, Text)
