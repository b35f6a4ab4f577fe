"""Departures from the released gyms that docs/reference/departures.md lists, each as a behaviour."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.places import ROOT
from userrl_core.errors import JudgeError
from userrl_core.gyms import make, tasks
from userrl_core.interact import InteractCall
from userrl_core.records import Task
from userrl_gym_agentgym.protocols import PROTOCOLS

DEPARTURES = ROOT / "docs" / "reference" / "departures.md"
SERVERS = ROOT / "docs" / "reference" / "gym-servers.md"
LISTED = (
    "test_only_action_is_allowed_and_another_choice_earns_nothing",
    "test_duplicate_indices_count_once",
    "test_an_argument_given_as_a_search_is_refused",
    "test_a_stance_in_another_case_is_the_same_stance",
    "test_a_blank_guess_or_explanation_is_wrong_without_a_judgement",
    "test_respond_is_no_tool_and_a_message_is_an_action",
    "test_a_name_with_the_prefix_of_minecraft_is_the_same_thing",
    "test_a_goal_keeps_the_order_that_minigrid_says",
)


@pytest.mark.parametrize("name", LISTED)
def test_a_departure_is_listed_with_the_test_that_shows_it(name: str) -> None:
    rows = [line for line in DEPARTURES.read_text().splitlines() if line.startswith("|") and f"`{name}`" in line]
    assert len(rows) == 1
    assert any(f"def {name}(" in path.read_text() for path in Path(__file__).parent.glob("test_*.py"))


async def said(gym: Any, choice: str, content: str) -> tuple[str, float | None]:
    result = await gym.step(InteractCall(choice, content))
    return result.observation, result.reward


async def test_an_argument_given_as_a_search_is_refused() -> None:
    gym = make("persuade", tasks("persuade", "train")[0])
    gym.reset(seed=0)
    observation, reward = await said(gym, "search", "Because it is false.")
    assert reward == 0.0
    assert "search" in observation


class Unasked:
    """A user who must not be asked."""

    async def matches(self, guess: str) -> bool:
        raise JudgeError("judge.no_reply", "A blank guess was judged.")

    async def grade(self, explanation: str) -> list[float]:
        raise JudgeError("judge.no_reply", "A blank explanation was judged.")


@pytest.mark.parametrize("name", ["telepathy", "turtle"])
async def test_a_blank_guess_or_explanation_is_wrong_without_a_judgement(name: str) -> None:
    gym = make(name, tasks(name, "train")[0], Unasked())
    gym.reset(seed=0)
    _, reward = await said(gym, "answer", "  ")
    assert (reward, gym.done) == (0.0, False)


async def test_respond_is_no_tool_and_a_message_is_an_action() -> None:
    gym = make("tau", tasks("tau", "train")[0])
    gym.reset(seed=0)
    observation, reward = await said(gym, "answer", '{"name": "respond", "arguments": {"content": "How can I help?"}}')
    assert "respond" in observation
    assert "Error" in observation
    assert reward == 0.0
    reply, _ = await said(gym, "action", "How can I help?")
    assert "Error" not in reply


async def test_a_name_with_the_prefix_of_minecraft_is_the_same_thing() -> None:
    gym = make("textcraft", Task("textcraft", "stick", "train", PLANKS))
    gym.reset(seed=0)
    assert await said(gym, "action", "get 1 minecraft:oak_log") == ("Got 1 oak log", 0.0)
    assert await said(gym, "action", "craft 4 oak planks using 1 oak log") == ("Crafted 4 oak planks", 1.0)


PLANKS = {"goal": "oak planks", "kinds": {}, "recipes": ["craft 4 oak planks using 1 oak log"]}


def test_a_goal_keeps_the_order_that_minigrid_says() -> None:
    pytest.importorskip("minigrid")
    payloads = [{"level": "GoToSeqS5R2", "seed": seed} for seed in range(30)]
    goals = [
        make("babyai", Task("babyai", "sequence", "train", payload)).reset(seed=0).splitlines()[0]
        for payload in payloads
    ]
    assert any(", then " in goal for goal in goals)
    assert any(" after you " in goal for goal in goals)


def test_the_docs_name_every_environment_of_agentgym_and_which_the_client_plays() -> None:
    text = SERVERS.read_text().split("## Environments that are missing")[1].split("\n## ")[0]
    played = SERVERS.read_text().split("## AgentGym's environment servers")[1].split("\n## ")[0]
    assert all(name in played for name in PROTOCOLS if name != "userrl")
    missing = ["WebShop", "ALFWorld", "MAZE", "Wordle", "Weather", "Movie", "Academia", "Sheet", "TODOList", "BIRD"]
    assert all(name in text for name in missing)
    assert len(PROTOCOLS) - 1 + len(missing) == 15
    assert "AlfworldGym" in text
