"""Agreement of two readings of the same conversations: a judge and the rule judge, or two readings by the same judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

Marks = Sequence[int]


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement over pairs of readings.

    turns: number of turns. alike: turns with the same mark in both readings. both: pairs where both find a deviation.
    same_turn: pairs where both find it at the same turn. apart: mean distance in turns between the two deviations,
    None without any. only_first, only_second: pairs where only one reading finds a deviation.
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
        """Return the share of turns marked alike."""
        return self.alike / self.turns if self.turns else None


def agreement(pairs: Sequence[tuple[Marks, Marks]]) -> Agreement:
    """Compare readings pair by pair. Both readings of a pair have the same turns."""
    deviations = [(_deviation(first), _deviation(second)) for first, second in pairs]
    gaps = [abs(a - b) for a, b in deviations if a is not None and b is not None]
    return Agreement(
        conversations=len(pairs),
        turns=sum(len(first) for first, _ in pairs),
        alike=sum(a == b for first, second in pairs for a, b in zip(first, second, strict=True)),
        both=len(gaps),
        same_turn=gaps.count(0),
        apart=fmean(gaps) if gaps else None,
        only_first=sum(a is not None and b is None for a, b in deviations),
        only_second=sum(a is None and b is not None for a, b in deviations),
    )


def _deviation(marks: Marks) -> int | None:
    return next((i for i, mark in enumerate(marks) if mark == -1), None)
