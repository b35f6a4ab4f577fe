"""Every gym against a server on loopback with a fifth of faults: no crashed episode, no fault scored as a reward."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.gyms.test_injections import available
from tests.mock_server import FAULTS, DemonstratorAgent, MockServer, both, modest_user
from userrl_core.gyms import make, tasks
from userrl_core.policies.openai import OpenAIPolicy
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import Task, Trajectory
from userrl_core.rollout import run_episodes
from userrl_core.served.client import ChatServer, close_clients


@pytest.fixture(autouse=True)
async def _no_open_connections() -> AsyncIterator[None]:
    yield
    await close_clients()


def chosen(gym: str, count: int) -> list[Task]:
    """Tasks that open with different words, so that the mock agent can tell them apart."""
    distinct: dict[str, Task] = {}
    for task in tasks(gym, "train")[:60]:
        distinct.setdefault(make(gym, task).reset(seed=0), task)
    return list(distinct.values())[:count]


async def play(server: MockServer, found: list[Task], **settings: Any) -> list[Trajectory]:
    # Short only where some requests hang: on a busy machine a sound answer may take longer.
    limit = 1.0 if "timeout" in server.faults else 60.0
    fields = {"base_url": server.base_url, "timeout": limit, "backoff": 0.001, **settings}
    return await run_episodes(
        found, OpenAIPolicy(ChatServer(**fields)), horizon=3, user=("openai", fields), concurrency=8
    )


def told(trajectory: Trajectory) -> tuple[Any, ...]:
    return trajectory.rewards, trajectory.score, trajectory.stop_reason, [t.observation for t in trajectory.turns]


@pytest.mark.parametrize("gym", available())
async def test_a_fifth_of_faults_changes_nothing(gym: str) -> None:
    found = chosen(gym, 4)
    brain = both(DemonstratorAgent(found, skill=0.6), modest_user)
    with MockServer(brain) as calm:
        expected = await play(calm, found)
    with MockServer(brain, faults=dict.fromkeys(FAULTS, 0.2 / len(FAULTS)), seed=4) as server:
        played = await play(server, found, retries=15)
        assert server.injected
    assert all(t.admitted for t in played)
    assert [told(t) for t in played] == [told(t) for t in expected]


@pytest.mark.parametrize("gym", available())
async def test_without_retries_a_fault_is_a_null_and_never_a_zero(gym: str) -> None:
    found = chosen(gym, 8)
    brain = both(DemonstratorAgent(found, skill=0.6), modest_user)
    with MockServer(brain) as calm:
        expected = await play(calm, found)
    quick = [kind for kind in FAULTS if kind != "timeout"]
    with MockServer(brain, faults=dict.fromkeys(quick, 0.2 / len(quick)), seed=4) as server:
        played = await play(server, found, retries=0, timeout=30.0)
        faults = len(server.injected)
    rejected = [t for t in played if not t.admitted]
    # A conversation ends with its first fault; two calls at once may fail together.
    assert 0 < len(rejected) <= faults <= 2 * len(rejected)
    for t, calm_one in zip(played, expected, strict=True):
        if t.admitted:
            assert told(t) == told(calm_one)
            continue
        assert (t.score, t.return_sum, t.stop_reason) == (None, None, "error")
        assert str(t.reject_reason).startswith(("policy: ", "user: ", "judge: "))
        scored = [reward for reward in t.rewards if reward is not None]
        assert scored == calm_one.rewards[: len(scored)]
        assert all(turn.reward is None for turn in t.turns[len(scored) :])


@pytest.mark.parametrize("gym", available())
async def test_no_gym_seeds_or_draws_from_the_global_generator(gym: str) -> None:
    found = chosen(gym, 2)
    state = random.getstate()
    await run_episodes(found, ScriptedPolicy(0.5), horizon=3)
    assert random.getstate() == state
