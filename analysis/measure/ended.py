"""The outcomes of a run and of its branches in a word, for lists, which need not compute them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.measure.outcome import COLLAPSED, SHORT
from userrl_core.number_format import number

TRAINED = "RL"
"""The name of the best training checkpoint in an evaluation."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The outcome of a run or of one branch, for lists. word: the outcome, or "" if unknown. best, last: mean validation
    scores.
    """

    branch: str
    word: str
    best: float
    last: float

    @property
    def label(self) -> str:
        """The branch's name, or RL."""
        return self.branch or TRAINED


def in_a_word(run_endings: Sequence[Ended]) -> str:
    """Summarise a run's ending: its outcome or "". Branches are named, collapsed ones first with their best and last score."""
    if len(run_endings) == 1 and not run_endings[0].branch:
        return run_endings[0].word
    return ", ".join(_of_branch(ending) for ending in _collapsed_first(run_endings) if ending.word)


def in_short(run_endings: Sequence[Ended]) -> str:
    """Summarise a run's ending in the width of a column: one short word, or one for each branch if they differ."""
    words = {ending.label: SHORT[ending.word] for ending in _collapsed_first(run_endings) if ending.word}
    return next(iter(words.values()), "") if len({*words.values()}) < 2 else ", ".join(map(" ".join, words.items()))


def _collapsed_first(run_endings: Sequence[Ended]) -> list[Ended]:
    return sorted(run_endings, key=lambda ending: (ending.word != COLLAPSED, ending.branch))


def _of_branch(ending: Ended) -> str:
    fall = f" {number(ending.best, 2)} → {number(ending.last, 2)}" if ending.word == COLLAPSED else ""
    return f"{ending.label} {ending.word}{fall}"
