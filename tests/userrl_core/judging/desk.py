"""Conversations at the bike desk whose writes are chosen by the test."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from userrl_core.episode import Episode, EpisodeRules
from userrl_core.gyms import make, tasks
from userrl_core.gyms.tau.gym import conversation
from userrl_core.interact import InteractCall, render_call
from userrl_core.judging.judge import TurnJudge
from userrl_core.records import PolicyReply, RolloutContext, Task, Trajectory
from userrl_core.rewards.judge import JudgeConfig

BY_RULE = TurnJudge(JudgeConfig(model="rule"))


def task_with(*writes: str) -> Task:
    """The first task whose gold writes are these tools."""
    from userrl_core.gyms.tau.bikes import WRITES

    return next(
        task
        for task in tasks("tau", "train")
        if tuple(a["name"] for a in task.payload["actions"] if a["name"] in WRITES) == writes
    )


def call(name: str, **arguments: Any) -> InteractCall:
    return InteractCall("answer", json.dumps({"name": name, "arguments": arguments}))


def gold(task: Task) -> list[InteractCall]:
    return list(conversation(task))


async def played(task: Task, replies: Sequence[InteractCall | str], horizon: int = 30) -> Trajectory:
    """A conversation with these calls, or with text that is none."""
    rules = EpisodeRules(horizon, on_format_error="continue")
    gym = make("tau", task, check_outputs=False)
    episode = Episode(gym, rules, context=RolloutContext(stage="rl-1", step=1, phase="train"))
    episode.start()
    for reply in replies:
        text = reply if isinstance(reply, str) else render_call(reply, "")
        if not await episode.submit(PolicyReply(text=text)):
            break
    return episode.trajectory
