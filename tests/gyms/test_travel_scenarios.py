"""The preference library and the scenarios made from it (UserBench section 3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from userrl_core import gyms
from userrl_core.errors import ConfigError
from userrl_core.gyms.travel.library import Wish, library, problems, wishes
from userrl_core.gyms.travel.options import OptionCounts
from userrl_core.gyms.travel.task_faults import faults
from userrl_core.gyms.validate import validate
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import Task
from userrl_core.rollout import run_episodes


def test_the_library_has_the_size_of_the_published_one():
    found = wishes()
    assert len(library()) == 5
    assert sum(len(part.categories) for part in library().values()) >= 24
    assert len(found) >= 80
    assert min(len(set(wish.phrases)) for wish in found) >= 10
    assert len({phrase for wish in found for phrase in wish.phrases}) >= 900


def test_no_phrase_gives_its_preference_away():
    assert problems(wishes()) == []


def test_a_phrase_that_states_its_preference_is_caught_in_any_inflection():
    wish = Wish(
        "flight", "stops", "direct", "none", "direct, without any stop", tuple(f"I am number {i}." for i in range(10))
    )
    assert problems([wish]) == []
    for phrase in ("I fly directly.", "No stops for me.", "Stopping over bores me.", "DIRECT it must be."):
        assert problems([replace(wish, phrases=(*wish.phrases, phrase))])
    assert problems([replace(wish, phrases=wish.phrases[:9])])


def test_two_thousand_scenarios_keep_every_promise():
    made = gyms.generate("travel", 2000, 1)
    assert len({task.id for task in made}) == 2000
    assert {task.id: found for task in made if (found := faults(task))} == {}


def test_the_checker_finds_what_is_broken():
    task = gyms.generate("travel", 1, 5, tier="22")[0]

    def broken(change: str) -> list[str]:
        import copy

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
        elif change == "noise is sound":
            best = next(o for o in aspect["options"] if o["id"] == aspect["best"])
            of_type["noise"].update({k: v for k, v in best.items() if k != "id"})
        elif change == "another is cheaper":
            correct["cost"] = 1 + min(o.get("cost", 1e9) for o in aspect["options"] if o.get("cost", 0) > 100) // 3
        elif change == "an option shows its type":
            correct["type"] = "correct"
        elif change == "the opening tells":
            payload["opening"] += " " + aspect["preferences"][0]["preference"]
        elif change == "contradiction":
            aspect["preferences"][1]["category"] = aspect["preferences"][0]["category"]
        elif change == "one option fewer":
            aspect["options"].remove(of_type["noise"])
        return faults(Task("travel", "x", "train", payload, tier="easy"))

    changes = (
        "a wrong option meets all",
        "noise is sound",
        "another is cheaper",
        "an option shows its type",
        "the opening tells",
        "contradiction",
        "one option fewer",
    )
    assert [change for change in changes if not broken(change)] == []
    assert broken("nothing") == []


@pytest.mark.parametrize(("text", "counts"), [("w10n0", (10, 0)), ("w5n5", (5, 5)), ("w8n2", (8, 2))])
def test_option_counts_are_fields(text: str, counts: tuple[int, int]):
    made = gyms.generate("travel", 5, 0, tier="easy", options=text)
    wanted = OptionCounts(wrong=counts[0], noise=counts[1])
    assert [found for task in made if (found := faults(task, wanted))] == []


def test_unknown_counts_and_tiers_are_refused():
    with pytest.raises(ConfigError, match="w10n5"):
        gyms.tasks("travel", "train", options="many")
    with pytest.raises(ConfigError, match="no tier '55'"):
        gyms.tasks("travel", "train", tier="55")


@pytest.mark.parametrize(
    ("tier", "compositions"),
    [("easy", {"22", "2222"}), ("medium", {"33", "233", "333"}), ("hard", {"44", "334", "444"}), ("334", {"334"})],
)
def test_tiers_hold_their_compositions(tier: str, compositions: set[str]):
    made = gyms.generate("travel", 40, 0, tier=tier)
    assert {task.payload["composition"] for task in made} == compositions


def test_more_than_ten_thousand_distinct_scenarios_can_be_drawn():
    from userrl_core.gyms.travel.tasks import _draw

    assert len(_draw(10_500, 3, "all", OptionCounts())) == 10_500


def test_splits_share_no_task_and_looking_twice_gives_the_same():
    ids = [{task.id for task in gyms.tasks("travel", split, tier="22")[:]} for split in ("train", "validation", "test")]
    assert sum(map(len, ids)) == len(set.union(*ids)) == 2000
    tasks = gyms.tasks("travel", "test", tier="22")
    assert tasks[-1] == tasks[len(tasks) - 1]
    with pytest.raises(IndexError):
        tasks[len(tasks)]


def test_a_task_set_can_be_sent_to_another_process():
    import pickle

    tasks = gyms.tasks("travel", "test", tier="22")
    assert pickle.loads(pickle.dumps(tasks))[3] == tasks[3]  # noqa: S301  our own object, written a moment ago


def test_every_composition_can_be_solved_by_its_gold_in_the_published_horizon():
    for tier in ("22", "2222", "33", "233", "333", "44", "334", "444"):
        for task in gyms.generate("travel", 6, 9, tier=tier):
            assert validate(task).ok, validate(task).reason
            assert gyms.min_turns(task) <= 16


async def test_the_demonstrator_is_better_the_more_it_asks():
    tasks = gyms.tasks("travel", "test")[:40]
    means = []
    for skill in (0.1, 0.6, 1.0):
        played = await run_episodes(tasks, ScriptedPolicy(skill), horizon=16)
        means.append(sum(t.score or 0.0 for t in played) / len(played))
    assert means[0] < means[1] < means[2] == 1.0
