"""``userrl.sweep``: a sweep with its trials as child processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from userrl.machine.notebook import Printed, Tabular

if TYPE_CHECKING:
    from userrl.run.request import SweepRequest


@dataclass(frozen=True, slots=True)
class SweptSpace(Printed, Tabular):
    """A finished sweep.

    best: the winner's overrides. best_recipe: the winner's recipe and changed values. claim: a sentence on what the sweep
    shows about the winner.
    """

    name: str
    best: dict[str, Any]
    claim: str
    trials: int
    best_recipe: str = ""

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return one row per trial: state, values, parameters and run."""
        from sweeps.results import table
        from userrl.trials.sweep import open_sweep

        space, study = open_sweep(self.name)
        return [
            {
                "trial": row["trial"],
                "state": row["state"],
                "values": row["values"],
                **row["params"],
                "run": row["run_id"],
            }
            for row in table(space, study, at_work=False)
        ]

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
    fresh: bool = False,
) -> SweptSpace:
    """Run a named space to the end of its budget. Called again, it continues where it stopped.

    space: a shipped name or a YAML file. parallel: number of parallel trials. renew: start a new edition on the next seed if
    the last one has ended. fresh: start it in any case. Raises ConfigError with one sentence, also for a space that differs from
    the one that the sweep was begun with.
    """
    from userrl.machine.home import quiet_process
    from userrl.run.progress import ProgressLine, log_line
    from userrl.trials.processes import ProcessLauncher
    from userrl.trials.sweep import best_recipe, run_sweep

    quiet_process()
    request = sweep_request(
        space,
        parallel=parallel,
        trials=trials,
        storage=storage,
        budget=dict(budget) if budget else None,
        overrides=dict(overrides) if overrides else None,
        renew=renew,
        fresh=fresh,
    )
    with ProgressLine().alive(f"sweep {space} is at work; userrl sweep status shows its trials"):
        result = run_sweep(request, ProcessLauncher, log_line)
    recipe = best_recipe(result.space, result.best)
    return SweptSpace(result.space.name, result.best.overrides, result.best.claim, result.trials, recipe)


def sweep_request(space: str, **fields: Any) -> SweepRequest:
    """Return the request of a sweep with child processes. fields: as in `sweep`. Raises ConfigError for a wrong value."""
    from curricula.validation import validated
    from userrl.run.request import SweepRequest

    return validated(SweepRequest, {"space": space, "workers": "processes", **fields}, "sweep")
