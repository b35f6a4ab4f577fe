"""``userrl.train``: train a recipe in this process and its children, without a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from userrl.machine.notebook import Printed

if TYPE_CHECKING:
    from userrl.reports.trained_run import TrainedRun


@dataclass(frozen=True, slots=True)
class PlannedRun(Printed):
    """A run that was only planned: its id, and its stage table as text."""

    run: str
    description: str

    def __str__(self) -> str:
        return self.description


def train(
    recipe: str = "equalized-r2g",
    *,
    profile: str | None = "auto",
    backend: Literal["auto", "local", "verl"] = "auto",
    seed: int = 0,
    name: str = "",
    overrides: Mapping[str, Any] | None = None,
    init_from: str | None = None,
    from_stage: str | None = None,
    until: str | None = None,
    fresh: bool = False,
    keep_checkpoints: int = 2,
    hours: float | None = None,
    dollars: float | None = None,
    wandb: Literal["offline", "online", "off"] = "off",
    track: Sequence[Literal["tensorboard", "mlflow"]] = (),
    progress: bool = True,
) -> TrainedRun:
    """Train a recipe and return its run: demonstrations, cold start, RL stages, held-out evaluation.

    recipe: a shipped name or a YAML file. overrides: dotted keys of the recipe. hours, dollars: limits after which training
    stops with a checkpoint. track: trackers that also get the numbers. Called again with the same arguments, it reuses
    finished stages and continues a killed one.
    Raises ConfigError, CheckpointError or TrainingError with one sentence.
    """
    from userrl.machine.home import quiet_process, runs_dir
    from userrl.reports.trained_run import TrainedRun
    from userrl.run.plan import plan_run
    from userrl.run.progress import ProgressLine
    from userrl.stages.here import train_here

    quiet_process()
    values = {
        **_asked(recipe, profile, backend, seed, name, overrides, init_from),
        **_ended(until, hours, dollars),
        "from_stage": from_stage,
        "fresh": fresh,
        "keep_checkpoints": keep_checkpoints,
        "wandb": wandb,
        "track": tuple(track),
    }
    plan = plan_run(_request(values))
    if not progress:
        report = train_here(plan)
    else:
        line = ProgressLine()
        for sentence in plan.says:
            line.say("%s", sentence)
        with line.alive("loading, waiting, or writing files"):
            report = train_here(plan, say=line.say, progress=line)
    return TrainedRun(report.run, runs_dir() / report.run, report)


def planned(
    recipe: str,
    *,
    profile: str | None = "auto",
    backend: Literal["auto", "local", "verl"] = "auto",
    seed: int = 0,
    name: str = "",
    overrides: Mapping[str, Any] | None = None,
    init_from: str | None = None,
    until: str | None = None,
    hours: float | None = None,
    dollars: float | None = None,
) -> PlannedRun:
    """Return the plan of `train` without training. Requirements that this machine lacks are not refused."""
    from userrl.run.plan import plan_run

    asked = _asked(recipe, profile, backend, seed, name, overrides, init_from)
    values = {**asked, **_ended(until, hours, dollars), "dry_run": True}
    plan = plan_run(_request(values))
    return PlannedRun(plan.run_id, plan.describe())


def _asked(
    recipe: str,
    profile: str | None,
    backend: str,
    seed: int,
    name: str,
    overrides: Mapping[str, Any] | None,
    init_from: str | None,
) -> dict[str, Any]:
    return {
        "recipe": recipe,
        "profile": profile,
        "backend": backend,
        "seed": seed,
        "name": name,
        "overrides": overrides or None,
        "init_from": init_from,
    }


def _ended(until: str | None, hours: float | None, dollars: float | None) -> dict[str, Any]:
    limited = hours is not None or dollars is not None
    return {"until": until, "budget": {"hours": hours, "money": dollars} if limited else None}


def _request(values: dict[str, Any]) -> Any:
    from userrl.run.request import TrainRequest, requested

    return requested(TrainRequest, values, "train")
