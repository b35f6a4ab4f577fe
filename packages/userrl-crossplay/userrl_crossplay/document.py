"""The report of a cross-play study: the matrix with intervals, what follows from it, and the picture."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from statistics import fmean

from analysis.measure.grounded import AREA_TO
from analysis.measure.interval import MIN_SEEDS, Interval
from curricula.claims.cross_play import CrossPlay
from userrl.reports import figures
from userrl.reports.document import Block, Code, Document, Figure, Heading, Items, Line, TableBlock, Text
from userrl_core.number_format import NULL, number, p_value, with_limits
from userrl_crossplay.matrix import MeasuredContrast
from userrl_crossplay.report import CellMeasures, CrossPlayReport


def cross_play_document(report: CrossPlayReport) -> Document:
    """Return the study's page."""
    return Document(f"Cross-play {report.study.name}", tuple(_blocks(report)))


def cross_play_picture(report: CrossPlayReport) -> str:
    """Return the matrix as SVG: scores less the cold start, or less the mean of all cells without one."""
    matrix = report.matrix
    mean = sum(cell.estimate for cell in matrix.cells.values()) / len(matrix.cells)
    scores = matrix.gains or matrix.cells
    off = 0.0 if matrix.gains else mean
    cells = [
        [
            (scores[row, column].estimate - off, _cell(scores[row, column], sign=bool(matrix.gains)))
            for column in matrix.columns
        ]
        for row in matrix.rows
    ]
    less = "score less the cold start" if matrix.gains else "score"
    over = f"95 % over {matrix.seeds} seeds" if matrix.seeds >= MIN_SEEDS else f"means of {matrix.seeds} seeds"
    title = f"evaluated with; rows: trained with. {less}, {over}"
    return figures.matrix(matrix.rows, matrix.columns, cells, title=title)


def _blocks(report: CrossPlayReport) -> Iterator[Block]:
    study, matrix = report.study, report.matrix
    yield Text(study.text)
    state = f"{matrix.seeds} of {study.seeds} seeds" + (
        "" if report.complete else "; no verdict before all are finished"
    )
    yield Text(f"Hash {report.hash}, {state}." + (f" Exploratory: {report.exploratory}." if report.exploratory else ""))
    if report.differing:
        yield Text(
            f"The evaluations do not differ in their users alone ({', '.join(report.differing)}), so differences between cells may "
            "come from it. userrl protocol RUN --against RUN has the values.",
            strong=True,
        )
    yield from _contrasts(report)
    yield Figure(partial(cross_play_picture, report), "Each agent with each population of users.")
    yield Heading("Scores")
    rows: list[tuple[Line, ...]] = [
        (Code(row), *(with_limits(matrix.cells[row, column]) for column in matrix.columns)) for row in matrix.rows
    ]
    if report.start:
        rows.append(("cold start", *(with_limits(report.start[column]) for column in matrix.columns)))
    roles = [f"{column} ({role})" if (role := _role(study, column)) else column for column in matrix.columns]
    yield TableBlock(("trained with", *roles), tuple(rows), _over_seeds(report))
    if matrix.gains:
        gains: list[tuple[Line, ...]] = [
            (Code(row), *(with_limits(matrix.gains[row, column], sign=True) for column in matrix.columns))
            for row in matrix.rows
        ]
        yield TableBlock(("trained with", *matrix.columns), tuple(gains), "Score less the seed's cold start.")
    yield _summary(report)
    yield Items(tuple(_sentences(report)))
    yield from _measures(report)
    yield from _curves(report)


def _over_seeds(report: CrossPlayReport) -> str:
    few = report.matrix.seeds < MIN_SEEDS
    return "Score of each seed; too few seeds for limits." if few else "Mean score; 95 % limits over seeds."


def _contrasts(report: CrossPlayReport) -> Iterator[Block]:
    lines = []
    for index, contrast in enumerate(report.matrix.contrasts):
        lines.append(_contrast(contrast, primary=index == 0))
    yield Items(tuple(lines))
    if report.over_users is not None:
        first = report.matrix.contrasts[0]
        yield Text(
            f"{first.more} − {first.than} with seeds and users resampled together: "
            f"{with_limits(report.over_users, sign=True)} (98 %)."
        )


def _contrast(contrast: MeasuredContrast, *, primary: bool) -> Line:
    name = "Primary contrast: " if primary else ""
    test = (
        f" (98 %, Welch over seeds; p {p_value(contrast.p)}, Holm {p_value(contrast.adjusted)})."
        if not contrast.interval.values
        else " by seed: too few seeds for limits."
    )
    return (
        name,
        Code(contrast.more),
        " − ",
        Code(contrast.than),
        f" on {', '.join(contrast.on)}: {with_limits(contrast.interval, sign=True)}{test}",
    )


