"""Tables and picture of data/task-curricula: which tasks to train on next, under three schedules of horizons.

python -m lab.pages.task_curricula
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from lab.pages.paired import (
    BySeed,
    Rows,
    cells,
    difference,
    line,
    mean_of,
    mean_text,
    read_study,
    rewrite,
    together,
    with_runs,
)
from userrl.reports.figures import Panel


def main() -> None:
    """Write the tables and the picture."""
    plan, rows, folder = read_study("task_curricula")
    rewrite(folder, "task_curricula", list(tables(plan, rows)), list(drawn(plan, rows)))


def reached(plan: Mapping[str, Any], rows: Rows, family: str, arm: str, at: Sequence[float]) -> dict[int, float]:
    """Return the mean validation score of an arm at these shares of its tokens, by seed."""
    names = [f"at_{round(share * plan['tokens'])}" for share in at]
    some = [row for row in rows if (row["family"], row["arm"]) == (family, arm)]
    return mean_of([{row["seed"]: row[name] for row in some} for name in names])


def over(plan: Mapping[str, Any], rows: Rows, families: Sequence[str], sampler: str, at: Sequence[float]) -> BySeed:
    """Return the mean over families and schedules of a sampler's runs, by seed."""
    return mean_of(
        [
            reached(plan, rows, family, f"{sampler}-{schedule}", at)
            for family in families
            for schedule in plan["schedules"]
        ]
    )


def tables(plan: Mapping[str, Any], rows: Rows) -> Iterator[str]:
    """Yield tables: the samplers less `uniform`, at the end and over the whole run, and the scores of all arms.

    ``all`` are the families that have runs.
    """
    families, sentence = with_runs(plan, rows)
    yield sentence
    if not families:
        return
    yield ""
    end, (uniform, *others) = plan["budgets"][-1:], plan["samplers"]
    for when, at in (("at the end", end), ("over the run", plan["budgets"])):
        yield f"| families | sampler less `{uniform}`, {when} | difference [95 %] | seeds | verdict |"
        yield "| --- | --- | ---: | ---: | --- |"
        for name, some in together(families):
            for sampler in others:
                interval = difference(over(plan, rows, some, sampler, at), over(plan, rows, some, uniform, at))
                yield f"| {name} | `{sampler}` | {cells(interval, plan['margin'])} |"
        yield ""
    schedules = " | ".join(f"`{schedule}`" for schedule in plan["schedules"])
    yield f"| family | sampler, score at the end | {schedules} | conversations of a run |"
    yield "| --- | --- |" + " ---: |" * (len(plan["schedules"]) + 1)
    for family in families:
        for sampler in plan["samplers"]:
            scores = [reached(plan, rows, family, f"{sampler}-{schedule}", end) for schedule in plan["schedules"]]
            played = [
                row["conversations"] for row in rows if row["family"] == family and row["arm"].startswith(f"{sampler}-")
            ]
            yield f"| {family} | `{sampler}` | {' | '.join(map(mean_text, scores))} | {fmean(played):,.0f} |"
    yield from ("", "![Validation score by tokens, for each way to draw tasks](scores.svg)")


def drawn(plan: Mapping[str, Any], rows: Rows) -> Iterator[Panel]:
    """Yield a panel a family: the validation score by tokens of each sampler, as a mean over schedules."""
    for family in with_runs(plan, rows)[0]:
        lines = [
            line(
                sampler,
                {
                    round(share * plan["tokens"] / 1000): over(plan, rows, [family], sampler, [share])
                    for share in plan["budgets"]
                },
                band=sampler in plan["samplers"][:2],
            )
            for sampler in plan["samplers"]
        ]
        yield Panel(f"{family}: validation score", lines, x="thousand tokens")


if __name__ == "__main__":
    main()
