"""The rule judge beside two labellings of 200 turns by TARL's rubric (`lab/benchmarks/turn_labels.py` prints the table).

The judge was improved on half "dev" and not changed after half "held" was scored.
"""

from __future__ import annotations

from tests.published import published
from tests.userrl_core.judging.turn_labels import labels, marks, specs


def agreement(found: dict[tuple[str, int], int], labeller: str) -> float:
    told = labels(labeller)
    return sum(mark == told[turn][0] for turn, mark in found.items()) / len(found)


def test_two_labellers_labelled_every_turn_and_agree_on_95_of_100() -> None:
    a, b = labels("A"), labels("B")
    turns = {(spec["id"], n) for half in ("dev", "held") for spec in specs(half) for n in range(1, spec["turns"] + 1)}
    assert a.keys() == b.keys() == turns
    assert len(turns) == 200
    assert sum(a[turn][0] == b[turn][0] for turn in turns) == 190


def test_the_judge_agrees_with_a_person_on_the_held_back_half() -> None:
    found = marks("held", published("tau-bench"))
    assert len(found) == 100
    assert (agreement(found, "A"), agreement(found, "B")) == (0.87, 0.86)


def test_the_judge_finds_every_kind_of_deviation() -> None:
    folder = published("tau-bench")
    found = {**marks("dev", folder), **marks("held", folder)}
    for labeller in "AB":
        told = labels(labeller)
        deviations = {turn: kind for turn, (label, kind) in told.items() if label == -1}
        hit = {kind for turn, kind in deviations.items() if found[turn] == -1}
        assert hit == set(deviations.values())


def test_conversations_of_our_own_gym_are_judged_without_published_data() -> None:
    found = marks("held", None)
    assert len(found) == 49
    assert agreement(found, "A") == 1.0


def test_the_second_judge_marks_fewer_turns_wrongly_as_deviations() -> None:
    """Its deviations on both halves, whose labels it was not made for: 18 of 22 are right, of the first judge's 18 of 24."""
    folder, told = published("tau-bench"), labels("A")
    for version, right, all_marks in ((1, 18, 24), (2, 18, 22)):
        found = {**marks("dev", folder, version), **marks("held", folder, version)}
        deviations = [turn for turn, mark in found.items() if mark == -1]
        assert (sum(told[turn][0] == -1 for turn in deviations), len(deviations)) == (right, all_marks)


def test_the_second_judge_agrees_on_conversations_of_our_own_gym() -> None:
    assert agreement(marks("held", None, 2), "A") == 1.0
