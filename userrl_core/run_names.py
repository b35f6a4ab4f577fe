"""Lookup of a run by a person's text: one rule for the command line, the flows and SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from userrl_core.errors import ConfigError
from userrl_core.suggest import nearest

_ABOUT_ANOTHER = re.compile(r"evaluate-|distill$|claim-|audit-credit-")
"""Names that the flows ``evaluate``, ``distill`` and ``reproduce`` and the credit audit give their runs."""


class RunName(NamedTuple):
    """The identifiers of a run. created: Unix seconds. imported: it holds the conversations of another tool. failed: it
    failed before RL.
    """

    id: str
    name: str
    created: float
    imported: bool = False
    failed: bool = False


def about_another(name: str) -> bool:
    """Return whether a run of this name concerns other runs: an evaluation, separate demonstrations, a claim or an audit."""
    return _ABOUT_ANOTHER.match(name) is not None


def choose_run(text: str, runs: Iterable[RunName], where: Path) -> str:
    """Return the id of a run by its id, its name (the newest), a unique beginning of its id, or ``latest``.

    latest: the newest run, except imported runs, those that concern other runs (`about_another`), and those that failed
    before RL. where: folder of the runs, for the error message. Raises ConfigError naming the nearest id when no run or
    several match.
    """
    if not text.strip():
        raise ConfigError("argument.missing", "The name of the run is empty. `userrl runs list` shows all runs.")
    ordered = sorted(runs, key=lambda run: (run.created, run.id))
    trained_here = [run for run in ordered if not run.imported]
    if text == "latest" and ordered and not trained_here:
        raise ConfigError(
            "run.no_such_run",
            f"latest means the newest run of this home's own, and {where} has only imported ones. Name one: {ordered[-1].id}.",
        )
    if not ordered:
        raise ConfigError("run.no_such_run", f"There is no run in {where} yet. `make run` starts one.")
    if text == "latest":
        trained = [run for run in trained_here if not about_another(run.name)]
        return ([run for run in trained if not run.failed] or trained or trained_here)[-1].id
    exact = [run for run in ordered if run.id == text] or [run for run in ordered if run.name == text]
    if exact:
        return exact[-1].id
    beginning = [run for run in ordered if run.id.startswith(text)]
    if len(beginning) == 1:
        return beginning[0].id
    why = f"{len(beginning)} runs begin with '{text}'" if beginning else f"There is no run '{text}'"
    hint = "" if beginning else nearest(text, [run.id for run in ordered])
    raise ConfigError("run.no_such_run", f"{why}{hint}. `userrl runs list` shows all runs.")
