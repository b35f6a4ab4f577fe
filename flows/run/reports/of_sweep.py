"""A sweep as a page: what won, on how many fresh seeds it held, what mattered, every trial."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from optuna import Study

from flows.run.reports.document import Block, Document, Figure, Heading, Items, Table, Text
from flows.run.reports.figures import Line, Panel, intervals, panels
from sweeps.results import importance, table, winner
from sweeps.space import Space
from sweeps.study import ranked
from userrl_core.measure.interval import t_interval


def page(space: Space, study: Study, *, at_work: bool) -> Document:
    """The page of a sweep. at_work: whether a driver works on it."""
    blocks: list[Block] = [Text(space.source), *_best(space, study), *_trials(space, study, at_work)]
    return Document(f"Sweep {space.name}", tuple(blocks))


def _best(space: Space, study: Study) -> Iterator[Block]:
    if not ranked(study):
        yield Text("No trial has finished yet.")
        return
    best = winner(space, study)
    yield Heading("The best so far" if not best.fresh else "The winner")
    yield Items((best.claim, *(f"{key} = {value}" for key, value in best.overrides.items())))
    if not best.fresh:
        yield Text(
            "The best of several trials on one seed is inflated by the choice itself; fresh seeds are still to come."
        )
    elif len(best.fresh) > 1:
        limits = t_interval(np.array(best.fresh))
        yield Figure(
            intervals(
                [("fresh seeds", limits.estimate, limits.low, limits.high)], x=f"{_name(space, 0)}, 95 % over seeds"
            ),
            f"{len(best.fresh)} fresh seeds: {limits} (Student's t over seeds); on its own seed {best.value:.3f}.",
            (f"fresh seeds: {limits}",),
        )
    if shares := importance(study):
        yield Table(
            ("parameter", "share of the variance"),
            tuple((name, f"{share:.1%}") for name, share in shares.items()),
            f"fANOVA over the finished trials of {_name(space, 0)}; with few trials it is a hint.",
        )


def _name(space: Space, number: int) -> str:
    objective = space.objectives[number]
    return f"{objective.query.replace('_', ' ')} ({objective.direction})"


def _trials(space: Space, study: Study, at_work: bool) -> Iterator[Block]:
    rows = table(space, study, at_work=at_work)
    finished = [(row["trial"], row["values"]) for row in rows if row["values"]]
    yield Heading("Trials")
    if finished:
        panel = [
            Panel(
                _name(space, number),
                [Line("trial", [(trial, values[number]) for trial, values in finished], markers=True)],
                x="trial",
            )
            for number in range(len(space.objectives))
        ]
        yield Figure(panels(panel), "Each trial's value on its own seed, in the order they were asked.")
    yield Table(
        ("trial", "state", "values", "parameters", "run", "note"),
        tuple(
            (
                str(row["trial"]),
                row["state"],
                ", ".join(
                    f"{value:.3f}" + ("" if error is None else f" ± {error:.3f}")
                    for value, error in zip(
                        row["values"] or [], row["stderr"] or [None] * len(row["values"] or []), strict=False
                    )
                ),
                ", ".join(f"{key}={value}" for key, value in row["params"].items()),
                row["run_id"] or "",
                row["note"] or "",
            )
            for row in rows
        ),
        "± standard error over tasks, of one run each: it says nothing about another seed.",
    )
    if confirmed := study.user_attrs.get("confirmed", []):
        yield Table(
            ("trial", "fresh seed", "values"),
            tuple(
                (str(row["trial"]), str(row["seed"]), ", ".join(f"{value:.3f}" for value in row["values"] or []))
                for row in confirmed
            ),
        )
