"""The published travel tasks, and option databases in the released format."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.makers import raises
from tests.published import published
from userrl_core import gyms
from userrl_core.gyms.validate import validate
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.rollout import run_episodes

ID = "hotel:2-7|flight:2-1"
TRAINED = "hotel:2-8|flight:2-1"


def make_aspect(letter: str, arguments: dict[str, str], preferences: list[list[str]]) -> dict[str, Any]:
    def option(number: int, kind: str) -> dict[str, Any]:
        return {
            "name": f"Place {number}",
            "cost": 100 + number,
            "type": kind,
            "reason": "because",
            "id": f"{letter}{number}",
        }

    options = {
        "correct": [option(n, "suitable") for n in (2, 3, 1)],
        "wrong": [option(n, "not-suitable") for n in range(4, 14)],
        "noise": [option(n, "noise") for n in range(14, 23)],
    }
    ids = {kind: [o["id"] for o in kind_options] for kind, kind_options in options.items()}
    return {
        "preferences": preferences,
        "arguments": arguments,
        "all_ids": [option_id for kind_ids in ids.values() for option_id in kind_ids][::-1],
        "correct_ids": ids["correct"],
        "wrong_ids": ids["wrong"],
        "noise_ids": ids["noise"],
        "best_id": f"{letter}1",
        "best_id_thought": "cheapest",
        "options": options,
    }


def make_entry() -> dict[str, Any]:
    return {
        "scenario": "All of it.",
        "wanted_num": [2, 2],
        "difficulty": "easy",
        "dimensions": ["hotel", "flight"],
        "hotel": make_aspect(
            "H",
            {"city": "Rome", "date_start": "May 1st", "date_end": "May 4th"},
            [
                ["hotel", "amenities", "prefer a swimming pool", "I do laps each day.", "note"],
                ["hotel", "rating", "prefer rating above 8", "I trust what others loved.", "note"],
            ],
        ),
        "flight": make_aspect(
            "F",
            {"origin": "Oslo", "destination": "Rome", "date": "May 1st"},
            [
                ["flight", "path", "prefer direct flight", "I avoid connections.", "note"],
                ["flight", "company", "prefer Delta Airlines", "I collect miles in Atlanta.", "note"],
            ],
        ),
        "initial_description": "I travel to Rome.",
    }


def make_row(identity: str = ID, ground_truth: str = "['H1', 'F1']") -> dict[str, Any]:
    prompt = [{"role": "system", "content": "rules"}, {"role": "user", "content": "I travel to Rome.\n"}]
    return {
        "prompt": prompt,
        "reward_model": {"env_name": "TravelGym", "ground_truth": ground_truth, "id": identity, "style": "rule"},
    }


def write_release(root: Path, entry: dict[str, Any] | None, rows: list[dict[str, Any]] | None = None) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = root / "data/travel22_multiturn_onechoice"
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows or [make_row()]), folder / "test.parquet")
    pq.write_table(pa.Table.from_pylist([make_row(TRAINED)]), folder / "train.parquet")
    if entry is not None:
        place = root / "gyms/TravelGym/travelgym/data"
        place.mkdir(parents=True)
        (place / "travelgym_data_22.json").write_text(json.dumps({ID: entry, TRAINED: entry}))
    return root


def test_a_task_with_its_options_is_playable_and_its_gold_reaches_full_score(tmp_path: Path):
    _, task = gyms.load_published("travel", write_release(tmp_path, make_entry()))
    assert (task.id, task.split, task.tier, task.source) == (ID, "test", "easy", "published:userrl")
    assert validate(task).ok, validate(task).reason
    assert gyms.min_turns(task) == 7
    options = task.payload["aspects"]["hotel"]["options"]
    assert len(options) == 22
    assert options[0]["id"] == "H22"
    assert not any(key in option for option in options for key in ("type", "reason"))


async def test_the_demonstrator_plays_published_tasks(tmp_path: Path):
    _, task = gyms.load_published("travel", write_release(tmp_path, make_entry()))
    skilled = await run_episodes([task], ScriptedPolicy(1.0), horizon=16, n=20)
    unskilled = await run_episodes([task], ScriptedPolicy(0.1), horizon=16, n=20)
    assert {t.score for t in skilled} == {1.0}
    assert sum(t.score or 0 for t in unskilled) < 20


def test_a_prompt_without_options_is_imported_as_unplayable(tmp_path: Path):
    _, task = gyms.load_published("travel", write_release(tmp_path, None))
    result = validate(task)
    assert (result.ok, result.playable) == (False, False)
    assert "travelgym_data_22.json is not in this copy" in result.reason
    assert gyms.min_turns(task) == 7
    with raises("task.not_playable"):
        gyms.make("travel", task)


def changed_entry(path: list[str], value: Any) -> dict[str, Any]:
    entry = copy.deepcopy(make_entry())
    node = entry
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return entry


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["dimensions"], ["hotel", "boat"], "field 'dimensions'"),
        (["hotel"], None, "field 'hotel' must be an object"),
        (["hotel", "preferences"], [["hotel", "amenities"]], "field 'hotel': 'preferences'"),
        (["hotel", "options"], {"correct": []}, "field 'hotel': 'options'"),
        (["flight", "best_id"], "F9", "field 'flight': 'best_id'"),
        (["dimensions"], [["hotel"]], "field 'dimensions'"),
        (["flight", "all_ids"], ["F1"], "field 'flight': 'all_ids'"),
        (["flight", "all_ids"], None, "field 'flight': 'all_ids'"),
        (["flight", "all_ids"], make_entry()["flight"]["all_ids"] * 2, "field 'flight': 'all_ids'"),
        (["flight", "all_ids"], [["F1"]], "field 'flight': 'all_ids'"),
        (["flight", "correct_ids"], [["F1"]], "field 'flight': 'best_id'"),
        (["flight", "arguments"], None, "field 'flight': 'arguments'"),
    ],
)
def test_a_bad_option_entry_names_file_entry_and_field(tmp_path: Path, path: list[str], value: Any, message: str):
    with raises("task.invalid_field", message) as caught:
        gyms.load_published("travel", write_release(tmp_path, changed_entry(path, value)))
    assert "travelgym_data_22.json, entry" in str(caught.value)


def test_two_options_of_an_aspect_with_one_id_are_refused(tmp_path: Path):
    entry = make_entry()
    entry["hotel"]["options"]["wrong"].append({**entry["hotel"]["options"]["noise"][0], "name": "another"})
    with raises("task.duplicate", "field 'hotel'", "two options have the id 'H14'"):
        gyms.load_published("travel", write_release(tmp_path, entry))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (make_row("hotel-7"), "field 'reward_model.id'"),
        (make_row(ground_truth="['H1']"), "field 'reward_model.id'"),
        (make_row(ground_truth="['H2', 'F1']"), "ground_truth"),
        (make_row("hotel:2-9|flight:2-9"), "is missing"),
        (
            {**make_row(), "prompt": [{"role": "system", "content": "a"}, {"role": "assistant", "content": "b"}]},
            "'prompt'",
        ),
    ],
)
def test_a_bad_prompt_row_names_file_and_field(tmp_path: Path, row: dict[str, Any], message: str):
    with raises("task.invalid_field", message):
        gyms.load_published("travel", write_release(tmp_path, make_entry(), [row]))


def test_a_folder_without_travel_prompts_is_named(tmp_path: Path):
    with raises("task.file_missing"):
        gyms.load_published("travel", tmp_path)


@pytest.mark.parametrize("release", ["userrl", "userbench"])
def test_all_published_prompts_load_with_their_splits(release: str):
    loaded = gyms.load_published("travel", published(release))
    assert len({task.id for task in loaded}) == len(loaded) == 3122
    assert sum(task.split == "test" for task in loaded) == 471
    by_tier = {tier: sum(t.tier == tier and t.split == "test" for t in loaded) for tier in ("easy", "medium", "hard")}
    assert by_tier == {"easy": 118, "medium": 201, "hard": 152}
    assert not validate(loaded[0]).playable
