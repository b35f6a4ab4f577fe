from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.warehouse.makers import play
from userrl_core.records import Judgement, Trajectory
from userrl_core.rewards import CreditConfig, Credits, assign_credit, measure_bias, turn_advantages
from warehouse import TurnLog, Warehouse, open_warehouse
from warehouse.upkeep.compact import compact

GOLDEN: list[list[float | None]] = [[0, 0, 1], [0, 0.5], [0, 0, 0], [1]]


def advantages(warehouse: Warehouse, played: list[Trajectory], **settings: object) -> list[list[float]]:
    rows = warehouse.query("rescore", run="r1", **settings).pl().sort("traj_id", "turn")
    by_id = {key[0]: part["advantage"].to_list() for key, part in rows.group_by("traj_id", maintain_order=True)}
    return [by_id[t.traj_id or 0] for t in played]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"shaping": "equalized", "ddof": 1}, [[0.309523] * 3, [-0.261904] * 2, [-1.214283] * 3, [1.166664]]),
        ({"shaping": "equalized", "ddof": 0}, [[0.357406] * 3, [-0.302421] * 2, [-1.402133] * 3, [1.347147]]),
        (
            {"shaping": "r2g", "ddof": 1},
            [[0.243559, 0.304449, 0.380561], [-0.232804, -0.291005], [0.0] * 3, [1.166664]],
        ),
        (
            {"shaping": "r2g", "ddof": 1, "form": "paper"},
            [[0.309523, 0.690475, 1.166664], [-0.261904, -0.023809], [-1.214283] * 3, [1.166664]],
        ),
    ],
)
def test_sql_gives_the_golden_vectors(tmp_path: Path, settings: dict[str, object], expected: list[list[float]]) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        played = [play(log, rewards, attempt=n) for n, rewards in enumerate(GOLDEN)]
    with open_warehouse(tmp_path) as warehouse:
        rescored = advantages(warehouse, played, **settings)
    assert rescored == [pytest.approx(row, abs=1e-6) for row in expected]


PUSHED = [("r2g", "paper"), ("naive", "paper"), ("r2g", "released"), ("em", "centred"), ("equalized", "released")]


