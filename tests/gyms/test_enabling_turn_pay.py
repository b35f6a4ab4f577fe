"""Whether the enabling turn is paid changes who earns what, and not what the reference solution earns in total."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from userrl_core.errors import ConfigError
from userrl_core.gyms import make, tasks
from userrl_core.gyms.registry import gym_class


def rewards(gym: str, options: dict[str, Any], config: dict[str, Any], n: int) -> list[tuple[str, float]]:
    """Choices and rewards of the reference solution of the n-th task."""
    task = tasks(gym, "train", **options)[n]
    played = make(gym, task, "rule", **config)
    played.reset(seed=0)

    async def play() -> list[tuple[str, float]]:
        found = []
        for call in gym_class(gym).gold(task, played.config):
            found.append((call.choice, (await played.step(call)).reward or 0.0))
        await played.aclose()
        return found

    return asyncio.run(play())


@pytest.mark.parametrize("n", range(4))
@pytest.mark.parametrize(
    ("gym", "options", "config", "choice"),
    [
        ("errand", {"depths": [1, 2, 3]}, {"questions_paid": False}, "action"),
        ("wish", {"sizes": [1, 2, 3]}, {"search_pay": 0.1}, "search"),
    ],
)
def test_the_solution_earns_the_same_in_total(
    gym: str, options: dict[str, Any], config: dict[str, Any], choice: str, n: int
) -> None:
    default, switched = (rewards(gym, options, each, n) for each in ({}, config))
    assert sum(reward for _, reward in default) == pytest.approx(1.0)
    assert sum(reward for _, reward in switched) == pytest.approx(1.0)
    paid = [sum(reward for done, reward in each if done == choice) for each in (default, switched)]
    assert (paid[0] > 0, paid[1] > 0) == ((True, False) if gym == "errand" else (False, True))


def test_a_second_search_is_not_paid() -> None:
    task = tasks("wish", "train", sizes=[1])[0]
    gym = make("wish", task, "rule", search_pay=0.1)
    gym.reset(seed=0)
    search = next(call for call in gym_class("wish").gold(task, gym.config) if call.choice == "search")

    async def twice() -> list[float | None]:
        found = [(await gym.step(search)).reward for _ in range(2)]
        await gym.aclose()
        return found

    assert asyncio.run(twice()) == [0.1, 0.0]


def test_more_than_the_whole_reward_cannot_be_shared_out() -> None:
    with pytest.raises((ConfigError, ValueError), match="more than 1 together"):
        make("wish", tasks("wish", "train", sizes=[1])[0], "rule", elicitation=0.95, search_pay=0.1)
