"""``userrl.sweep``: a sweep with its trials as child processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class SweptSpace:
    """A finished sweep.

    best: the winner's overrides. best_recipe: the winner's recipe and changed values. claim: a sentence on what the sweep
    shows about the winner.
    """

    name: str
    best: dict[str, Any]
    claim: str
    trials: int
    best_recipe: str = ""

    def to_polars(self) -> pl.DataFrame:
        """Return one row per trial: state, values, parameters and run."""
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
    """Run a named space to the end of its budget. Called again, it continues where it stopped.

    space: a shipped name or a YAML file. parallel: number of parallel trials. renew: start a new edition on the next seed if
    the last one has ended. Raises ConfigError with one sentence.
    """
    from curricula.validation import validated
    from userrl.api.progress import ProgressLine, log_line
    from userrl.machine.home import quiet_process
    from userrl.run.request import SweepRequest
    from userrl.trials.processes import ProcessLauncher
    from userrl.trials.sweep import best_recipe, run_sweep

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
    request = validated(SweepRequest, values, "sweep")
    with ProgressLine().alive(f"sweep {space} is at work; userrl sweep status shows its trials"):
        ended = run_sweep(request, ProcessLauncher, log_line)
    recipe = best_recipe(ended.space, ended.best.overrides)
    return SweptSpace(ended.space.name, ended.best.overrides, ended.best.claim, ended.trials, recipe)
