"""What a judge of turns needs to know of a TauGym task, and where a conversation departs from the gold writes.

A turn departs when its write succeeded and is none of the gold writes that are still open, or when a gold write could be made for
the last time at that turn and was not made. Order does not matter, arguments must be equal (5 and 5.0 are). Gold writes that
fail on replay are none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from userrl_core.gyms.tau.database import Tables
from userrl_core.gyms.tau.tools import Domain, ToolError
from userrl_core.gyms.tau.verifier import Write, exact, replay
from userrl_core.records import Turn

Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class TauGrounds:
    """Implements `gyms.base.Grounds`. gold: the gold actions, reads too. base: the records before them."""

    domain: Domain
    instruction: str
    gold: tuple[Call, ...]
    base: Tables

    @property
    def policy(self) -> str:
        """The domain's policy."""
        return self.domain.policy

    def departures(self, turns: Sequence[Turn]) -> list[int]:
        """Numbers of the turns that depart, ascending; the first is the one from which the conversation went wrong."""
        writes = [(turn.number, self.domain.read(turn.content or "")) for turn in turns if turn.info.get("write")]
        made = [call for _, call in writes]
        open_writes: dict[str, list[Write]] = {}
        for call in self._carried_out(self.gold):
            open_writes.setdefault(exact(call), []).append(call)
        found: set[int] = set()
        for number, call in writes:
            if same := open_writes.get(exact(call)):
                same.pop()
            else:
                found.add(number)
        for missing in (call for calls in open_writes.values() for call in calls):
            # None: it needs another gold write, which is missing as well.
            last = next((k for k in range(len(made), -1, -1) if self._succeeds(missing, made[:k])), None)
            if last is not None:
                found.add(writes[last][0] if last < len(writes) else turns[-1].number)
        return sorted(found)

    def departs(self, turns: Sequence[Turn], answer: str) -> bool:
        """Whether this call would be a write that succeeds and is none of the gold writes that are still open."""
        try:
            call = self.domain.read(answer)
        except ToolError:
            return False
        if call[0] not in self.domain.writes:
            return False
        made = [self.domain.read(turn.content or "") for turn in turns if turn.info.get("write")]
        still_open = Counter(map(exact, self._carried_out(self.gold))) - Counter(map(exact, made))
        return not still_open[exact(call)] and self._succeeds(call, made)

    def _succeeds(self, call: Write, after: Sequence[Write]) -> bool:
        """Whether a write can be made once these were."""
        return len(self._carried_out([*after, call])) > len(self._carried_out(after))

    def _carried_out(self, calls: Sequence[Write]) -> list[Write]:
        """Those of the calls that are writes and succeed, one after the other."""
        actions = [{"name": name, "kwargs": arguments} for name, arguments in calls]
        return replay(self.domain, actions, self.base).writes
