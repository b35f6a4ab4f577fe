"""Under `userrl-released` the agent reads the prompt of the released rows."""

from __future__ import annotations

import hashlib
import warnings

import curricula
from tests.published import published
from userrl.run.tasks import tasks_of
from userrl_core.gyms import make
from userrl_core.gyms.prompt import opening_messages
from userrl_core.gyms.released import read_parquet

ROWS = "data/turtle_multiturn/test.parquet"
SYSTEM = "732691bcdd3f7501"
"""Beginning of the hash of turtle's released system message."""


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_a_pretrained_model_reads_the_released_prompt_and_the_laptop_its_own() -> None:
    styles = {profile: curricula.load("userrl-released", profile, check=False) for profile in ("qwen3-8b", "laptop")}
    assert {profile: recipe.model.prompt_style for profile, recipe in styles.items()} == {
        "qwen3-8b": "released",
        "laptop": "brief",
    }


def test_a_rendered_prompt_is_the_one_of_the_released_row() -> None:
    folder = published("userrl")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        recipe = curricula.load("userrl-released", "qwen3-8b", data_folder=folder.parent, check=False)
    task = tasks_of(recipe, "turtle", "test")[0]
    gym = make("turtle", task)
    system, opening = opening_messages(gym, gym.reset(seed=0), 15, recipe.model.prompt_style)
    rows = read_parquet(folder / ROWS, ["reward_model", "prompt"])
    released = next(row["prompt"] for row in rows if row["reward_model"]["title"] == task.payload["title"])
    assert [system, opening] == [dict(message) for message in released]
    assert (digest(system["content"]), len(system["content"])) == (SYSTEM, 2128)
    parts = [line.split(":")[0] for line in system["content"].splitlines() if line.startswith("- ")]
    assert parts == ["- Environment Description", "- Action Space", "- Action Description", "- Important Notes"]
    assert opening["content"].startswith("Title: ")
    assert "\nSurface: " in opening["content"]
    ours, _ = opening_messages(gym, opening["content"], 15, "full")
    assert [line for line in ours["content"].splitlines() if line.startswith("# ")] == [
        "# Goal",
        "# Choices",
        "# Rules",
    ]
