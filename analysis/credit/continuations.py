"""K continuations from any turn of a recorded conversation (VinePPO's estimator of a turn's value, arXiv 2410.01679).

Each begins in its own gym, in which the same turns were replayed, and draws from new generators. With the recorded seed the
rest of the conversation would be known beforehand, and the value would be a clairvoyant's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analysis.credit.replay import Setting, replay
from userrl_core.errors import GymError
from userrl_core.policies.base import BatchPolicy
from userrl_core.records import PolicyReply, Trajectory
from userrl_core.seeding import derive_seed

AT_ONCE = 1024
"""Maximum number of open conversations."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first turns of a recorded conversation. then: a reply in place of the next recorded one."""

    trajectory: Trajectory
    turns: int
    then: PolicyReply | None = None


async def continuations(
    prefixes: Sequence[Prefix],
    policy: BatchPolicy,
    k: int,
    setting: Setting,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[list[Trajectory]]:
    """Play K conversations from each prefix to the recorded horizon, including the prefix's turns. Nothing is logged.

    progress: called with the number of finished prefixes and the total. Raises GymError if a prefix cannot be replayed or a
    continuation has no score.
    """
    by_prefix: list[list[Trajectory]] = []
    batch_size = max(AT_ONCE // k, 1)
    if progress is not None:
        progress(0, len(prefixes))
    for start in range(0, len(prefixes), batch_size):
        part = prefixes[start : start + batch_size]
        episodes = []
        try:
            for offset, prefix in enumerate(part):
                for branch in range(k):
                    fresh = derive_seed("branch", seed, start + offset, branch)
                    episode = await replay(prefix.trajectory, prefix.turns, setting, fresh=fresh)
                    episodes.append(episode)
                    if prefix.then is not None:
                        await episode.submit(prefix.then)
            await policy.play([episode for episode in episodes if not episode.finished])
        finally:
            for episode in episodes:
                await episode.gym.aclose()
        played = [episode.trajectory for episode in episodes]
        for trajectory in played:
            if not trajectory.admitted:
                raise GymError(
                    "audit.too_few_scores",
                    f"A continuation of {trajectory.task.key} has no score ({trajectory.reject_reason}). Check "
                    "that its gym and user work.",
                )
        by_prefix += [played[n : n + k] for n in range(0, len(played), k)]
        if progress is not None:
            progress(min(start + batch_size, len(prefixes)), len(prefixes))
    return by_prefix
