"""Options of the charts."""

from __future__ import annotations

from flows.page.charts import Mark, curves


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


def test_marks_that_only_the_text_below_names_take_no_room() -> None:
    options = curves({"score": [(0, 0.1), (9, 0.5)]}, [Mark(3, "alarm: kl (r2)", "alarm", labelled=False)])
    assert options["grid"]["top"] == 22
