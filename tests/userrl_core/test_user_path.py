"""Files that a person names: what is no file is refused before it is read, by every reader."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.foreign.formats import recognised
from curricula.claims.claim import load_arm
from curricula.claims.cross_play import load_cross_play
from curricula.load import load
from curricula.suites.suite import load_suite
from curricula.yaml_files import read
from sweeps.space import load_space
from tests.makers import raises
from userrl.claims.plan_study import plan_studies
from userrl.evaluation.planned import actor_of
from userrl.machine.fetch import fetch
from userrl_core.errors import UserRLError
from userrl_core.gyms import load_published
from userrl_core.gyms.released import read_json, read_parquet, read_rows
from userrl_core.gyms.released_texts import Source
from userrl_core.gyms.taskfile import read_tasks
from userrl_core.gyms.textcraft.minecraft import read_recipes
from userrl_core.judging.released import read_prompt
from userrl_core.training.model_files import check_files
from userrl_core.user_path import read_text
from userrl_people.plan import load_people_plan
from warehouse.files.layout import check_exists
from warehouse.upkeep.exchange.own_exports import read_conversations

READERS: list[Callable[[Path], Any]] = [
    read,
    load,
    lambda path: load("equalized-r2g", path),
    lambda path: load_suite(str(path)),
    load_space,
    lambda path: load_arm(str(path)),
    load_cross_play,
    load_people_plan,
    lambda path: plan_studies([str(path)]),
    lambda path: fetch("mine", path),
    read_tasks,
    read_rows,
    recognised,
    lambda path: read_json(path, list),
    lambda path: read_parquet(path, ["prompt"]),
    lambda path: list(read_conversations(path)),
]


@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_a_device_and_a_folder_are_refused_before_they_are_read(
    reader: Callable[[Path], Any], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path / "folder"):
        with pytest.raises(UserRLError, match=path.name) as refusal:
            reader(path)
        assert re.search("a pipe or a device|[Ii]s a directory|has no config.json", str(refusal.value))


@pytest.mark.parametrize("reader", READERS)
def test_a_loop_of_links_is_named_by_every_reader(reader: Callable[[Path], Any], tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UserRLError, match=r"loop\b.*symbolic links"):
        reader(tmp_path / "loop")


@pytest.mark.parametrize(
    "reader",
    [
        lambda path: load_published("travel", path),
        lambda path: actor_of(str(path)),
        lambda path: check_exists(path),
        lambda path: check_files(path),
    ],
)
def test_a_loop_of_links_in_place_of_a_folder_is_named(reader: Callable[[Path], Any], tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UserRLError, match=r"loop\b.*symbolic links"):
        reader(tmp_path / "loop")


def test_a_link_to_nothing_is_named_with_what_it_names(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").symlink_to("nowhere")
    with raises("file.missing", "mine.yaml cannot be read (it is a link to nowhere, which does not exist)"):
        load(tmp_path / "mine.yaml")


def test_a_pipe_in_a_copy_of_released_code_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tarl").mkdir()
    (tmp_path / "userrl").mkdir()
    os.mkfifo(tmp_path / "tarl" / "judge.md")
    os.mkfifo(tmp_path / "userrl" / "env.py")
    with pytest.raises(UserRLError, match=r"judge\.md"):
        read_prompt(tmp_path)
    with pytest.raises(UserRLError, match=r"env\.py"):
        Source(tmp_path, "userrl", "env.py")


def test_a_text_from_windows_has_the_line_ends_of_others(tmp_path: Path) -> None:
    (tmp_path / "prompt.md").write_bytes(b"Rate it.\r\nscore_1\r")
    assert read_text(tmp_path / "prompt.md") == "Rate it.\nscore_1\n"


def test_a_release_without_a_task_is_refused(tmp_path: Path) -> None:
    with raises("task.none_left", "textcraft"):
        (tmp_path / "textcraft_recipes.json").write_text('{"a.json": {"type": "minecraft:smelting"}}')
        load_published("textcraft", tmp_path)
    with raises("task.none_left", "textcraft_recipes.json is empty"):
        (tmp_path / "textcraft_recipes.json").write_text("{}")
        load_published("textcraft", tmp_path)


def test_a_recipe_of_minecraft_that_needs_nothing_is_refused(tmp_path: Path) -> None:
    recipe = {"type": "minecraft:crafting_shapeless", "ingredients": [], "result": "minecraft:bed"}
    (tmp_path / "textcraft_recipes.json").write_text(json.dumps({"bed.json": recipe}))
    with raises("task.invalid_field", "bed.json", "needs nothing"):
        load_published("textcraft", tmp_path)


def test_a_table_with_a_header_and_no_rows_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"reward_model": pa.array([], pa.string())}), tmp_path / "train.parquet")
    with raises("task.none_left", "train.parquet is empty: it has 0 entries"):
        read_parquet(tmp_path / "train.parquet", ["reward_model"])
    (tmp_path / "nq").mkdir()
    (tmp_path / "nq" / "test.jsonl").write_text("\n")
    with raises("task.none_left", "test.jsonl is empty"):
        load_published("searchqa", tmp_path)


@pytest.mark.parametrize("content", ["null", "[]", '"x"'])
def test_recipes_of_minecraft_in_another_form_are_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "textcraft_recipes.json").write_text(content)
    with raises("task.file_unreadable", "textcraft_recipes.json"):
        read_recipes(tmp_path)


def test_a_table_of_travel_without_a_column_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "travel22_multiturn_onechoice"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"reward_model": [1]}), folder / "train.parquet")
    with raises("task.file_unreadable", "columns prompt, reward_model"):
        load_published("travel", tmp_path)
