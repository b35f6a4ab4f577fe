"""Collapse alarms over synthetic series and recorded curves, and what a recipe may say about them."""

import csv
import math
from dataclasses import replace

import pytest

from tests.makers import raises
from tests.places import TESTS
from tests.warehouse.makers import play
from userrl.run.alarms import RULES, SERIES, alarm_rules, tripped, validations
from userrl.run.readiness import resolve
from warehouse import TurnLog, open_warehouse


def collapse():
    """As users of the released code report it: replies shrink from 2,960 to 315 tokens, then the score falls to zero."""
    lengths = [2960, 2900, 2990, 2870, 2600, 2100, 1500, 1100, 800, 600, 450, 380, 340, 315, 315, 315]
    scores = [0.50, 0.52, 0.51, 0.53, 0.52, 0.52, 0.51, 0.52, 0.50, 0.51, 0.50, 0.48, 0.20, 0.05, 0.0, 0.0]
    return [{"step": i, "reply_length": n, "score": s} for i, (n, s) in enumerate(zip(lengths, scores, strict=True), 1)]


ALL = alarm_rules(dict.fromkeys(RULES, "warn"))


def first_alarm(rows, name):
    return next((n for n in range(1, len(rows) + 1) if any(a.name == name for a in tripped(rows[:n], ALL))), None)


def test_the_reported_collapse_trips_before_the_score_falls():
    rows = collapse()
    step = first_alarm(rows, "reply_length")
    fallen = next(row["step"] for row in rows if row["score"] < 0.4)
    assert step == 9
    assert step < fallen


def test_a_healthy_series_trips_nothing():
    rows = [
        {
            "step": step,
            "reply_length": 500 + 40 * (step % 3),
            "format_valid": 0.99,
            "entropy": 0.4,
            "kl": 0.05,
            "push": 0.3,
            "engine_gap": 1e-3,
            "zero_variance": 0.3,
            "null_reward": 0.0,
            "user_errors": 0.0,
        }
        for step in range(1, 60)
    ]
    assert all(tripped(rows[:n], ALL) == [] for n in range(1, 60))


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("format_valid", 0.5),
        ("entropy", 0.0),
        ("kl", 5.0),
        ("push", 0.9),
        ("engine_gap", 0.05),
        ("zero_variance", 1.0),
        ("signal", 0.1),
        ("null_reward", 0.5),
        ("user_errors", 0.9),
    ],
)
def test_each_alarm_sounds_after_a_window_of_bad_steps_and_not_after_one(name, bad):
    assert tripped([{"step": 1, name: bad}], ALL) == []
    (alarm,) = tripped([{"step": step, name: bad} for step in (1, 2, 3)], ALL)
    assert (alarm.name, alarm.step, alarm.action) == (name, 3, "warn")
    assert f"Alarm {name} at step 3" in alarm.sentence()


def test_numbers_that_were_not_measured_trip_nothing():
    assert tripped([{"step": step, "kl": None} for step in range(9)], alarm_rules({})) == []


def test_an_alarm_that_predicted_no_collapse_is_off_until_a_recipe_names_it():
    name = "entropy_collapse"
    assert {other for other, (_, action) in alarm_rules({}).items() if action == "off"} == {name}
    assert alarm_rules({name: {"threshold": 0.3}})[name] == (replace(RULES[name], threshold=0.3), "warn")
    assert alarm_rules({name: "stop"})[name][1] == "stop"


def test_a_recipe_chooses_action_and_threshold():
    chosen = alarm_rules({"kl": {"threshold": 9.0, "action": "stop"}, "entropy": False, "reply_length": "pause"})
    assert chosen["kl"] == (replace(RULES["kl"], threshold=9.0), "stop")
    assert chosen["entropy"][1] == "off"
    assert chosen["reply_length"][1] == "pause"
    assert chosen["null_reward"][1] == "warn"


def test_an_unknown_alarm_or_action_is_refused_with_the_nearest_name():
    with raises("alarm.unknown", "'entropi'", "did you mean 'entropy'"):
        alarm_rules({"entropi": "warn"})
    with raises("alarm.unknown", "alarms.kl", "'explode'"):
        alarm_rules({"kl": "explode"})


@pytest.mark.parametrize(
    ("setting", "code", "fact"),
    [
        ({"action": "stop", "treshold": 0.5}, "recipe.unknown_key", "did you mean 'threshold'"),
        ({"threshold": math.nan}, "recipe.invalid_value", "threshold"),
        ({"threshold": True}, "recipe.invalid_value", "threshold is a truth value"),
        ({"threshold": "abc"}, "recipe.invalid_value", "'abc'"),
        ({"threshold": None}, "recipe.invalid_value", "threshold"),
        ([0.5], "alarm.unknown", "[0.5]"),
    ],
)
def test_an_alarm_with_a_misspelt_key_or_no_number_is_refused_when_the_recipe_is_resolved(setting, code, fact):
    with raises(code, "larms.entropy", fact):
        resolve("equalized-r2g", "laptop", {"alarms": {"entropy": setting}}, check=False)


def test_the_alarms_of_a_recipe_that_was_stored_with_a_misspelt_key_are_read():
    assert alarm_rules({"entropy": {"action": "stop", "treshold": 0.5}})["entropy"] == (RULES["entropy"], "stop")
    assert alarm_rules({"kl": {"threshold": math.inf}})["kl"][0].threshold == math.inf


RECORDED = TESTS / "data" / "curves.csv"
"""Entropy of what was trained on (none where nothing was), share of groups that differ and success per step, of runs on the laptop:
naive-sum and equalized-r2g under `laptop-quick` (seeds 10, 11), both branches of horizon-fork (seeds 1, 2)."""


