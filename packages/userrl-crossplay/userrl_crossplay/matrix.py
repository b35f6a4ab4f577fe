"""Generalisation across users: agents trained on one population each, evaluated on every population.

Arrays have the axes S seeds, I training populations (rows) and J evaluation populations (columns). Seeds are the unit of all
limits. Gap, regret and rank agreement follow the cross-play literature on zero-shot coordination.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from analysis.measure.interval import MIN_SEEDS, Interval, score_interval, seed_difference_interval, welch
from analysis.measure.recipes import holm

LEVEL = 0.98
"""Level of the limits of contrasts, as of claims."""


@dataclass(frozen=True, slots=True)
class MeasuredContrast:
    """One training population less another, over chosen evaluation populations.

    interval: Welch's over seeds, at 98 %. p: Welch's test. adjusted: Holm's p over all planned contrasts.
    """

    more: str
    than: str
    on: tuple[str, ...]
    interval: Interval
    p: float
    adjusted: float


@dataclass(frozen=True, slots=True)
class CrossPlayMatrix:
    """The results of a cross-play study.

    cells, gains: score and score less the cold start by (row, column). own: the column of each row's own population.
    gap: own column less the mean of the other columns. regret: the best possible row of a column less this row. The best
    row is the one trained on the column's population, or the highest one if none was. worst: each row's lowest column.
    interaction: share of the cells' variance that neither rows nor columns explain. rank_agreement: mean Kendall tau-b
    between columns, nan for fewer than two rows or constant columns.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    seeds: int
    cells: Mapping[tuple[str, str], Interval]
    gains: Mapping[tuple[str, str], Interval]
    own: Mapping[str, str]
    gap: Mapping[str, Interval]
    regret: Mapping[tuple[str, str], Interval]
    worst: Mapping[str, tuple[str, Interval]]
    interaction: float
    largest_interaction: tuple[str, str, float, float]
    """The cell with the largest interaction: row, column, size, and p by permutation of the rows within seeds."""
    rank_agreement: float
    contrasts: tuple[MeasuredContrast, ...]


def cross_play(
    scores_SIJ: np.ndarray,
    start_SJ: np.ndarray | None,
    rows: Sequence[str],
    columns: Sequence[str],
    own: Mapping[str, str],
    contrasts: Sequence[tuple[str, str]],
    on: Sequence[str],
) -> CrossPlayMatrix:
    """Measure a cross-play study. The first contrast is the primary one.

    start_SJ: scores of each seed's cold start; None leaves the gains out. own: the columns of rows that have one.
    """
    at = {name: index for index, name in enumerate(rows)}
    col = {name: index for index, name in enumerate(columns)}
    pairs = [(row, column) for row in rows for column in columns]
    cells = {(row, column): score_interval(scores_SIJ[:, at[row], col[column]]) for row, column in pairs}
    gains = (
        {}
        if start_SJ is None
        else {
            (row, column): seed_difference_interval(scores_SIJ[:, at[row], col[column]] - start_SJ[:, col[column]])
            for row, column in pairs
        }
    )
    mean_IJ = scores_SIJ.mean(axis=0)
    gap = {}
    for row, column in own.items():
        others = [index for name, index in col.items() if name != column]
        if others:
            less_S = scores_SIJ[:, at[row], col[column]] - scores_SIJ[:, at[row], others].mean(axis=1)
            gap[row] = seed_difference_interval(less_S)
    regret = {}
    for column in columns:
        trained = [row for row, its in own.items() if its == column]
        best = at[trained[0]] if trained else int(mean_IJ[:, col[column]].argmax())
        for row in rows:
            less_S = scores_SIJ[:, best, col[column]] - scores_SIJ[:, at[row], col[column]]
            regret[row, column] = seed_difference_interval(less_S)
    worst = {}
    for row in rows:
        column = columns[int(mean_IJ[at[row]].argmin())]
        worst[row] = (column, cells[row, column])
    share, largest = _interaction(scores_SIJ, rows, columns)
    return CrossPlayMatrix(
        tuple(rows),
        tuple(columns),
        len(scores_SIJ),
        cells,
        gains,
        dict(own),
        gap,
        regret,
        worst,
        share,
        largest,
        _agreement(mean_IJ),
        _contrasts(scores_SIJ[:, :, [col[name] for name in on]].mean(axis=2), at, contrasts, tuple(on)),
    )


