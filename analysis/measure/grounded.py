"""Grounded answers: a right answer after everything needed was told, and its price in questions.

One greedy evaluation at a long horizon gives the curves at every number of turns, because the agent does not see how many
turns are left. A conversation counts at a turn budget if it answered within the budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.measure.interval import Interval, resampled

BUDGETS = tuple(range(3, 29))
"""Turn budgets of the curves."""

AREA_TO = 16.0
"""Largest number of questions in the area under a curve."""


@dataclass(frozen=True, slots=True)
class Answered:
    """One conversation.

    turn: the turn of the answer, None without one. grounded: right, and all facts were told. lucky: right with fewer facts.
    question_turns: the turns that asked the user. needed: the facts of the task. fewest: turns of an agent that asks for each fact
    once; None: one for each fact, a search and an answer.
    """

    turn: int | None
    grounded: bool
    lucky: bool
    question_turns: tuple[int, ...]
    needed: int
    fewest: int | None = None

    @property
    def oracle_turns(self) -> int:
        """Return the turns of the oracle."""
        return self.needed + 2 if self.fewest is None else self.fewest


@dataclass(frozen=True, slots=True)
class GroundedCurve:
    """Grounded and lucky success, and mean questions, at each turn budget.

    oracle_questions, oracle: the curve of an agent that asks for each fact once, searches and answers. area, oracle_area: areas
    under grounded success against questions, divided by the range of questions. between: oracle_area less area.
    """

    budgets: tuple[int, ...]
    grounded: tuple[float, ...]
    lucky: tuple[float, ...]
    questions: tuple[float, ...]
    oracle: tuple[float, ...]
    oracle_questions: tuple[float, ...]
    area: float
    oracle_area: float

    @property
    def between(self) -> float:
        """Return the area between the oracle's curve and this one."""
        return self.oracle_area - self.area


@dataclass(frozen=True, slots=True)
class CurveIntervals:
    """Mean questions at the largest budget, the area under the curve, and the area between the oracle's curve and it."""

    questions: Interval
    area: Interval
    between: Interval


def grounded_curve(conversations: Sequence[Answered], budgets: Sequence[int] = BUDGETS) -> GroundedCurve:
    """Measure the curves of one agent. Raises ValueError without conversations."""
    if not conversations:
        raise ValueError("A curve needs at least one conversation.")
    grounded, lucky, questions, oracle, oracle_questions = [], [], [], [], []
    for budget in budgets:
        done = [conversation.turn is not None and conversation.turn <= budget for conversation in conversations]
        grounded.append(
            _mean(conversation.grounded and within for conversation, within in zip(conversations, done, strict=True))
        )
        lucky.append(
            _mean(conversation.lucky and within for conversation, within in zip(conversations, done, strict=True))
        )
        questions.append(
            _mean(sum(turn <= budget for turn in conversation.question_turns) for conversation in conversations)
        )
        oracle.append(_mean(conversation.oracle_turns <= budget for conversation in conversations))
        oracle_questions.append(_mean(min(conversation.needed, budget) for conversation in conversations))
    return GroundedCurve(
        tuple(budgets),
        tuple(grounded),
        tuple(lucky),
        tuple(questions),
        tuple(oracle),
        tuple(oracle_questions),
        area_under(questions, grounded),
        area_under(oracle_questions, oracle),
    )


def curve_intervals(by_task: Sequence[Sequence[Answered]], budgets: Sequence[int] = BUDGETS) -> CurveIntervals:
    """Return limits of the curve's numbers from resampled tasks. The attempts at a task stay together.

    S sums: conversations, then questions, grounded success, and both of the oracle, at each of B budgets.
    """
    curves = [[grounded_curve([attempt], budgets) for attempt in attempts] for attempts in by_task]
    sums_MS = np.array(
        [
            np.sum([[1.0, *c.questions, *c.grounded, *c.oracle_questions, *c.oracle] for c in task_curves], axis=0)
            for task_curves in curves
        ]
    )

    def means(sums_DS: np.ndarray) -> np.ndarray:
        means_D4B: np.ndarray = (sums_DS[..., 1:] / sums_DS[..., :1]).reshape(*sums_DS.shape[:-1], 4, -1)
        return means_D4B

    def area(sums_DS: np.ndarray, oracle: int) -> np.ndarray:
        means_D4B = means(np.atleast_2d(sums_DS))
        areas_D = np.array([area_under(curve[2 * oracle], curve[2 * oracle + 1]) for curve in means_D4B])
        return areas_D if sums_DS.ndim > 1 else areas_D[0]

    return CurveIntervals(
        resampled(sums_MS, lambda sums: means(sums)[..., 0, -1]),
        resampled(sums_MS, lambda sums: area(sums, 0)),
        resampled(sums_MS, lambda sums: area(sums, 1) - area(sums, 0)),
    )


def area_under(questions: Sequence[float], success: Sequence[float], to: float = AREA_TO) -> float:
    """Return the area under success against questions from 0 to ``to``, divided by ``to``.

    The curve is a step: success at q questions is the highest success that costs at most q.
    """
    points = sorted(zip(questions, success, strict=True))
    area, height, last = 0.0, 0.0, 0.0
    for at, value in points:
        question_count = min(at, to)
        area += height * (question_count - last)
        height, last = max(height, value) if at <= to else height, question_count
    return (area + height * (to - last)) / to


def band(difference_SB: np.ndarray, level: float = 0.98, draws: int = 10_000) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper ends of a band around the mean difference of two curves, each of shape [B budgets].

    difference_SB: differences of S seeds at B turn budgets. The band holds at all budgets together: seeds are resampled and
    the largest deviation in standard errors is taken (max-t). Budgets without any variance have the mean as both ends.
    """
    seeds = len(difference_SB)
    mean_B, error_B = difference_SB.mean(axis=0), difference_SB.std(axis=0, ddof=1) / np.sqrt(seeds)
    varies_B = error_B > 1e-12
    if not varies_B.any():
        return mean_B, mean_B
    weights_DS = np.random.default_rng(0).multinomial(seeds, np.full(seeds, 1 / seeds), size=draws) / seeds
    largest_D = np.abs((weights_DS @ difference_SB - mean_B)[:, varies_B] / error_B[varies_B]).max(axis=1)
    half_B = np.quantile(largest_D, level) * np.where(varies_B, error_B, 0.0)
    return mean_B - half_B, mean_B + half_B


def _mean(values: Iterable[float]) -> float:
    return float(np.mean([float(value) for value in values]))