def recorded():
    runs = {}
    with RECORDED.open() as file:
        for row in csv.DictReader(file):
            known = {name: float(row[name]) for name in ("signal", "success", "entropy") if row[name]}
            known["entropy_collapse"] = known.pop("entropy", None)
            runs.setdefault(row["run"], []).append({"step": int(row["step"]), **known})
    return runs


def first_step(rows, name):
    number = first_alarm(rows, name)
    return None if number is None else rows[number - 1]["step"]


def test_of_recorded_runs_those_sound_for_a_vanished_signal_whose_credit_rule_collapses_and_no_others():
    sounded = {run: first_step(rows, "signal") for run, rows in recorded().items()}
    assert sounded == {"naive-10": 31, "naive-11": 45} | dict.fromkeys(set(sounded) - {"naive-10", "naive-11"})
    assert len(sounded) == 7


def test_a_run_at_its_ceiling_has_lost_its_signal_and_sounds_no_alarm():
    rows = recorded()["equalized-10"]
    assert sum(row["signal"] for row in rows[-3:]) / 3 < 0.4
    assert first_step(rows, "signal") is None
    assert first_step([row | {"success": 0.5, "signal": row["signal"] / 2} for row in rows], "signal") is not None


def test_entropy_of_recorded_healthy_runs_falls_to_a_fifth_without_an_alarm_and_to_a_tenth_with_one():
    rows = recorded()["short-2"]
    assert first_step(rows, "entropy_collapse") is None
    collapsed = [row | {"entropy_collapse": row["entropy_collapse"] ** 2} for row in rows]
    assert first_step(collapsed, "entropy_collapse") is not None


def play_step(log, step, *, mixed, attempts=2, finished=True):
    """Ten tasks, of which the first ones succeed at every second attempt and the others never."""
    for task in range(10):
        for attempt in range(attempts):
            score = float(task < mixed and attempt % 2)
            ending = "success" if score else "horizon"
            play(log, [score], task=f"t{task}", attempt=attempt, step=step, score=score, stop_reason=ending)
    if finished:
        log.metrics({"credit/push_group/share": 0.1}, stage="rl-1", step=step)


def readings(root):
    with open_warehouse(root) as warehouse:
        series = warehouse.sql(SERIES, run="r1", branch="")
        return [dict(zip(series.columns, row, strict=True)) for row in series.fetchall()]


def test_a_step_that_is_still_played_is_not_judged_and_a_finished_one_is(tmp_path):
    with TurnLog.open(tmp_path, "r1", run_fields={"score": "r2g"}) as log:
        log.metrics({"sft/loss/mean": 1.0}, stage="sft", step=4)  # the cold start counts its own steps
        for step, mixed in ((1, 3), (2, 2), (3, 3)):
            play_step(log, step, mixed=mixed)
        play_step(log, 4, mixed=3, attempts=1, finished=False)  # one conversation of each group has ended
        log.flush()
        assert [(row["step"], row["signal"], row["zero_variance"]) for row in readings(tmp_path)] == [
            (1, 0.3, 0.7), (2, 0.2, 0.8), (3, 0.3, 0.7)
        ]  # fmt: skip
        assert tripped(readings(tmp_path), alarm_rules({})) == []
        log.metrics({"credit/push_group/share": 0.1}, stage="rl-1", step=4)
        log.flush()
        assert [row["step"] for row in readings(tmp_path)] == [1, 2, 3, 4]
        for step in (5, 6, 7):
            play_step(log, step, mixed=1)
        log.flush()
        (alarm,) = tripped(readings(tmp_path), alarm_rules({}))
    assert (alarm.name, alarm.step, alarm.value) == ("signal", 7, pytest.approx(0.1))


def test_a_group_with_one_admitted_conversation_is_not_flat(tmp_path):
    with TurnLog.open(tmp_path, "r1", run_fields={"score": "r2g"}) as log:
        for task, reward in (("t1", 1.0), ("t1", 0.0), ("t2", 1.0), ("t2", None)):
            play(log, [reward], task=task)
        log.metrics({"credit/push_group/share": 0.1}, stage="rl-1", step=1)
    ((row,),) = (readings(tmp_path),)
    assert (row["signal"], row["zero_variance"], row["null_reward"]) == (1.0, 0.0, 0.25)


@pytest.mark.parametrize(("score", "signal"), [("sum", 0.0), ("mean", 1.0), ("r2g", 1.0)])
def test_the_signal_is_that_of_the_score_that_the_recipe_trains_on(tmp_path, score, signal):
    """Equal returns at different turns differ in the reward to go and in the mean, not in the sum."""
    with TurnLog.open(tmp_path, "r1", run_fields={"score": score, "gamma": 0.8}) as log:
        for rewards in ([0.5], [0.0, 0.5]):
            play(log, rewards, stop_reason="horizon")
        log.metrics({"credit/push_group/share": 0.1}, stage="rl-1", step=1)
    (row,) = readings(tmp_path)
    assert (row["signal"], row["zero_variance"]) == (signal, 1 - signal)


def test_a_validation_that_is_still_played_is_not_judged(tmp_path):
    with TurnLog.open(tmp_path, "r1") as log:
        for step in (0, 10):
            play(log, [0.5], phase="validate", step=step, score=0.5)
        log.metrics({"validate/score/mean": 0.5}, stage="rl-1", step=0)
    with open_warehouse(tmp_path) as warehouse:
        assert [(v.step, v.scores) for v in validations(warehouse, "r1")] == [(0, {"travel/t1": 0.5})]
