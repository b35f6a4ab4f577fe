"""How far two readings of the same conversations agree: a judge's with the rule judge's, or with its own second one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

Marks = Sequence[int]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Over pairs of readings.

    turns, alike: turns, and those that both mark the same. both: pairs in which both find a deviation; same_turn: at the same
    turn; apart: mean distance in turns of the two, None without any. only_first, only_second: pairs in which one alone finds one.
    """

    conversations: int
    turns: int
    alike: int
    both: int
    same_turn: int
    apart: float | None
    only_first: int
    only_second: int

    @property
    def share(self) -> float | None:
        """Share of turns marked alike."""
        return self.alike / self.turns if self.turns else None


def agreement(pairs: Sequence[tuple[Marks, Marks]]) -> Agreement:
    """Compare readings pair by pair; those of a pair have the same turns."""
    placed = [(_deviation(first), _deviation(second)) for first, second in pairs]
    gaps = [abs(a - b) for a, b in placed if a is not None and b is not None]
    return Agreement(
        conversations=len(pairs),
        turns=sum(len(first) for first, _ in pairs),
        alike=sum(a == b for first, second in pairs for a, b in zip(first, second, strict=True)),
        both=len(gaps),
        same_turn=gaps.count(0),
        apart=fmean(gaps) if gaps else None,
        only_first=sum(a is not None and b is None for a, b in placed),
        only_second=sum(a is None and b is not None for a, b in placed),
    )


def _deviation(marks: Marks) -> int | None:
    return next((i for i, mark in enumerate(marks) if mark == -1), None)
