"""Which credit rules agree better with the utilities than others, and which cannot be told apart.

Two rules differ if the 95 % limits of the difference of their cosines exclude 0. This must hold twice, on the same side: for
the cosines as measured, and for those corrected for the noise in the rules' expected advantages. A rule with more noise has a
lower cosine, which alone is no difference. The tasks are resampled for all rules together. The limits hold jointly for all
pairs of rules: their half-width is a multiple of the pair's standard error, and in 95 % of the resamplings no pair deviates by
more than this multiple.

Array suffixes: R rules, D resamplings, M tasks, S sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from analysis.credit.agreement import Measures, corrected_of, cosine_of
from analysis.measure.interval import Interval, resampling_weights

TASKS_FROM = 30
"""Minimum tasks. With 20, one audit in ten of equal rules names a difference (data/credit/README.md)."""
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class BestRule:
    """The rule of the highest cosine against every other rule, in descending order of their cosines.

    lower: rules whose cosine is below the best one's, each with the difference, best minus rule. open: rules that cannot be
    told apart from the best one. pairs, differ: number of all pairs of rules, and of those that differ.
    """

    best: str
    lower: tuple[tuple[str, Interval], ...]
    open: tuple[tuple[str, Interval], ...]
    pairs: int
    differ: int


def told_apart(rows: Sequence[Measures], tasks_from: int = TASKS_FROM) -> BestRule | None:
    """Compare rules of one goal. Returns None for fewer than two rules with a cosine, or fewer than ``tasks_from`` tasks."""
    rows = sorted(
        (row for row in rows if np.isfinite(row.cosine.estimate)), key=lambda row: row.cosine.estimate, reverse=True
    )
    if len(rows) < 2 or len(rows[0].sums) < tasks_from:
        return None
    sums_RMS = np.stack([row.sums for row in rows])
    weights_DM = resampling_weights(sums_RMS.shape[1])
    drawn_RDS = np.einsum("dm,rms->rds", weights_DM, sums_RMS)
    whole_RS = sums_RMS.sum(axis=1)
    estimates_2R = np.stack([cosine_of(whole_RS), corrected_of(whole_RS)])
    drawn_2RD = np.stack([cosine_of(drawn_RDS), corrected_of(drawn_RDS)])
    i_P, j_P = np.triu_indices(len(rows), 1)
    gap_2P = estimates_2R[:, i_P] - estimates_2R[:, j_P]
    off_2PD = drawn_2RD[:, i_P] - drawn_2RD[:, j_P] - gap_2P[..., None]
    error_2P = off_2PD.std(axis=-1)  # nan if a value is undefined in any resampling: such a pair never differs
    known_2P = np.isfinite(error_2P) & (error_2P > 1e-9)
    if not known_2P.any():
        return None
    worst_D = (np.abs(off_2PD[known_2P]) / error_2P[known_2P][:, None]).max(axis=0)
    half_2P = float(np.quantile(worst_D, LEVEL)) * few_tasks(sums_RMS.shape[1]) * error_2P
    differ_P = (known_2P & (gap_2P - half_2P > 0)).all(axis=0) | (known_2P & (gap_2P + half_2P < 0)).all(axis=0)
    beside_best = [
        (rows[j].rule.name, _between(gap, half, len(rows[0].sums)), bool(differs))
        for i, j, gap, half, differs in zip(i_P, j_P, gap_2P[0], half_2P[0], differ_P, strict=True)
        if i == 0
    ]
    return BestRule(
        rows[0].rule.name,
        tuple((name, interval) for name, interval, differs in beside_best if differs),
        tuple((name, interval) for name, interval, differs in beside_best if not differs),
        len(i_P),
        int(differ_P.sum()),
    )


def few_tasks(tasks: int) -> float:
    """Return the factor by which Student's limits of a mean are wider than limits from resampling its values."""
    student, normal = scipy.stats.t.ppf((1 + LEVEL) / 2, tasks - 1), scipy.stats.norm.ppf((1 + LEVEL) / 2)
    return float(student / normal * np.sqrt(tasks / (tasks - 1)))


def _between(gap: float, half: float, tasks: int) -> Interval:
    return Interval(float(gap), float(gap - half), float(gap + half), tasks, "joint, tasks resampled")
