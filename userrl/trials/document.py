"""The page of a sweep: the winner, its scores on fresh seeds, the importance of each parameter, and every trial."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from optuna import Study

from analysis.measure.interval import t_interval
from sweeps.results import importance, table, winner
from sweeps.space import Space
from sweeps.study import progress, ranked
from userrl.reports.document import Block, Code, Document, Figure, Heading, Inline, Items, Link, TableBlock, Text
from userrl.reports.figures import Line, Panel, intervals, panels
from userrl_core.number_format import number, with_error, with_limits

Address = Callable[[str], str | None]
"""A function from a trial's handle to the page of its flow run, or None."""


def no_address(handle: str) -> None:
    """Return no page, so that a trial is shown by its run's id."""


def sweep_document(space: Space, study: Study, *, at_work: bool, address: Address = no_address) -> Document:
    """Return the page of a sweep. at_work: whether a driver works on it."""
    rows = table(space, study, at_work=at_work)
    blocks = [*_begins(space, study), *_best(space, study), *_held(space, study), *_mattered(space, study)]
    blocks += [Heading("Trials"), *_course(space, rows), *_trials(space, study, rows, address)]
    return Document(f"Sweep {space.name}", tuple(blocks))


def trials_document(space: Space, study: Study, address: Address) -> Document:
    """Return the page of a running sweep, without figures and importance. Those take seconds and change with every trial."""
    rows = table(space, study, at_work=True)
    blocks = [*_begins(space, study), *_best(space, study), *_trials(space, study, rows, address)]
    return Document(f"Sweep {space.name}", tuple(blocks))


def _begins(space: Space, study: Study) -> Iterator[Block]:
    yield Text(space.source)
    yield Text(f"{progress(space, study)} done.")


def _best(space: Space, study: Study) -> Iterator[Block]:
    if not ranked(study):
        yield Text("No trial has finished yet.")
        return
    best = winner(space, study)
    yield Heading("Best trial so far" if not best.fresh else "Winner")
    yield Items((best.claim, *((Code(key), f" = {value}") for key, value in best.chosen.items())))
    if not best.fresh:
        rerun = "No fresh seed has a value." if best.failed else "Fresh seeds have not been run yet."
        yield Text(f"The best of several trials on one seed is biased upwards by the selection. {rerun}")
    elif best.among > 1:
        yield Text(
            f"The best of {best.among} trials' means over fresh seeds is biased by this second selection. Only means over equal "
            "numbers of fresh seeds are compared."
        )


def _held(space: Space, study: Study) -> Iterator[Block]:
    if not ranked(study) or len((best := winner(space, study)).fresh) < 2:
        return
    over = t_interval(np.array(best.fresh))
    interval = with_limits(over)
    yield Figure(
        partial(
            intervals, [("fresh seeds", over.estimate, over.low, over.high)], x=f"{_name(space, 0)}, 95 % over seeds"
        ),
        f"{len(best.fresh)} fresh seeds: {interval} (Student's t over seeds); on the trial's own seed {number(best.value)}.",
        (f"fresh seeds: {interval}",),
    )


def _mattered(space: Space, study: Study) -> Iterator[Block]:
    if len(shares := importance(study)) > 1:
        yield TableBlock(
            ("parameter", "share of the variance"),
            tuple((name, f"{share:.1%}") for name, share in shares.items()),
            f"fANOVA over the finished trials of {_name(space, 0)}; with few trials it is only a hint.",
        )


def _name(space: Space, index: int) -> str:
    objective = space.objectives[index]
    return f"{objective.query.replace('_', ' ')} ({objective.direction})"


def _course(space: Space, rows: list[dict[str, Any]]) -> Iterator[Block]:
    finished = [(row["trial"], row["values"]) for row in rows if row["values"]]
    if finished:
        drawn = [
            Panel(
                _name(space, index),
                [Line("trial", [(trial, values[index]) for trial, values in finished], markers=True)],
                x="trial",
            )
            for index in range(len(space.objectives))
        ]
        yield Figure(partial(panels, drawn), "Each trial's value on its own seed, in the order of the trials.")


def _trials(space: Space, study: Study, rows: list[dict[str, Any]], address: Address) -> Iterator[Block]:
    names = [objective.query.replace("_", " ") for objective in space.objectives]
    yield TableBlock(
        ("trial", "state", *names, *space.parameters, "run", "note"),
        tuple(
            (
                str(row["trial"]),
                row["state"],
                *measured(row, len(names)),
                *(str(row["params"].get(name, "")) for name in space.parameters),
                _run(row, address),
                row["note"] or "",
            )
            for row in rows
        ),
        "± standard error over tasks, of one run each. It says nothing about other seeds.",
    )
    if confirmed := study.user_attrs.get("confirmed", []):
        yield TableBlock(
            ("trial", "fresh seed", *names, "note"),
            tuple(
                (
                    str(row["trial"]),
                    str(row["seed"]),
                    *measured(row, len(names)),
                    "" if row["values"] else row.get("failed", "failed"),
                )
                for row in confirmed
            ),
        )


def measured(row: Mapping[str, Any], count: int) -> list[str]:
    """Return one cell per objective: the value with its standard error, or the last validation of an unfinished trial."""
    if not row["values"]:
        so_far = row.get("so_far")
        return ["" if so_far is None else f"{number(so_far)} so far", *[""] * (count - 1)]
    errors = row.get("stderr") or [None] * count
    return [with_error(value, error) for value, error in zip(row["values"], errors, strict=True)]


def _run(row: Mapping[str, Any], address: Address) -> Inline:
    page = address(row["handle"]) if row["handle"] else None
    return Link(row["run_id"] or "", page) if page else row["run_id"] or ""
