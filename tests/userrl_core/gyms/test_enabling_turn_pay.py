"""Whether the enabling turn is paid changes who earns what, and not what the reference solution earns in total."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from userrl_core.errors import ConfigError
from userrl_core.gyms import make, tasks
from userrl_core.gyms.registry import gym_class
from userrl_core.gyms.textcraft.demonstrator import TextCraftDemonstrator
from userrl_core.gyms.textcraft.gym import TextCraftConfig
from userrl_core.interact import InteractCall
from userrl_core.records import Task

TINY_TRAVEL = {"search_reward": 0.1, "best_reward": 0.7}
TINY_SHOP = {"domain": "outfitter", "tier": "tiny", "sizes": [1, 2]}
UNPAID = {"shared": 0.5, "lookups_paid": False}
FAMILIES: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ("errand", {"depths": [1, 2, 3]}, {}, {"questions_paid": False}),
    ("errand", {"depths": [1, 2, 3]}, {"questions_paid": 0.03}, {"questions_paid": 0}),
    ("wish", {"sizes": [1, 2, 3]}, {"search_pay": 0.1}, {}),
    ("travel", {"tier": "tiny"}, TINY_TRAVEL, {}),
    ("textcraft", {"tier": "tiny", "depths": [1, 2, 3]}, {"shared": 0.5}, UNPAID),
    ("tau", TINY_SHOP, {"shared": 0.5}, UNPAID),
    ("searchqa", {"tier": "tiny"}, {"search_pay": 0.1}, {}),
]
"""Family, options of its tasks, and its settings with the enabling turn paid and unpaid, as in lab/studies/what_collapses.yaml."""


def solution(gym: str, task: Task) -> list[InteractCall]:
    """Return the reference solution."""
    kind: Any = gym_class(gym)
    return list(kind.gold(task, make(gym, task, "rule").config))


def enables(gym: str, choice: str, content: str) -> bool:
    """Return whether a call of the reference solution is the family's enabling turn."""
    if gym == "tau":
        return content.startswith("look ")
    return choice == ("action" if gym == "errand" else "search")


def rewards_of(gym: str, task: Task, calls: Sequence[InteractCall], config: dict[str, Any]) -> list[float]:
    """Return the reward of every turn of a conversation that ends with a full score."""
    played = make(gym, task, "rule", **config)
    played.reset(seed=0)

    async def play() -> list[float]:
        found = [(await played.step(call)).reward or 0.0 for call in calls]
        assert played.succeeded
        assert played.score() == pytest.approx(1.0)
        await played.aclose()
        return found

    return asyncio.run(play())


@pytest.mark.parametrize("n", range(4))
@pytest.mark.parametrize(("gym", "options", "paid", "unpaid"), FAMILIES)
def test_the_solution_earns_the_same_in_total_and_the_switch_moves_the_enabling_pay(
    gym: str, options: dict[str, Any], paid: dict[str, Any], unpaid: dict[str, Any], n: int
) -> None:
    task = tasks(gym, "train", **options)[n]
    calls = solution(gym, task)
    default, with_pay, without = (rewards_of(gym, task, calls, each) for each in ({}, paid, unpaid))
    assert [sum(each) for each in (default, with_pay, without)] == [pytest.approx(1.0)] * 3
    enabling = [enables(gym, call.choice, call.content) for call in calls]
    if gym != "textcraft":  # its reference solution knows the recipes and looks nothing up
        assert all(reward > 0 for reward, is_enabling in zip(with_pay, enabling, strict=True) if is_enabling)
        assert not any(reward for reward, is_enabling in zip(without, enabling, strict=True) if is_enabling)
        assert any(enabling)


@pytest.mark.parametrize("n", range(4))
def test_trial_and_error_in_textcraft_earns_the_same_in_total(n: int) -> None:
    task = tasks("textcraft", "train", tier="tiny", depths=[2])[n]
    calls = trial(task)
    without, with_pay, default = (rewards_of("textcraft", task, calls, each) for each in (UNPAID, {"shared": 0.5}, {}))
    assert [sum(each) for each in (without, with_pay, default)] == [pytest.approx(1.0)] * 3
    assert default == [0.0] * (len(calls) - 1) + [1.0]
    assert without[0] == 0.0 < with_pay[0]  # the goal is tried first, and the answer names a part
    assert min(with_pay) > 0
    assert sum(with_pay[:-1]) == pytest.approx(0.5)
    assert sum(reward == 0.0 for reward in without) == len(calls) // 2


