"""What an episode used is freed at its end, not when the garbage collector comes by."""

from __future__ import annotations

import gc
import random
import weakref

import pytest

from tests.gyms.local import LOCAL_GYMS
from userrl_core.gyms import make, tasks
from userrl_core.gyms.registry import demonstrator_class


@pytest.mark.parametrize("name", LOCAL_GYMS)
async def test_an_episode_leaves_nothing_for_the_garbage_collector(name: str) -> None:
    task = next(iter(tasks(name, "test")))
    gym = make(name, task)
    said = gym.reset(seed=1)
    guide = demonstrator_class(name)(task, random.Random(1), 0.5, gym.config)
    while not gym.done and gym.turns < 6:
        said = (await gym.step(guide.act(said))).observation
    await gym.aclose()
    left = weakref.ref(gym)
    gc.disable()
    try:
        del gym, guide
        assert left() is None
    finally:
        gc.enable()
