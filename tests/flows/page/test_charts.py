"""Options of the charts."""

from __future__ import annotations

from flows.page.charts import Mark, curves, turn_bars


def test_labels_that_would_cover_one_another_stand_one_above_the_other() -> None:
    marks = [
        Mark(1, "rl-1: 6 turns", "stage"),
        Mark(49, "rl-3: 16 turns", "stage"),
        Mark(50, "alarm: validation_fell", "alarm"),
        Mark(97, "alarm: entropy\nalarm: kl", "alarm"),
    ]
    options = curves({"score": [(0, 0.1), (97, 0.5)]}, marks)
    labels = {line["name"]: line["label"] for line in options["series"][0]["markLine"]["data"]}
    placed = {name: (label["distance"], label["align"]) for name, label in labels.items()}
    assert placed == {
        "rl-1: 6 turns": (6, "left"),
        "rl-3: 16 turns": (6, "center"),
        "alarm: validation_fell": (20, "center"),
        "alarm: entropy\nalarm: kl": (6, "right"),
    }
    assert options["grid"]["top"] == 2 * 14 + 22
    [narrow] = options["media"]
    labels = {line["name"]: line["label"]["distance"] for line in narrow["option"]["series"][0]["markLine"]["data"]}
    assert labels == {
        "rl-1: 6 turns": 6,
        "rl-3: 16 turns": 6,
        "alarm: validation_fell": 20,
        "alarm: entropy\nalarm: kl": 34,
    }
    assert narrow["option"]["grid"]["top"] == 34 - 6 + 2 * 14 + 22


def test_the_phases_of_one_thing_share_a_color_and_scores_an_axis_from_0_to_1() -> None:
    series = {"r1 (training)": [(1, 0.4)], "r2 (training)": [(1, 0.3)], "r2 (validation)": [(1, 0.5)]}
    options = curves(series, [], from_0_to_1=True)
    first, second, third = (line["itemStyle"]["color"] for line in options["series"])
    assert first != second == third
    assert (options["yAxis"]["min"], options["yAxis"]["max"]) == (0, 1)
    assert "min" not in curves({"r1 (training)": [(1, 1.4)]}, [], from_0_to_1=True)["yAxis"]


def test_bars_end_at_the_largest_reward_and_advantages_have_an_axis_with_the_same_zero() -> None:
    options = turn_bars([1, 2], {"reward": [0.0625, 0.0], "advantage": [2.0841, -1.0]})
    assert [(axis["min"], axis["max"]) for axis in options["yAxis"]] == [(-0.063, 0.063), (-2.1, 2.1)]
    assert [bars["yAxisIndex"] for bars in options["series"]] == [0, 1, 1]
    [alone] = turn_bars([1, 2], {"reward": [0.0625, None]})["yAxis"]
    assert (alone["min"], alone["max"]) == (0, 0.063)
    [empty] = turn_bars([1], {"reward": [0.0]})["yAxis"]
    assert (empty["min"], empty["max"]) == (0, 1.0)
