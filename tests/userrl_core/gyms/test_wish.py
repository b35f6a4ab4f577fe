"""WishGym: what is told and when, what a search shows, what an answer gambles, users by manner."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.makers import raises
from tests.mock_server import Answer, Body, MockServer
from userrl_core.gyms import make, tasks
from userrl_core.interact import InteractCall
from userrl_core.records import Task
from userrl_core.served.client import close_clients

TASK = Task(
    "wish",
    "t0",
    "train",
    {
        "wished": {"hat": "red", "coat": "blue"},
        "best": "oak",
        "wrong": {"hat": "elm", "coat": "fig"},
        "order": ["fig", "oak", "elm"],
    },
    tier="size-2",
)


async def played(*calls: tuple[str, str], user: Any = "rule", **config: Any) -> tuple[Any, list[tuple[str, float]]]:
    gym: Any = make("wish", TASK, user, **config)
    assert gym.reset(seed=0) == "I need an outfit: hat, coat."
    results = [await gym.step(InteractCall(*call)) for call in calls]
    return gym, [(result.observation, result.reward) for result in results]


async def test_each_colour_told_takes_one_wrong_option_off_the_list_and_is_paid_once() -> None:
    gym, results = await played(
        ("search", ""), ("action", "the hat?"), ("action", "hat"), ("search", ""), ("action", "coat"), ("search", ""),
        ("answer", "oak"),
    )  # fmt: skip
    assert results == [
        ("fig,oak,elm", 0.0), ("red", 0.25), ("red", 0.0), ("fig,oak", 0.0), ("blue", 0.25), ("oak", 0.0), ("done", 0.5),
    ]  # fmt: skip
    assert (gym.succeeded, gym.score()) == (True, 1.0)


async def test_a_wrong_answer_ends_the_conversation_and_an_unreadable_one_costs_a_turn() -> None:
    gym, results = await played(("answer", "birch"), ("action", "hat or coat"), ("action", "belt"), ("answer", "elm"))
    assert results == [("bad", 0.0), ("bad", 0.0), ("any", 0.0), ("done", 0.0)]
    assert (gym.done, gym.succeeded, gym.score()) == (True, False, 0.0)


async def test_without_pay_for_elicitation_the_answer_is_all() -> None:
    _, results = await played(("action", "hat"), ("answer", "oak"), elicitation=0.0)
    assert results == [("red", 0.0), ("done", 1.0)]


async def test_every_question_costs_its_price_and_nothing_else_does() -> None:
    gym, results = await played(
        ("search", ""), ("action", "hat"), ("action", "hat"), ("action", "belt"), ("action", "?"), ("answer", "oak"),
        question_price=0.1,
    )  # fmt: skip
    assert [reward for _, reward in results] == pytest.approx([0.0, 0.15, -0.1, -0.1, -0.1, 0.5])
    assert (gym.score(), type(gym).reward_bounds(gym.config)) == (1.0, (-0.1, 0.5, 0.5))


async def test_a_second_user_tells_when_asked_again() -> None:
    _, results = await played(
        ("action", "hat"), ("action", "hat"), ("action", "coat"), user=("rule", {"manner": "second"})
    )
    assert results == [("hm", 0.0), ("red", 0.25), ("hm", 0.0)]


async def test_hesitation_is_the_tasks_own_whoever_asks() -> None:
    asks = [("action", "hat")] * 6 + [("action", "coat")] * 6
    first = await played(*asks, user=("rule", {"manner": "mute"}))
    again = await played(*asks, user=("rule", {"manner": "mute"}))
    assert first[1] == again[1]


async def test_manners_are_drawn_evenly_over_tasks_and_hesitate_as_often_as_they_say() -> None:
    chosen = list(tasks("wish", "train", sizes=[5]))[:300]
    manners = Counter(make("wish", task, ("rule", {"manner": ["plain", "vague"]})).user.manner for task in chosen)
    assert 120 < manners["plain"] < 180
    said = []
    for task in chosen:
        gym = make("wish", task, ("rule", {"manner": "mute"}))
        gym.reset(seed=0)
        said.append((await gym.step(InteractCall("action", next(iter(task.payload["wished"]))))).observation)
    assert 0.68 < sum(observation == "hm" for observation in said) / 300 < 0.82


def test_a_size_or_manner_that_there_is_not_is_refused() -> None:
    with raises("task.bad_option"):
        tasks("wish", "train", sizes=[6])
    with raises("user.bad_option"):
        make("wish", TASK, ("rule", {"manner": "loud"}))


async def test_a_served_user_tells_exactly_what_the_rule_says() -> None:
    def brain(body: Body) -> Answer:
        text = str(body["messages"][-1]["content"])
        return Answer(
            "Red, please!" if "want it in red" in text else "Blue or green." if "blue" in text else "Whatever."
        )

    with MockServer(brain) as server:
        gym: Any = make("wish", TASK, ("openai", {"base_url": server.base_url, "retries": 0}))
        gym.reset(seed=0)
        told = await gym.step(InteractCall("action", "hat"))
        other = await gym.step(InteractCall("action", "belt"))
        with raises("user.no_reply"):
            await gym.step(InteractCall("action", "coat"))
        await close_clients()
    assert (told.observation, told.reward) == ("Red, please!", 0.25)
    assert (other.observation, other.reward) == ("Whatever.", 0.0)
