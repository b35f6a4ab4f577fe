"""Every gym with a served agent and user at a fault rate of 20 %: no episode crashes, and no fault is scored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.mock_server import FAULTS, DemonstratorAgent, MockServer, both, modest_user
from tests.userrl_core.gyms.test_injections import gyms_with_served_user
from userrl_core.gyms import make, tasks
from userrl_core.policies.openai import OpenAIPolicy
from userrl_core.records import Task, Trajectory
from userrl_core.rollout import run_episodes
from userrl_core.served.client import ChatServer, close_clients


@pytest.fixture(autouse=True)
async def _no_open_connections() -> AsyncIterator[None]:
    yield
    await close_clients()


def distinct_tasks(gym: str, count: int) -> list[Task]:
    """Tasks with different openings, by which the mock agent identifies them."""
    by_opening: dict[str, Task] = {}
    for task in tasks(gym, "train")[:60]:
        by_opening.setdefault(make(gym, task).reset(seed=0), task)
    return list(by_opening.values())[:count]


async def play(server: MockServer, gym_tasks: list[Task], **settings: Any) -> list[Trajectory]:
    # Short only where some requests hang: on a busy machine a good answer may take longer.
    timeout = 1.0 if "timeout" in server.faults else 60.0
    fields = {"base_url": server.base_url, "timeout": timeout, "backoff": 0.001, **settings}
    return await run_episodes(
        gym_tasks, OpenAIPolicy(ChatServer(**fields)), horizon=3, user=("openai", fields), concurrency=8
    )


def outcome(trajectory: Trajectory) -> tuple[Any, ...]:
    return trajectory.rewards, trajectory.score, trajectory.stop_reason, [t.observation for t in trajectory.turns]


@pytest.mark.parametrize("gym", gyms_with_served_user())
async def test_with_retries_a_fault_rate_of_20_percent_changes_no_outcome(gym: str) -> None:
    gym_tasks = distinct_tasks(gym, 4)
    brain = both(DemonstratorAgent(gym_tasks, skill=0.6), modest_user)
    with MockServer(brain) as faultless:
        expected = await play(faultless, gym_tasks)
    with MockServer(brain, faults=dict.fromkeys(FAULTS, 0.2 / len(FAULTS)), seed=4) as server:
        trajectories = await play(server, gym_tasks, retries=15)
        assert server.injected
    assert all(t.admitted for t in trajectories)
    assert [outcome(t) for t in trajectories] == [outcome(t) for t in expected]


@pytest.mark.parametrize("gym", gyms_with_served_user())
async def test_without_retries_a_fault_gives_a_null_reward_and_never_a_zero(gym: str) -> None:
    gym_tasks = distinct_tasks(gym, 8)
    brain = both(DemonstratorAgent(gym_tasks, skill=0.6), modest_user)
    with MockServer(brain) as faultless:
        expected = await play(faultless, gym_tasks)
    quick_faults = [kind for kind in FAULTS if kind != "timeout"]
    with MockServer(brain, faults=dict.fromkeys(quick_faults, 0.2 / len(quick_faults)), seed=4) as server:
        trajectories = await play(server, gym_tasks, retries=0, timeout=30.0)
        faults = len(server.injected)
    rejected = [t for t in trajectories if not t.admitted]
    # An episode ends with its first fault; two concurrent calls may fail together.
    assert 0 < len(rejected) <= faults <= 2 * len(rejected)
    for t, expected_t in zip(trajectories, expected, strict=True):
        if t.admitted:
            assert outcome(t) == outcome(expected_t)
            continue
        assert (t.score, t.return_sum, t.stop_reason) == (None, None, "error")
        assert str(t.reject_reason).startswith(("policy: ", "user: ", "judge: "))
        scored = [reward for reward in t.rewards if reward is not None]
        assert scored == expected_t.rewards[: len(scored)]
        assert all(turn.reward is None for turn in t.turns[len(scored) :])
