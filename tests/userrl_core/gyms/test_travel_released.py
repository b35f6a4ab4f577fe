"""The same actions earn the same on the released TravelGym and on ours under `userrl-released`.

Ten of the sequences of a finished script (data/finished-studies.md) are recorded with the rewards that the released gym gave.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import curricula
from curricula.suites import load_suite
from tests.places import TESTS
from userrl_core.gyms import make, tasks
from userrl_core.interact import InteractCall

RECORDED: list[dict[str, Any]] = json.loads((TESTS / "data" / "travel_released.json").read_text())


async def played(config: dict[str, Any], recorded: dict[str, Any]) -> tuple[list[float | None], int | None]:
    """The rewards of a recorded sequence on our gym, and the number of the action that ended the episode."""
    task = tasks("travel", "test")[recorded["index"]]
    assert task.id == recorded["task"]
    gym = make("travel", task, **config)
    gym.reset(seed=0)
    rewards: list[float | None] = []
    for choice, content in recorded["actions"]:
        rewards.append((await gym.step(InteractCall(choice, content))).reward)
        if gym.done:
            return rewards, len(rewards)
    return rewards, None


@pytest.mark.parametrize("number", range(len(RECORDED)))
def test_a_recorded_sequence_earns_and_ends_as_on_the_released_gym(number: int) -> None:
    recorded = RECORDED[number]
    config = curricula.load("userrl-released", check=False).gym("travel").config
    rewards, ended = asyncio.run(played(config, recorded))
    assert rewards == pytest.approx(recorded["rewards"])
    assert ended == recorded["ended"]


def test_the_recorded_sequences_tell_the_two_ends_apart() -> None:
    config = curricula.load("userrl-released", check=False).gym("travel").config
    ends = [asyncio.run(played({**config, "end_when": "all_chosen"}, recorded))[1] for recorded in RECORDED]
    assert len(RECORDED) == 10
    assert sum(end != recorded["ended"] for end, recorded in zip(ends, RECORDED, strict=True)) >= 3


def test_the_released_suite_ends_travel_as_the_recipe_does_and_has_the_released_threshold() -> None:
    setup = load_suite("userrl-table3:released").setup
    assert setup["travel"].config["end_when"] == "all_best"
    assert setup["turtle"].config == {"threshold": 1.0}
