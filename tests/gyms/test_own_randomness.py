"""The released gyms seeded the global generators and depended on them; ours draw from their own."""

from __future__ import annotations

import random

import numpy as np
import pytest

from userrl_core.gyms import tasks
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.rollout import run_episodes

GYMS = ("turtle", "telepathy", "search", "math", "tau")


def what_happened(trajectories: list) -> list:
    return [[(t.choice, t.content, t.observation, t.reward) for t in each.turns] for each in trajectories]


@pytest.mark.parametrize("name", GYMS)
async def test_playing_leaves_the_global_generators_alone_and_does_not_depend_on_them(name):
    some = list(tasks(name, "test"))[:6]
    random.seed(1)
    np.random.seed(1)
    before = random.getstate(), np.random.get_state()[1].tolist()
    first = await run_episodes(some, ScriptedPolicy(0.5), horizon=12, n=2, seed=5)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
    random.seed(2)
    again = await run_episodes(some, ScriptedPolicy(0.5), horizon=12, n=2, seed=5, concurrency=1)
    assert what_happened(first) == what_happened(again)


@pytest.mark.parametrize("name", GYMS)
async def test_another_seed_gives_other_attempts(name):
    some = list(tasks(name, "test"))[:6]
    one, other = [await run_episodes(some, ScriptedPolicy(0.3), horizon=12, seed=seed) for seed in (1, 2)]
    assert what_happened(one) != what_happened(other)