def trial(task: Task) -> list[InteractCall]:
    """Return trial and error without a wasted turn: try the goal, get what is missing."""
    gym = make("textcraft", task, "rule")
    player = TextCraftDemonstrator(task, random.Random(0), 1.0, TextCraftConfig(demonstrator="trial"))
    observation = gym.reset(seed=0)
    calls: list[InteractCall] = []
    while not gym.done:
        calls.append(player.act(observation))
        observation = asyncio.run(gym.step(calls[-1])).observation
    return calls


@pytest.mark.parametrize(
    ("gym", "options", "config"),
    [
        ("textcraft", {"tier": "tiny", "depths": [1]}, {"shared": 0.5}),
        ("searchqa", {"tier": "tiny"}, {"search_pay": 0.1}),
        ("tau", TINY_SHOP, {"shared": 0.5}),
    ],
)
def test_a_useful_turn_is_paid_once(gym: str, options: dict[str, Any], config: dict[str, Any]) -> None:
    task = tasks(gym, "train", **options)[0]
    first = solution(gym, task)[0]
    played = make(gym, task, "rule", **config)
    played.reset(seed=0)
    one, two = (asyncio.run(played.step(first)).reward or 0.0 for _ in range(2))
    assert one > 0.0 == two


def test_a_look_at_a_settled_item_is_not_paid() -> None:
    task = tasks("tau", "train", **TINY_SHOP)[0]
    ask, look, settle = solution("tau", task)[:3]
    played = make("tau", task, "rule", shared=0.6)
    played.reset(seed=0)
    found = [asyncio.run(played.step(call)).reward for call in (ask, settle, look)]
    assert found == [pytest.approx(0.2), pytest.approx(0.2), 0.0]


def test_a_wrong_answer_after_paid_searches_scores_nothing() -> None:
    task = tasks("searchqa", "train", tier="tiny")[0]
    played = make("searchqa", task, "rule", search_pay=0.1)
    played.reset(seed=0)
    search = solution("searchqa", task)[0]
    assert asyncio.run(played.step(search)).reward
    last = asyncio.run(played.step(InteractCall("answer", "nothing")))
    assert (last.reward, played.score(), played.succeeded) == (0.0, 0.0, False)


def test_a_second_search_is_not_paid() -> None:
    task = tasks("wish", "train", sizes=[1])[0]
    gym = make("wish", task, "rule", search_pay=0.1)
    gym.reset(seed=0)
    search = next(call for call in solution("wish", task) if call.choice == "search")

    async def twice() -> list[float | None]:
        found = [(await gym.step(search)).reward for _ in range(2)]
        await gym.aclose()
        return found

    assert asyncio.run(twice()) == [0.1, 0.0]


def test_more_than_the_whole_reward_cannot_be_shared_out() -> None:
    with pytest.raises((ConfigError, ValueError), match="more than 1 together"):
        make("wish", tasks("wish", "train", sizes=[1])[0], "rule", elicitation=0.95, search_pay=0.1)


def test_a_number_is_the_total_reward_of_the_questions() -> None:
    task = tasks("errand", "train", depths=[2])[0]
    rewards = rewards_of("errand", task, solution("errand", task), {"questions_paid": 0.3, "shared": 0.5})
    assert rewards == pytest.approx([0.1, 0.1, 0.1, 0.2 / 3, 0.2 / 3, 0.5 + 0.2 / 3])
    assert rewards_of("errand", task, solution("errand", task), {"questions_paid": 0.25}) == rewards_of(
        "errand", task, solution("errand", task), {}
    )


def test_a_text_is_true_or_false_as_before() -> None:
    task = tasks("errand", "train", depths=[1])[0]
    calls = solution("errand", task)
    assert rewards_of("errand", task, calls, {"questions_paid": "true"}) == rewards_of("errand", task, calls, {})


@pytest.mark.parametrize("pay", [-0.1, 0.6])
def test_questions_are_paid_at_most_what_is_shared(pay: float) -> None:
    with pytest.raises((ConfigError, ValueError), match="from 0 to shared"):
        make("errand", tasks("errand", "train", depths=[1])[0], "rule", questions_paid=pay)
