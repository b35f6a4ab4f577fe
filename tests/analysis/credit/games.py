"""Games of two turns at most, enumerated exactly, and a policy that needs no model."""

from itertools import count

import numpy as np

from analysis.credit.agreement import AuditedGroup
from analysis.credit.rules import Padded
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.seeding import derive_seed


def exact_group(rewards):
    """Two that stop and two that go on, each as likely: the group is what happens, and so is either half of the ways."""
    later = [row for row in rewards if len(row) > 1]
    ways = [*(rewards * 2), *(later * 4), *(later * 4)]
    ones = [[1] * len(row) for row in ways]
    return AuditedGroup(
        trajectories=Padded.of(rewards, [[1] * len(row) for row in rewards]),
        ends=np.array([sum(row) for row in rewards]),
        at=[[0], [0], [0, 1], [0, 2]],
        starts=[0, 1, 1],
        continuations=Padded.of(ways, ones),
        way_ends=np.array([sum(row) for row in ways]).reshape(3, 8),
    )


class Demonstrators:
    """The gyms' demonstrators as a policy that takes up conversations where they stand."""

    name = "demonstrators"

    def __init__(self, skill=0.6, seed=0):
        self._policy, self._seed, self._played = ScriptedPolicy(skill), seed, count()

    async def play(self, episodes):
        for episode in episodes:
            if not episode.trajectory.messages:
                await episode.begin()
            session = self._policy.session(episode.gym, derive_seed(self._seed, next(self._played)))
            messages = episode.trajectory.messages
            for turn in episode.trajectory.turns:  # it has to hear what was said before
                await session.act(messages)
                messages = [{"role": "tool", "content": turn.observation}]
            while messages and not episode.finished:
                messages = await episode.submit(await session.act(messages))
