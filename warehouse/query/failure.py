"""Where a conversation failed: its last rewarded turn, and the turn at which a better one differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warehouse.query.browse import Row, StoredConversation, shared_turns


@dataclass(frozen=True, slots=True)
class QueryFailure:
    """Where to look in a failed conversation."""

    last_rewarded: int | None
    """The last turn with a reward above 0. It is 0 if no turn has one, and None if a turn has no reward stored."""

    turns: int
    """The number of turns."""

    best: StoredConversation | None
    """The best of the conversations that were compared with it. It is None unless that one scored higher."""

    shared: int
    """The number of first turns that are identical in both."""

    @property
    def turn(self) -> int:
        """The turn to read: where the best conversation differs, else the first turn after the last reward."""
        return min((self.shared if self.best else self.last_rewarded or 0) + 1, self.turns)

    @property
    def mark(self) -> str:
        """A sentence to print before that turn; "" if it neither differs nor follows the last reward."""
        if self.best:
            return "From this turn on, the best conversation differs." if self.shared < self.turns else ""
        unrewarded = self.last_rewarded is not None and self.last_rewarded < self.turns
        return "No reward from this turn on." if unrewarded else ""

    @property
    def rewards(self) -> str:
        """A sentence about the rewards; "" if they are not known."""
        if self.last_rewarded is None:
            return ""
        if self.last_rewarded == 0:
            return "No turn earned a reward."
        if self.last_rewarded == self.turns:
            return "The last turn still earned a reward."
        return f"After turn {self.last_rewarded} no reward was earned."

    @property
    def divergence(self) -> str:
        """The end of a sentence about the best conversation: where it differs from this one."""
        return (
            "has the same turns and then continues."
            if self.shared == self.turns
            else f"diverges at turn {self.shared + 1}."
        )


def failure(row: Row, turns: Sequence[Row], members: Sequence[StoredConversation]) -> QueryFailure | None:
    """Return where the conversation failed; None if it is unfinished, successful or not scored.

    row, turns: its trajectory and its turns in order. members: the conversations to compare it with (`browse.rivals`).
    """
    if row["stop_reason"] in (None, "success") or not row["admitted"]:
        return None
    rewards = [turn["reward"] for turn in turns]
    earning = [n for n, reward in enumerate(rewards, 1) if (reward or 0.0) > 0]
    last = None if any(reward is None for reward in rewards) else (earning[-1] if earning else 0)
    better = [m for m in members if m.trajectory["admitted"] and (m.trajectory["score"] or 0.0) > (row["score"] or 0.0)]
    # Of equally good ones, the one with the most common first turns.
    best = max(better, key=lambda m: (m.trajectory["score"], shared_turns(turns, m.turns)), default=None)
    return QueryFailure(last, len(turns), best, shared_turns(turns, best.turns) if best else 0)