def _summary(report: CrossPlayReport) -> TableBlock:
    matrix = report.matrix
    rows = []
    for row in matrix.rows:
        column, score = matrix.worst[row]
        user = report.worst_users[row]
        regrets = [matrix.regret[row, name] for name in matrix.columns]
        mean, largest = fmean(regret.estimate for regret in regrets), max(regrets, key=lambda regret: regret.estimate)
        rows.append(
            (
                Code(row),
                with_limits(matrix.gap[row], sign=True) if row in matrix.gap else NULL,
                f"{number(mean)}, at most {with_limits(largest)}",
                f"{column}: {with_limits(score)}",
                f"{user[0]} {user[1]}: {number(user[2])}" if user else NULL,
            )
        )
    return TableBlock(
        ("trained with", "gap", "regret", "worst population", "worst user"),
        tuple(rows),
        "Gap: score with the own population less the mean of the others. Regret: score below the agent trained on the "
        "column's population, or below the best agent if none was; the mean over columns and the largest. The best agent, the "
        "largest regret, and the worst population and user are chosen from the same scores, so they look more extreme than "
        "they are.",
    )


def _sentences(report: CrossPlayReport) -> Iterator[Line]:
    matrix = report.matrix
    row, column, size, p = matrix.largest_interaction
    yield (
        f"Interaction: {matrix.interaction:.0%} of the variance between cells depends on who trained with whom. Largest "
        f"cell: {row} with {column}, {number(size, sign=True)} (p {p_value(p)}, rows permuted within seeds)."
    )
    yield f"Rank agreement of the columns (mean Kendall tau-b): {number(matrix.rank_agreement, 2)}."


def _measures(report: CrossPlayReport) -> Iterator[Block]:
    names = tuple(name for name in CellMeasures.__slots__ if name != "compliance" or _complied(report))
    rows: tuple[tuple[Line, ...], ...] = tuple(
        (
            Code(row),
            column,
            *(number(getattr(cell, name), 3 if name not in ("questions", "turns") else 1) for name in names),
        )
        for (row, column), cell in report.measures.items()
    )
    yield Heading("Measures")
    yield TableBlock(
        ("trained with", "evaluated with", *names),
        rows,
        "Means over seeds, without limits. Grounded: right after everything needed was told. Lucky: right with something "
        "untold. Early: answered with something untold.",
    )


def _complied(report: CrossPlayReport) -> bool:
    return any(cell.compliance is not None for cell in report.measures.values())


def _curves(report: CrossPlayReport) -> Iterator[Block]:
    if not report.curves:
        return
    first = next(iter(report.curves.values()))
    lines = [
        figures.Line(row, list(zip(curve.questions, curve.grounded, strict=True)), markers=True)
        for row, curve in report.curves.items()
    ]
    oracle = figures.Line("oracle", list(zip(first.oracle_questions, first.oracle, strict=True)), markers=True)
    panel = figures.Panel("grounded success by questions asked", [*lines, oracle], x="questions")
    yield Heading("Grounded answers")
    yield Figure(
        partial(figures.panels, [panel]),
        f"One point per turn budget ({first.budgets[0]} to {first.budgets[-1]} turns), over all populations.",
    )
    rows = tuple(
        (
            Code(row),
            number(curve.grounded[-1]),
            number(curve.lucky[-1]),
            number(curve.questions[-1], 1),
            number(curve.area),
            number(curve.between),
        )
        for row, curve in report.curves.items()
    )
    yield TableBlock(
        ("trained with", "grounded", "lucky", "questions", "area", "below the oracle"),
        rows,
        f"Area: under grounded success against questions, up to {AREA_TO:g} questions, divided by {AREA_TO:g}; the oracle's is "
        f"{number(first.oracle_area)}. The oracle asks once for each fact, searches and answers.",
    )


def _role(study: CrossPlay, column: str) -> str:
    shifted, unseen = column in study.shifted, column in study.unseen
    return " and ".join([*(["shifted"] if shifted else []), *(["unseen trait"] if unseen else [])])


def _cell(interval: Interval, *, sign: bool) -> str:
    value = number(interval.estimate, 2, sign=sign)
    return (
        value
        if interval.values
        else f"{value}\n[{number(interval.low, 2, sign=sign)}, {number(interval.high, 2, sign=sign)}]"
    )