def trained_on(members: list[Trajectory], shaping: Any, form: Any) -> Credits:
    """Credit of one step's trajectories under the recorded run's settings."""
    return assign_credit(
        [t.rewards for t in members],
        [t.group for t in members],
        CreditConfig(shaping=shaping, form=form, gamma=0.7, ddof=1),
        turn_tokens=[[turn.completion_tokens for turn in t.turns] for t in members],
    )


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Warehouse, list[Trajectory]]:
    """200 trajectories in groups of 4 with every oddity: nulls, equal groups, failures without any reward, groups with one admitted
    member.

    Each step was trained on with another of `PUSHED`.
    """
    root, draw = tmp_path_factory.mktemp("warehouse"), random.Random(1)
    log, all_played = TurnLog.open(root, "r1", run_fields={"gamma": 0.7, "ddof": 1}), []
    for group in range(50):
        for attempt in range(4):
            rewards: list[float | None] = [draw.choice([0.0, 0.0, 0.25, 1.0]) for _ in range(draw.randint(1, 12))]
            if group % 10 == 3:
                rewards = [0.0, 1.0]
            if group % 10 == 5 and not attempt:
                rewards = [0.0, 0.0]
            if draw.random() < 0.1 or (group == 7 and attempt):
                rewards[-1] = None
            all_played.append(play(log, rewards, step=group // 10, group=f"g{group}", attempt=attempt))
    for step, (shaping, form) in enumerate(PUSHED):
        members = [t for t in all_played if t.context.step == step]
        for trajectory, row in zip(members, trained_on(members, shaping, form).advantages, strict=True):
            if trajectory.admitted and trajectory.traj_id is not None:
                log.credits(trajectory.traj_id, row.tolist(), row.tolist())
    log.close()
    compact(root)
    return open_warehouse(root), all_played


@pytest.mark.parametrize("shaping", ["naive", "equalized", "r2g", "em"])
@pytest.mark.parametrize("score", ["sum", "mean", "r2g"])
@pytest.mark.parametrize("form", ["released", "paper", "centred"])
@pytest.mark.parametrize(("gamma", "ddof"), [(0.8, 0), (0.0, 1), (1.0, 1), (0.3, 0)])
def test_sql_and_python_agree_to_a_millionth(
    played: tuple[Warehouse, list[Trajectory]], shaping: str, score: str, form: str, gamma: float, ddof: int
) -> None:
    warehouse, trajectories = played
    settings = {"shaping": shaping, "score": score, "form": form, "gamma": gamma, "ddof": ddof}
    expected = assign_credit(
        [t.rewards for t in trajectories],
        [t.group for t in trajectories],
        CreditConfig(**settings),
        turn_tokens=[[turn.completion_tokens for turn in t.turns] for t in trajectories],
    )
    rows = warehouse.query("rescore", run="r1", **settings).pl().sort("traj_id", "turn")
    assert rows["shaped"].to_list() == pytest.approx([x for row in expected.shaped for x in row], abs=1e-6)
    assert rows["advantage"].to_list() == pytest.approx([x for row in expected.advantages for x in row], abs=1e-6)


@pytest.mark.parametrize("shaping", ["equalized", "em"])
def test_sql_reproduces_the_released_rounding(played: tuple[Warehouse, list[Trajectory]], shaping: str) -> None:
    warehouse, trajectories = played
    settings: dict[str, Any] = {"shaping": shaping, "score": "mean", "rounding": "released", "ddof": 1}
    expected = assign_credit(
        [t.rewards for t in trajectories],
        [t.group for t in trajectories],
        CreditConfig(**settings),
        turn_tokens=[[turn.completion_tokens for turn in t.turns] for t in trajectories],
    )
    rows = warehouse.query("rescore", run="r1", **settings).pl().sort("traj_id", "turn")
    assert rows["shaped"].to_list() == pytest.approx([x for row in expected.shaped for x in row], abs=1e-12)
    assert rows["advantage"].to_list() == pytest.approx([x for row in expected.advantages for x in row], abs=1e-9)


def test_a_rounding_that_is_not_given_is_the_one_of_the_runs_recipe(tmp_path: Path) -> None:
    fields = {"score": "mean", "ddof": 1, "recipe_json": {"credit": {"rounding": "released"}}}
    with TurnLog.open(tmp_path, "r1", run_fields=fields) as log:
        play(log, [0, 0, 1], attempt=0)
        play(log, [0, 0], attempt=1)
    with open_warehouse(tmp_path) as warehouse:
        found = warehouse.query("rescore_trajectories", run="r1").pl()["score"].to_list()
    assert sorted(found) == [0.0, 0.3333]


def test_settings_that_are_not_given_are_the_runs_own(played: tuple[Warehouse, list[Trajectory]]) -> None:
    warehouse, trajectories = played
    expected = turn_advantages([t.rewards for t in trajectories], [t.group for t in trajectories], gamma=0.7, ddof=1)
    assert advantages(warehouse, trajectories) == [pytest.approx(row, abs=1e-6) for row in expected]


def test_push_in_sql_is_what_the_trainer_logged(played: tuple[Warehouse, list[Trajectory]]) -> None:
    warehouse, trajectories = played
    rows = warehouse.query("push", run="r1").pl().sort("step").to_dicts()
    assert [row["step"] for row in rows] == list(range(len(PUSHED)))
    for row, (shaping, form) in zip(rows, PUSHED, strict=True):
        members = [t for t in trajectories if t.context.step == row["step"]]
        credits = trained_on(members, shaping, form)
        tokens = [[turn.completion_tokens for turn in t.turns] for t in members]
        push = measure_bias(credits.advantages, [t.group for t in members], credits, tokens)
        found = row["push_group"], row["push_turn"], row["silent_below"]
        assert found == pytest.approx((push.group, push.turn, push.silent), abs=1e-6)
    assert [row["push_group"] < 1e-9 for row in rows] == [False, False, False, True, True]
    assert [row["silent_below"] > 0 for row in rows] == [False, False, True, False, False]


def test_settings_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        play(log, [-1.0, 0.5], attempt=0)
        play(log, [1.0, 0.5], attempt=1)
    with open_warehouse(tmp_path) as warehouse:
        for settings in ({"shaping": "em"}, {"shaping": "naive", "form": "released"}, {"shaping": "x"}, {"score": "x"}):
            with pytest.raises(Exception, match=r"use "):
                warehouse.query("rescore", run="r1", **settings)


def test_judged_rescoring_gives_what_a_judged_run_was_trained_with(tmp_path: Path) -> None:
    marks: list[list[float | None]] = [[2.5, 2.5, 10.0], [2.5, -5.0], [5.0, 5.0], [None, None]]
    with TurnLog.open(tmp_path, "r1") as log:
        played = [play(log, [0.0] * len(row), attempt=n) for n, row in enumerate(marks)]
        for trajectory, row in zip(played, marks, strict=True):
            trajectory.judgement = Judgement("rule", [1] * len(row), [1] * len(row), "good", row)
            log.judgement(trajectory)
    expected = turn_advantages(marks, ["g"] * 4, shaping="equalized", score="sum")
    with open_warehouse(tmp_path) as warehouse:
        judged = advantages(warehouse, played, shaping="equalized", score="sum", judged=True)
        raw = advantages(warehouse, played, shaping="equalized", score="sum")
    assert judged == [pytest.approx(row, abs=1e-6) for row in expected]
    assert raw == [[0.0] * len(row) for row in marks], "the gym's own rewards tell these apart in nothing"
