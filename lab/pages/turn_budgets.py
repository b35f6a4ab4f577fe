"""Tables and picture of data/turn-budgets: one agent for every budget of turns, beside the specialists of each budget.

python -m lab.pages.turn_budgets
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from analysis.measure.interval import Interval
from lab.pages.paired import Rows, cells, difference, line, mean_of, mean_text, read_study, rewrite, together, with_runs
from userrl.reports.figures import Panel
from userrl_core.number_format import NULL, with_limits

ERROR = "error of thresholding"
"""How wrong it is to threshold conversations of the largest budget at fewer turns: that score less the score."""
Played = Mapping[tuple[str, str, int], Mapping[int, float]]
"""A measure by family, arm and budget, then by seed."""


def main() -> None:
    """Write the tables and the picture."""
    plan, rows, folder = read_study("turn_budgets")
    rewrite(folder, "turn_budgets", list(tables(plan, rows)), list(drawn(plan, rows)))


def played(rows: Rows, measure: str) -> Played:
    """Return a column of all runs that have it, or the error of thresholding."""
    values: dict[tuple[str, str, int], dict[int, float]] = {}
    for row in rows:
        value = row["thresholded"] - row["score"] if measure == ERROR else row[measure]
        if value is not None:
            values.setdefault((row["family"], row["arm"], row["budget"]), {})[row["seed"]] = value
    return values


def specialists(plan: Mapping[str, Any]) -> dict[int, str]:
    """Return the arm that was trained at each budget, for the budgets that have one."""
    return {budget: f"turns-{budget}" for budget in plan["turn_budgets"] if f"turns-{budget}" in plan["arms"]}


def below(plan: Mapping[str, Any], scores: Played, families: Sequence[str], arm: str) -> Interval | None:
    """Return an arm's score less the specialist's, each at the specialist's budget: the mean over budgets and families by seed."""
    at = [(family, budget, special) for family in families for budget, special in specialists(plan).items()]
    return difference(
        mean_of([scores.get((family, arm, budget), {}) for family, budget, _ in at]),
        mean_of([scores.get((family, special, budget), {}) for family, budget, special in at]),
    )


def tables(plan: Mapping[str, Any], rows: Rows) -> Iterator[str]:
    """Yield the tables: the primary endpoint, then each measure by budget. ``all`` are the families that have runs."""
    families, sentence = with_runs(plan, rows)
    yield sentence
    if not families:
        return
    scores = played(rows, "score")
    yield ""
    yield "| families | arm | score less the specialist's, mean over budgets [95 %] | seeds | verdict |"
    yield "| --- | --- | ---: | ---: | --- |"
    for name, some in together(families):
        for arm in plan["arms"]:
            yield f"| {name} | `{arm}` | {cells(below(plan, scores, some, arm), plan['margin'])} |"
    for measure in ("score", ERROR, *plan["further"]):
        yield from ("", *by_budget(plan, played(rows, measure), families, measure))
    yield from ("", *by_arm(plan, rows, families))
    yield from ("", "![Score by turns allowed: the arms, and each specialist at its own budget](scores.svg)")


def by_budget(plan: Mapping[str, Any], values: Played, families: Sequence[str], measure: str) -> Iterator[str]:
    """Yield the table of a measure: means over seeds, and the difference of the two arms with drawn horizons.

    Scores and errors have all arms, without those that have no error; other measures have the two arms.
    """
    budgets, (first, second) = plan["turn_budgets"], plan["drawn"]
    yield f"| family | {measure} | {' | '.join(map(str, budgets))} |"
    yield "| --- | --- |" + " ---: |" * len(budgets)
    for family in families:
        for arm in plan["arms"] if measure in ("score", ERROR) else (first, second):
            means = [mean_text(values.get((family, arm, budget))) for budget in budgets]
            if measure != ERROR or {*means} - {NULL, mean_text({0: 0.0})}:
                yield f"| {family} | `{arm}` | {' | '.join(means)} |"
        if measure != ERROR:
            pairs = [[values.get((family, arm, budget), {}) for arm in (first, second)] for budget in budgets]
            differences = [
                with_limits(interval, sign=True) if (interval := difference(*pair)) else NULL for pair in pairs
            ]
            yield f"| {family} | `{first}` less `{second}` | {' | '.join(differences)} |"


def by_arm(plan: Mapping[str, Any], rows: Rows, families: Sequence[str]) -> Iterator[str]:
    """Yield the table of what differs between arms besides their scores, as means over seeds.

    Equal tokens are not equal conversations. The cold start is validated with the most turns.
    """
    yield f"| family | mean | {' | '.join(f'`{arm}`' for arm in plan['arms'])} |"
    yield "| --- | --- |" + " ---: |" * len(plan["arms"])
    for family in families:
        for column, name, form in (
            ("cold_start", "score of the cold start", ".3f"),
            ("conversations", "conversations of RL", ",.0f"),
        ):
            of_arm = [
                [row[column] for row in rows if (row["family"], row["arm"]) == (family, arm)] for arm in plan["arms"]
            ]
            yield f"| {family} | {name} | {' | '.join(format(fmean(some), form) if some else NULL for some in of_arm)} |"


def drawn(plan: Mapping[str, Any], rows: Rows) -> Iterator[Panel]:
    """Yield a panel a family: the score by budget of the general arms, and of each specialist at its own budget."""
    scores, special = played(rows, "score"), specialists(plan)
    for family in with_runs(plan, rows)[0]:
        general = [arm for arm in plan["arms"] if arm not in special.values()]
        lines = [
            line(arm, {budget: scores.get((family, arm, budget), {}) for budget in plan["turn_budgets"]}, band=True)
            for arm in general
        ]
        at_own_budget = {budget: scores.get((family, arm, budget), {}) for budget, arm in special.items()}
        yield Panel(f"{family}: score", [*lines, line("specialists", at_own_budget, band=False)], x="turns allowed")


if __name__ == "__main__":
    main()
