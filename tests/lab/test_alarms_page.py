"""The table of alarms is that of the runs' data, and its rules do what its words say."""

from __future__ import annotations

from typing import Any

import polars as pl

from lab.pages import alarms
from lab.pages.alarms import AlarmedRun
from userrl.run.alarms import RULES, alarm_rules, tripped


def run(values: list[float], collapse: int | None = None, name: str = "signal", **more: float) -> AlarmedRun:
    return AlarmedRun("errand", collapse, [{"step": step, name: v, **more} for step, v in enumerate(values, 1)])


def validated(*scores: float) -> pl.DataFrame:
    return pl.DataFrame({"step": [4 * n for n in range(len(scores))], "own_score": scores, "n": 1})


def test_the_page_is_that_of_the_data() -> None:
    page = alarms.PAGE.read_text()
    assert page == alarms.page(page)


def test_a_collapse_begins_where_all_later_scores_stay_below() -> None:
    assert alarms.collapse_step(validated(0.5, 0.3, 0.6, 0.45, 0.2, 0.1)) == 12
    assert alarms.collapse_step(validated(0.5, 0.3, 0.6, 0.55)) == 12  # not seen in these scores: the last step
    assert alarms.collapse_step(validated(0.5, 0.2, 0.1)) == 4


def test_an_alarm_sounds_at_the_step_at_which_the_product_sounds_it() -> None:
    values = [0.9, 0.8, 0.5, 0.2, 0.05, 0.01, 0.02, 0.01]
    for name in ("signal", "reply_length", "entropy_collapse", "format_valid"):
        played = run(values, name=name)
        sounded = [
            n for n in range(1, len(values) + 1) if tripped(played.rows[:n], {name: alarm_rules({name: "warn"})[name]})
        ]
        assert alarms.first_alarm(played, name, RULES[name].threshold) == sounded[0]
        solved = run(values, name=name, success=0.95)
        silent = not tripped(solved.rows, {name: alarm_rules({name: "warn"})[name]})
        assert silent is RULES[name].unless_solved is (alarms.first_alarm(solved, name, RULES[name].threshold) is None)


def test_the_chosen_threshold_is_false_in_at_most_one_sound_run_in_ten() -> None:
    sound = [run([0.5 - n / 100] * 4) for n in range(20)]
    threshold = alarms.chosen_threshold(sound, "signal", RULES["signal"])
    assert sum(alarms.first_alarm(each, "signal", threshold) is not None for each in sound) == 2


def test_an_alarm_at_the_collapse_predicts_nothing() -> None:
    early: Any = run([0.1] * 8, collapse=6)
    late: Any = run([0.5] * 3 + [0.0] * 5, collapse=5)
    assert alarms.shares([early, late], "signal", 0.2)[0].startswith("1 of 2")
    assert alarms.lead([early, late], "signal", 0.2) == "0.38"
