"""Agreement of a labeller with a person: share of agreement, sensitivity, specificity and Cohen's kappa, with intervals.

Conversations about one task resemble each other, so tasks are the sample. Shares have Clopper and Pearson's limits with the
number of tasks as the number of draws, which is conservative if tasks have several labels. Kappa has percentile limits from
resampled tasks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from analysis.measure.interval import Interval, resampled


@dataclass(frozen=True, slots=True)
class LabelPair:
    """A label of the labeller and the person's label of the same turn or conversation. task: the sampled unit."""

    task: str
    label: str
    person: str


@dataclass(frozen=True, slots=True)
class LabelAgreement:
    """The agreement over all pairs. positive: the value that sensitivity and specificity are about.

    sensitivity: share of the person's positive labels that the labeller gives too. specificity: the same for all other
    labels. Both are nan without such labels, and so is kappa if both gave a single value.
    """

    pairs: int
    tasks: int
    positive: str
    agreement: Interval
    sensitivity: Interval
    specificity: Interval
    kappa: Interval


def label_agreement(pairs: Sequence[LabelPair], positive: str, level: float = 0.95) -> LabelAgreement:
    """Compare labels with a person's labels. Raises ValueError without pairs."""
    if not pairs:
        raise ValueError("Agreement needs at least one pair of labels.")
    values = sorted({pair.label for pair in pairs} | {pair.person for pair in pairs})
    tasks = sorted({pair.task for pair in pairs})
    value_index, row = {value: i for i, value in enumerate(values)}, {task: i for i, task in enumerate(tasks)}
    counts_MVV = np.zeros((len(tasks), len(values), len(values)))
    for pair in pairs:
        counts_MVV[row[pair.task], value_index[pair.label], value_index[pair.person]] += 1

    def kappa(sums: np.ndarray) -> np.ndarray:
        table = sums.reshape(*sums.shape[:-1], len(values), len(values))
        total = table.sum((-1, -2))
        observed = np.trace(table, axis1=-2, axis2=-1) / total
        expected = (table.sum(-1) * table.sum(-2)).sum(-1) / total**2
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(expected < 1, (observed - expected) / (1 - expected), np.nan)

    is_positive = np.array([value == positive for value in values])
    return LabelAgreement(
        len(pairs),
        len(tasks),
        positive,
        _share(np.array([[np.trace(table), table.sum()] for table in counts_MVV]), level),
        _share(_within(counts_MVV, is_positive), level),
        _share(_within(counts_MVV, ~is_positive), level),
        resampled(counts_MVV.reshape(len(tasks), -1), kappa, level),
    )


def _within(counts_MVV: np.ndarray, kind: np.ndarray) -> np.ndarray:
    """Return per task the pairs whose person's label is of a kind, and how many of them the labeller puts into that kind."""
    of_person = counts_MVV[:, :, kind]
    return np.stack([of_person[:, kind].sum((1, 2)), of_person.sum((1, 2))], axis=1)


def _share(hits_M2: np.ndarray, level: float) -> Interval:
    hits, of = float(hits_M2[:, 0].sum()), float(hits_M2[:, 1].sum())
    n = int((hits_M2[:, 1] > 0).sum())
    if not of:
        return Interval(math.nan, math.nan, math.nan, 0, "none")
    share, tail = hits / of, (1 - level) / 2
    k = share * n
    low = 0.0 if k <= 0 else float(stats.beta.ppf(tail, k, n - k + 1))
    high = 1.0 if k >= n else float(stats.beta.ppf(1 - tail, k + 1, n - k))
    return Interval(share, low, high, n, "Clopper-Pearson over tasks")
