"""The offline judge of turns: it compares a conversation's writes with the gold writes (TARL section 3.2, by rules).

-1 marks the turn that led to the first deviation of a failed conversation. This is the refusal of a gold write, the
message that offered a wrong one, the wrong write itself, or the last turn that allowed a missing write. 0
marks flaws: turns that follow from the deviation, repaired deviations, format errors, failed calls, writes without a
look-up, needless handovers. 1 marks all others. data/turn-judge/README.md gives its agreement with two labellings.
"""

from __future__ import annotations

from userrl_core.gyms.solution import ReferenceSolution
from userrl_core.records import Flag, Trajectory, Turn

MALFORMED = Flag.FORMAT_ERROR | Flag.DISALLOWED | Flag.EXTRA_CALLS


def rule_scores(trajectory: Trajectory, reference: ReferenceSolution, version: int = 1) -> list[int]:
    """Return a mark per turn, [T]. version: of the rules; the second marks no deviation where the agent's part is not certain."""
    turns = trajectory.turns
    departures = reference.departures(turns)
    flawed = {turn.number for turn in turns if turn.flags & MALFORMED or turn.info.get("tool_error")}
    flawed |= {*departures, *reference.slips(turns)}
    deviation = None
    if trajectory.stop_reason != "success" and departures:
        origin = reference.origin if version == 1 else reference.source
        deviation = min((turn for turn in (origin(turns, d) for d in departures) if turn is not None), default=None)
        flawed -= {departure for departure in departures if not _acts(turns[departure - 1])}
        flawed |= set() if deviation is None else set(reference.by_products(turns, deviation))
    return [-1 if t.number == deviation else 0 if t.number in flawed else 1 for t in trajectory.turns]


def _acts(turn: Turn) -> bool:
    """Return True if the turn wrote, or could not be read. The last turn that allowed a write may be right itself."""
    return bool(turn.info.get("write")) or bool(turn.flags & MALFORMED) or bool(turn.info.get("tool_error"))
