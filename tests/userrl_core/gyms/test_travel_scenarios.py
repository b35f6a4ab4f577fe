"""The preference library and the scenarios built from it (UserBench section 3)."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from tests.makers import raises
from tests.userrl_core.gyms.travel_checks import library_faults, library_preferences, scenario_faults
from userrl_core import gyms
from userrl_core.gyms.travel.library import LibraryPreference, library
from userrl_core.gyms.travel.options import OptionCounts
from userrl_core.gyms.travel.tasks import draw_plans
from userrl_core.gyms.validate import validate
from userrl_core.records import Task


def test_the_library_has_the_size_of_the_published_one():
    preferences = library_preferences()
    assert len(library()) == 5
    assert sum(len(aspect.categories) for aspect in library().values()) >= 24
    assert len(preferences) >= 80
    assert len({phrase for preference in preferences for phrase in preference.phrases}) >= 900


def test_no_phrase_gives_its_preference_away():
    assert library_faults(library_preferences()) == []


def test_a_phrase_that_states_its_preference_is_detected_in_any_inflection():
    preference = LibraryPreference(
        "flight", "stops", "direct", "none", "direct, without any stop", tuple(f"I am number {i}." for i in range(10))
    )
    assert library_faults([preference]) == []
    for phrase in ("I fly directly.", "No stops for me.", "Stopping over bores me.", "DIRECT it must be."):
        assert library_faults([replace(preference, phrases=(*preference.phrases, phrase))])
    assert library_faults([replace(preference, phrases=preference.phrases[:9])])


def test_six_hundred_generated_scenarios_have_no_fault():
    generated = gyms.generate("travel", 600, 1)
    assert len({task.id for task in generated}) == 600
    assert {task.id: faults for task in generated if (faults := scenario_faults(task))} == {}


def test_the_check_of_scenarios_finds_every_kind_of_fault():
    task = gyms.generate("travel", 1, 5, tier="22")[0]

    def faults_after(change: str) -> list[str]:
        payload = copy.deepcopy(dict(task.payload))
        aspect = next(iter(payload["aspects"].values()))
        notes = aspect["notes"]
        of_type = {
            kind: next(o for o in aspect["options"] if notes[o["id"]]["type"] == kind) for kind in ("wrong", "noise")
        }
        correct = next(o for o in aspect["options"] if o["id"] != aspect["best"] and o["id"] in aspect["correct"])
        if change == "a wrong option meets all":
            best = next(o for o in aspect["options"] if o["id"] == aspect["best"])
            of_type["wrong"].update({k: v for k, v in best.items() if k != "id"})
        elif change == "noise is valid":
            best = next(o for o in aspect["options"] if o["id"] == aspect["best"])
            of_type["noise"].update({k: v for k, v in best.items() if k != "id"})
        elif change == "another is cheaper":
            correct["cost"] = 1 + min(o.get("cost", 1e9) for o in aspect["options"] if o.get("cost", 0) > 100) // 3
        elif change == "an option shows its type":
            correct["type"] = "correct"
        elif change == "the opening gives a preference away":
            payload["opening"] += " " + aspect["preferences"][0]["preference"]
        elif change == "two preferences of a category":
            aspect["preferences"][1]["category"] = aspect["preferences"][0]["category"]
        elif change == "one option fewer":
            aspect["options"].remove(of_type["noise"])
        return scenario_faults(Task("travel", "x", "train", payload, tier="easy"))

    changes = (
        "a wrong option meets all",
        "noise is valid",
        "another is cheaper",
        "an option shows its type",
        "the opening gives a preference away",
        "two preferences of a category",
        "one option fewer",
    )
    assert [change for change in changes if not faults_after(change)] == []
    assert faults_after("nothing") == []


@pytest.mark.parametrize(("text", "counts"), [("w10n0", (10, 0)), ("w5n5", (5, 5)), ("w8n2", (8, 2))])
def test_option_counts_are_a_task_option(text: str, counts: tuple[int, int]):
    generated = gyms.generate("travel", 5, 0, tier="easy", options=text)
    expected = OptionCounts(wrong=counts[0], noise=counts[1])
    assert [faults for task in generated if (faults := scenario_faults(task, expected))] == []


def test_unknown_counts_and_tiers_are_refused():
    with raises("task.bad_option"):
        gyms.tasks("travel", "train", options="many")
    with raises("task.bad_option", "'55'"):
        gyms.tasks("travel", "train", tier="55")


@pytest.mark.parametrize(
    ("tier", "compositions"),
    [("easy", {"22", "2222"}), ("medium", {"33", "233", "333"}), ("hard", {"44", "334", "444"}), ("334", {"334"})],
)
def test_tiers_hold_their_compositions(tier: str, compositions: set[str]):
    generated = gyms.generate("travel", 40, 0, tier=tier)
    assert {task.payload["composition"] for task in generated} == compositions


def test_more_than_ten_thousand_distinct_scenarios_can_be_drawn():
    assert len(draw_plans(10_500, 3, "all", OptionCounts())) == 10_500


def test_every_composition_is_solved_by_its_gold_solution_within_the_published_horizon():
    for tier in ("22", "2222", "33", "233", "333", "44", "334", "444"):
        for task in gyms.generate("travel", 6, 9, tier=tier):
            assert validate(task).ok, validate(task).reason
            assert gyms.min_turns(task) <= 16