def interaction(cells_IJ: np.ndarray) -> np.ndarray:
    """Return each cell less its row's mean, less its column's mean, plus the mean of all."""
    rows, columns = cells_IJ.mean(axis=-1, keepdims=True), cells_IJ.mean(axis=-2, keepdims=True)
    return np.asarray(cells_IJ - rows - columns + cells_IJ.mean(axis=(-2, -1), keepdims=True))


def _interaction(
    scores_SIJ: np.ndarray, rows: Sequence[str], columns: Sequence[str], draws: int = 2000
) -> tuple[float, tuple[str, str, float, float]]:
    """Return the interaction's share of the variance, and its largest cell with a permutation p."""
    mean_IJ = scores_SIJ.mean(axis=0)
    found_IJ = interaction(mean_IJ)
    total = float(((mean_IJ - mean_IJ.mean()) ** 2).sum())
    cell = np.unravel_index(int(np.abs(found_IJ).argmax()), found_IJ.shape)
    size = abs(float(found_IJ[cell]))
    rng = np.random.default_rng(0)
    order_DSI = rng.permuted(np.tile(np.arange(len(rows)), (draws, len(scores_SIJ), 1)), axis=2)
    drawn_DIJ = np.stack(
        [np.take_along_axis(scores_SIJ, order[:, :, None], axis=1).mean(axis=0) for order in order_DSI]
    )
    at_least = np.abs(interaction(drawn_DIJ)).max(axis=(1, 2)) >= size - 1e-12
    p = (1 + int(at_least.sum())) / (1 + draws)
    # Equal cells differ by rounding alone, of which any share could be interaction.
    share = float((found_IJ**2).sum()) / total if total > 1e-18 else 0.0
    return share, (rows[int(cell[0])], columns[int(cell[1])], float(found_IJ[cell]), p)


def _agreement(mean_IJ: np.ndarray) -> float:
    columns = mean_IJ.shape[1]
    if mean_IJ.shape[0] < 2 or columns < 2:
        return math.nan
    taus = [
        float(stats.kendalltau(mean_IJ[:, a], mean_IJ[:, b]).statistic)
        for a in range(columns)
        for b in range(a + 1, columns)
    ]
    defined = [tau for tau in taus if not math.isnan(tau)]
    return float(np.mean(defined)) if defined else math.nan


def _contrasts(
    scores_SI: np.ndarray, at: Mapping[str, int], pairs: Sequence[tuple[str, str]], on: tuple[str, ...]
) -> tuple[MeasuredContrast, ...]:
    results = []
    for more, than in pairs:
        a_S, b_S = scores_SI[:, at[more]], scores_SI[:, at[than]]
        if len(a_S) < MIN_SEEDS:
            interval, p = seed_difference_interval(a_S - b_S), math.nan
        else:
            interval = welch(a_S, b_S, LEVEL)
            equal = float(np.ptp(a_S)) < 1e-12 > float(np.ptp(b_S))
            p = (
                float(math.isclose(a_S.mean(), b_S.mean()))
                if equal
                else float(stats.ttest_ind(a_S, b_S, equal_var=False).pvalue)
            )
        results.append((more, than, interval, p))
    adjusted = holm([p for *_, p in results])
    return tuple(
        MeasuredContrast(more, than, on, interval, p, adjusted_p)
        for (more, than, interval, p), adjusted_p in zip(results, adjusted, strict=True)
    )
