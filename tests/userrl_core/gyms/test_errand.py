"""ErrandGym: chains of requests, what a turn earns, the fewest turns, the served user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.makers import raises
from tests.mock_server import Answer, Body, MockServer
from userrl_core.gyms import make, tasks
from userrl_core.gyms.errand.gym import ErrandConfig, ErrandGym
from userrl_core.gyms.errand.rule_user import RuleErrandUser
from userrl_core.interact import CHOICES, InteractCall
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import Task
from userrl_core.rollout import run_episodes
from userrl_core.served.client import close_clients

TASK = Task("errand", "t0", "train", {"chain": ["lamp", "oar", "salt"]}, tier="depth-2")


async def played(calls: Sequence[tuple[str, str]], **config: Any) -> tuple[ErrandGym, list[tuple[str, float | None]]]:
    gym: Any = make("errand", TASK, **config)
    assert gym.reset(seed=0) == "I would like to have a lamp."
    results = [await gym.step(InteractCall(*call)) for call in calls]
    return gym, [(result.observation, result.reward) for result in results]


DOWN_AND_UP = [
    ("action", "lamp"), ("action", "oar"), ("action", "salt"), ("search", "salt"), ("answer", "oar"), ("answer", "lamp"),
]  # fmt: skip


async def test_the_chain_is_asked_down_and_made_up_in_2_depth_plus_2_turns() -> None:
    gym, results = await played(DOWN_AND_UP)
    share = 0.5 / 6
    assert results == [
        ("oar", share), ("salt", share), ("raw", share), ("ok", share), ("ok", share), ("done", pytest.approx(0.5 + share)),
    ]  # fmt: skip
    assert (gym.done, gym.succeeded, gym.score()) == (True, True, 1.0)
    assert gym.min_turns(TASK, ErrandConfig()) == 6


async def test_with_terminal_reward_only_the_goal_is_paid() -> None:
    _, results = await played(DOWN_AND_UP, reward="terminal")
    assert [reward for _, reward in results] == [0.0] * 5 + [1.0]


async def test_what_is_not_known_or_not_held_is_refused_and_repeats_earn_nothing() -> None:
    gym, results = await played(
        [
            ("action", "oar"),
            ("action", "lamp"),
            ("action", "lamp"),
            ("search", "oar"),
            ("answer", "oar"),
            ("answer", "lamp"),
        ]
    )
    share = 0.5 / 6
    assert results == [("no", 0.0), ("oar", share), ("oar", 0.0), ("no", 0.0), ("no", 0.0), ("no", 0.0)]
    assert not gym.done
    assert gym.score() == 0.0


@given(st.lists(st.tuples(st.sampled_from([str(c) for c in CHOICES]), st.sampled_from(["lamp", "oar", "salt", "x"]))))
async def test_no_sequence_earns_more_than_1_and_only_the_goal_ends_it(calls: list[tuple[str, str]]) -> None:
    gym: Any = make("errand", TASK)
    gym.reset(seed=0)
    rewards = []
    for call in calls:
        if gym.done:
            break
        rewards.append((await gym.step(InteractCall(*call))).reward)
    assert sum(rewards) <= 1.0 + 1e-9
    assert gym.done == (gym.score() == 1.0) == (sum(rewards) > 0.5)


async def test_a_demonstrator_acts_at_random_beyond_its_depth() -> None:
    chosen = list(tasks("errand", "test", depths=[4]))[:20]
    trajectories = await run_episodes(
        chosen, ScriptedPolicy(1.0), horizon=10, gym_config={"errand": {"demonstrator_depth": 3}}
    )
    assert sum(t.score or 0.0 for t in trajectories) == 0.0


@pytest.mark.parametrize("depths", [[0], [9], []])
def test_a_depth_that_there_is_not_is_refused(depths: list[int]) -> None:
    with raises("task.bad_option", "depths 1 to 8"):
        tasks("errand", "train", depths=depths)


def test_useful_turns_share_at_most_the_whole_reward() -> None:
    with raises("gym.bad_option", "less than or equal to 1"):
        make("errand", TASK, shared=1.5)


async def test_a_served_user_names_the_part_or_its_answer_is_no_answer() -> None:
    def brain(body: Body) -> Answer:
        text = str(body["messages"][-1]["content"])
        return Answer("You need an oar for it." if "lamp" in text else "I forgot.")

    with MockServer(brain) as server:
        gym: Any = make("errand", TASK, ("openai", {"base_url": server.base_url, "retries": 0}))
        gym.reset(seed=0)
        first = await gym.step(InteractCall("action", "lamp"))
        with raises("user.no_reply"):
            await gym.step(InteractCall("action", "oar"))
        await close_clients()
    assert first.observation == "You need an oar for it."
    assert RuleErrandUser is not type(gym.user)
