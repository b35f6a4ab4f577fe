"""Which of many waiting episodes starts when a slot is free: the longest expected one.

A long conversation that starts last keeps one slot busy while all others idle. Started longest first (list scheduling, Graham
1969), conversations of different gyms end nearly together, and no gym waits for another one's end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from userrl_core.episode import Episode


class WaitingEpisodes:
    """Episodes that have not started, by gym and tier. Expectations are in turns, not seconds: with the same replies they are
    the same again, and so is the order.
    """

    def __init__(self, episodes: Sequence[Episode], horizon: int) -> None:
        self._groups: dict[tuple[str, str | None], _Group] = {}
        for episode in episodes:
            self._groups.setdefault(_key(episode), _Group(horizon)).waiting.append(episode)

    def next(self) -> Episode | None:
        """The first of those that are expected to take longest; None when all have started."""
        groups = [group for group in self._groups.values() if group.waiting]
        return max(groups, key=lambda group: group.expected).waiting.popleft() if groups else None

    def ended(self, episode: Episode) -> None:
        """Learn from how many turns one took."""
        group = self._groups[_key(episode)]
        group.turns += len(episode.trajectory.turns)
        group.ended += 1


class _Group:
    """Episodes of one gym and tier."""

    def __init__(self, horizon: int) -> None:
        self.waiting: deque[Episode] = deque()
        # As if one had taken all turns: a group that nothing is known of starts early, and is known soon.
        self.turns, self.ended = horizon, 1

    @property
    def expected(self) -> float:
        """Turns that one is expected to take."""
        return self.turns / self.ended


def _key(episode: Episode) -> tuple[str, str | None]:
    return episode.trajectory.task.gym, episode.trajectory.task.tier
