"""Choice of the waiting episode to start when a slot is free: the one with the most expected turns.

A long conversation that starts last keeps one slot busy while all others idle. Started longest first (list
scheduling, Graham 1969), conversations of different gyms end nearly together, and no gym waits for the end of
another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from userrl_core.episode import Episode


class WaitingEpisodes:
    """Episodes that have not started, by gym and tier. Expectations are in turns, not seconds, so the same replies
    give the same order again.
    """

    def __init__(self, episodes: Sequence[Episode], horizon: int) -> None:
        self._groups: dict[tuple[str, str | None], _Group] = {}
        for episode in episodes:
            self._groups.setdefault(_key(episode), _Group(horizon)).waiting.append(episode)

    def next(self) -> Episode | None:
        """Return the first episode of the group with the most expected turns; None when all have started."""
        groups = [group for group in self._groups.values() if group.waiting]
        return max(groups, key=lambda group: group.expected).waiting.popleft() if groups else None

    def ended(self, episode: Episode) -> None:
        """Update the expectation by the turns of an ended episode."""
        group = self._groups[_key(episode)]
        group.turns += len(episode.trajectory.turns)
        group.ended += 1


class _Group:
    def __init__(self, horizon: int) -> None:
        self.waiting: deque[Episode] = deque()
        # As if one had taken all turns: a group that nothing is known of starts early, and is known soon.
        self.turns, self.ended = horizon, 1

    @property
    def expected(self) -> float:
        """Return the expected turns of one episode."""
        return self.turns / self.ended


def _key(episode: Episode) -> tuple[str, str | None]:
    return episode.trajectory.task.gym, episode.trajectory.task.tier
