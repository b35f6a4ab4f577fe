"""The order in which waiting episodes start."""

from __future__ import annotations

import asyncio
from typing import Any

from userrl_core.gyms import tasks
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.rollout import run_episodes

SHORT = list(tasks("errand", "train", depths=[1]))[:20]
LONG = list(tasks("errand", "train", depths=[6]))[:6]


class SlowPolicy(ScriptedPolicy):
    """The demonstrator, a step of the event loop a turn; notes which tasks start."""

    def __init__(self) -> None:
        super().__init__(1.0)
        self.started: list[str | None] = []

    def session(self, gym: Any, seed: int) -> Any:
        self.started.append(gym.task.tier)
        inner = super().session(gym, seed)

        class Slow:
            async def act(self, new: Any) -> Any:
                await asyncio.sleep(0)
                return await inner.act(new)

        return Slow()


async def test_long_conversations_that_come_last_in_the_list_start_before_short_ones_that_wait() -> None:
    policy = SlowPolicy()
    played = await run_episodes([*SHORT, *LONG], policy, horizon=20, concurrency=2)
    assert [t.task.key for t in played] == [task.key for task in (*SHORT, *LONG)]
    assert all(t.stop_reason == "success" for t in played)
    last_long = max(number for number, tier in enumerate(policy.started) if tier == "depth-6")
    # At first nothing is known of either; once one of the short ones has ended, all long ones start.
    assert last_long < 12


async def test_every_gym_has_as_many_attempts_as_it_was_given() -> None:
    mixed = [*SHORT[:2], *list(tasks("wish", "train"))[:2]]
    played = await run_episodes(mixed, ScriptedPolicy(), horizon=8, n={"errand": 1, "wish": 3})
    assert [(t.task.gym, t.attempt) for t in played] == [
        ("errand", 0), ("errand", 0), ("wish", 0), ("wish", 1), ("wish", 2), ("wish", 0), ("wish", 1), ("wish", 2),
    ]  # fmt: skip
