"""Which run a person means: one rule for the command line, the flows and SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from userrl_core.errors import ConfigError
from userrl_core.suggest import nearest

_ABOUT_ANOTHER = re.compile(r"evaluate-|distill$|claim-")
"""How the flows ``evaluate``, ``distill`` and ``reproduce`` name their runs."""


class RunName(NamedTuple):
    """What a run is known by. created: Unix seconds."""

    id: str
    name: str
    created: float


def choose_run(text: str, runs: Iterable[RunName], where: Path) -> str:
    """The id of the run with this id, this name (the newest), this beginning of an id (if only one has it), or ``latest``.

    latest: the newest one, but for evaluations, demonstrations on their own and claims, which are about other runs.
    Raises ConfigError naming the nearest where there is none or several. where: they lie, for the sentence.
    """
    ordered = sorted(runs, key=lambda run: (run.created, run.id))
    if not ordered:
        raise ConfigError(f"There is no run in {where} yet; `make run` starts one.")
    if text == "latest":
        trained = [run for run in ordered if not _ABOUT_ANOTHER.match(run.name)]
        return (trained or ordered)[-1].id
    exact = [run for run in ordered if run.id == text] or [run for run in ordered if run.name == text]
    if exact:
        return exact[-1].id
    beginning = [run for run in ordered if run.id.startswith(text)]
    if len(beginning) == 1:
        return beginning[0].id
    why = f"{len(beginning)} runs begin with '{text}'" if beginning else f"There is no run '{text}'"
    hint = "" if beginning else nearest(text, [run.id for run in ordered])
    raise ConfigError(f"{why}{hint}; `userrl runs list` shows them all.")
