"""Every gym draws from a generator of its own; the released gyms seed and use the global ones."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.gyms.local import LOCAL_GYMS
from userrl_core.gyms import tasks
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.rollout import run_episodes


def turns_of(trajectories: list) -> list:
    return [[(turn.choice, turn.content, turn.observation, turn.reward) for turn in t.turns] for t in trajectories]


@pytest.mark.parametrize("name", LOCAL_GYMS)
async def test_rollouts_neither_touch_nor_depend_on_the_global_generators(name):
    test_tasks = list(tasks(name, "test"))[:6]
    random.seed(1)
    np.random.seed(1)
    before = random.getstate(), np.random.get_state()[1].tolist()
    first = await run_episodes(test_tasks, ScriptedPolicy(0.5), horizon=12, n=2, seed=5)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
    random.seed(2)
    again = await run_episodes(test_tasks, ScriptedPolicy(0.5), horizon=12, n=2, seed=5, concurrency=1)
    assert turns_of(first) == turns_of(again)


@pytest.mark.parametrize("name", LOCAL_GYMS)
async def test_another_seed_gives_other_trajectories(name):
    test_tasks = list(tasks(name, "test"))[:6]
    first, other = [await run_episodes(test_tasks, ScriptedPolicy(0.3), horizon=12, seed=seed) for seed in (1, 2)]
    assert turns_of(first) != turns_of(other)
