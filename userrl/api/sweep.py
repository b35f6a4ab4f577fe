"""``userrl.sweep``: a sweep with its trials as child processes of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class SweptSpace:
    """A sweep that has ended. best: the winner's overrides. claim: what can be said of it, in a sentence."""

    name: str
    best: dict[str, Any]
    claim: str
    trials: int

    def to_polars(self) -> pl.DataFrame:
        """Return a row for every trial: its state, values, parameters and run."""
        import polars as pl

        from sweeps.results import table
        from userrl.trials.sweep import open_sweep

        space, study = open_sweep(self.name)
        rows = [
            {
                "trial": row["trial"],
                "state": row["state"],
                "values": row["values"],
                **row["params"],
                "run": row["run_id"],
            }
            for row in table(space, study, at_work=False)
        ]
        return pl.DataFrame(rows, infer_schema_length=None)

    def __str__(self) -> str:
        return f"{self.name}: {self.claim}"


def sweep(
    space: str = "gamma",
    *,
    parallel: int = 2,
    trials: int | None = None,
    storage: str | None = None,
    budget: Mapping[str, float] | None = None,
    overrides: Mapping[str, Any] | None = None,
    renew: bool = False,
) -> SweptSpace:
    """Run a named space to the end of its budget; calling it again continues where it stopped.

    space: a shipped name or a YAML file. parallel: trials at once. renew: begin anew on the next seed when the last edition has
    ended. Raises ConfigError with one sentence.
    """
    from curricula.validation import validated
    from userrl.api.progress import log_line
    from userrl.machine.home import quiet_process
    from userrl.run.request import SweepRequest
    from userrl.trials.processes import ProcessLauncher
    from userrl.trials.sweep import run_sweep

    quiet_process()
    values = {
        "space": space,
        "parallel": parallel,
        "trials": trials,
        "workers": "processes",
        "storage": storage,
        "budget": dict(budget) if budget else None,
        "overrides": dict(overrides) if overrides else None,
        "renew": renew,
    }
    ended = run_sweep(validated(SweepRequest, values, "sweep"), ProcessLauncher, log_line)
    return SweptSpace(ended.space.name, ended.best.overrides, ended.best.claim, ended.trials)
