"""The outcome of training in words, by one rule for reports, lists and pages.

Two paired differences over the same tasks decide: the last step minus the cold start, and the last step minus the best
checkpoint. Each has a 95 % interval. A collapse is decided earlier, by `analysis.measure.collapse_rule`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from userrl_core.number_format import Limits, number

if TYPE_CHECKING:
    from analysis.measure.interval import Interval

TRAINED = "RL"
"""The name of the best training checkpoint in an evaluation."""

Outcome = Literal[
    "improved on the cold start",
    "no better than the cold start",
    "worse than its best",
    "collapsed",
    "did not collapse",
]
"""``did not collapse``: the cold start was not measured."""

IMPROVED: Outcome = "improved on the cold start"
NO_BETTER: Outcome = "no better than the cold start"
WORSE: Outcome = "worse than its best"
COLLAPSED: Outcome = "collapsed"
NOT_COLLAPSED: Outcome = "did not collapse"

ALIASES: dict[str, Outcome] = {"held": NOT_COLLAPSED, "collapsed": COLLAPSED}
"""Outcomes as run_endings and stored claims name them. The rule of that time did not look at the cold start."""

SHORT: dict[str, str] = {
    IMPROVED: "improved",
    NO_BETTER: "no better",
    WORSE: "worse",
    COLLAPSED: "collapsed",
    NOT_COLLAPSED: "not collapsed",
}
"""Outcomes in the width of a column."""


def outcome(gain: Interval | None, change: Interval | None, *, collapsed: bool) -> Outcome:
    """Return the outcome of a run or branch.

    gain: the last step minus the cold start, None if the cold start was not measured. change: the last step minus the
    best checkpoint, None if they are the same checkpoint. A loss is named before a gain.
    """
    if collapsed:
        return COLLAPSED
    if change is not None and change.high < 0:
        return WORSE
    if gain is None:
        return NOT_COLLAPSED
    return IMPROVED if gain.low > 0 else NO_BETTER


def read_outcome(stored_name: str | None) -> Outcome | None:
    """Return the outcome for a stored word of this or an earlier version, or None for an unknown word."""
    outcome_name = ALIASES.get(stored_name or "", stored_name)
    return outcome_name if outcome_name in get_args(Outcome) else None  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Ended:
    """The outcome of a run or of one branch, for lists. word: the outcome, or "" if unknown. best, last: mean validation
    scores. gain: last − start, paired by task, None if one of them was not measured.
    """

    branch: str
    word: str
    best: float
    last: float
    gain: Limits | None = field(default=None, kw_only=True)

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
    by_branch = {ending.label: SHORT[ending.word] for ending in _collapsed_first(run_endings) if ending.word}
    return (
        next(iter(by_branch.values()), "")
        if len({*by_branch.values()}) < 2
        else ", ".join(map(" ".join, by_branch.items()))
    )


def _collapsed_first(run_endings: Sequence[Ended]) -> list[Ended]:
    return sorted(run_endings, key=lambda ending: (ending.word != COLLAPSED, ending.branch))


def _of_branch(ending: Ended) -> str:
    fall = f" {number(ending.best, 2)} → {number(ending.last, 2)}" if ending.word == COLLAPSED else ""
    return f"{ending.label} {ending.word}{fall}"
