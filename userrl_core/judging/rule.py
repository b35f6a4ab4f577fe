"""The offline judge: a conversation's writes against the gold writes, turn by turn.

-1: the first turn that departs from gold, of a conversation that failed. 0: later departures, which follow from it; departures
that were repaired, since the task was verified in the end; and turns with an error of form or a call that failed. 1: all others.
A turn that ends the conversation with an error of form while a gold write is missing is the deviation, not a flaw.
"""

from __future__ import annotations

from userrl_core.gyms.base import Grounds
from userrl_core.records import Flag, Trajectory

MALFORMED = Flag.FORMAT_ERROR | Flag.DISALLOWED | Flag.EXTRA_CALLS


def rule_scores(trajectory: Trajectory, grounds: Grounds) -> list[int]:
    """A mark per turn, [T]."""
    departures = grounds.departures(trajectory.turns)
    deviation = None if trajectory.stop_reason == "success" or not departures else departures[0]
    flawed = {turn.number for turn in trajectory.turns if turn.flags & MALFORMED or turn.info.get("tool_error")}
    flawed |= set(departures)
    return [-1 if t.number == deviation else 0 if t.number in flawed else 1 for t in trajectory.turns]
