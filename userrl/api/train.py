"""``userrl.train``: train a recipe in this process and its children, without a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from userrl.machine.notebook import Printed

if TYPE_CHECKING:
    import polars as pl

    from userrl.reports.run_report import RunReport


@dataclass(frozen=True, slots=True)
class TrainedRun:
    """A trained run. report: its held-out scores and the rest of its report."""

    run: str
    folder: Path
    report: RunReport

    @property
    def checkpoint(self) -> Path | None:
        """The folder of the checkpoint that validation chose. It loads with transformers."""
        return None if self.report.checkpoint is None else Path(self.report.checkpoint)

    def to_polars(self) -> pl.DataFrame:
        """Return the held-out scores, one row per actor (demonstrator, SFT, RL) and gym."""
        import polars as pl

        rows = [
            {"run": self.run, "actor": actor, "gym": gym, **row.model_dump(exclude={"reasons"})}
            for actor, gyms in self.report.table.items()
            for gym, row in gyms.items()
        ]
        return pl.DataFrame(rows, infer_schema_length=None)

    def curve(self) -> pl.DataFrame:
        """Return the learning curve in training and validation: mean score by phase, stage and step."""
        from userrl.machine.home import warehouse_dir
        from warehouse import open_warehouse

        with open_warehouse(warehouse_dir(), run=self.run) as opened:
            curve = opened.query("learning_curve", run=self.run, phase=None)
            shown: pl.DataFrame = curve.filter("phase IN ('train', 'validate')").pl()
            return shown

    def checkpoints(self, *, load: bool = False) -> pl.DataFrame:
        """Return the checkpoints on disk in order of training: stage, step, validation score, chosen, megabytes, problem, path.

        problem: why transformers cannot load it, or "". load: load each with transformers, not only check its files.
        """
        import polars as pl

        from userrl.reports.checkpoints.listed import listed_checkpoints
        from userrl.run.run import find

        columns = {
            "id": pl.String, "stage": pl.String, "step": pl.Int64, "score": pl.Float64, "chosen": pl.Boolean,
            "megabytes": pl.Float64, "problem": pl.String, "path": pl.String,
        }  # fmt: skip
        rows, _ = listed_checkpoints(find(self.run), load=load)
        return pl.DataFrame([row.model_dump(mode="json") for row in rows], schema=columns)

    def plot(self, path: str | Path, *beside: str) -> Path:
        """Draw training and validation scores by step into a .png, .svg or .pdf file, and return its path.

        beside: further runs or groups of runs to draw, as `compare` takes them. Raises ConfigError with one sentence.
        """
        from userrl.reports.plots import plot_curves

        return plot_curves([self.run, *beside], Path(path))

    def __str__(self) -> str:
        from userrl.reports.run_summary import run_summary

        return run_summary(self.report).text()

    def _repr_markdown_(self) -> str:
        from userrl.reports.run_summary import run_summary

        return run_summary(self.report).markdown()


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
    from userrl.api.progress import ProgressLine
    from userrl.machine.home import quiet_process, runs_dir
    from userrl.run.plan import plan_run
    from userrl.stages.here import train_here

    quiet_process()
    values = {
        **_asked(recipe, profile, backend, seed, name, overrides, init_from),
        "from_stage": from_stage,
        "until": until,
        "fresh": fresh,
        "keep_checkpoints": keep_checkpoints,
        "budget": {"hours": hours, "money": dollars} if hours or dollars else None,
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
        with line.alive("loading, or writing files"):
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
) -> PlannedRun:
    """Return the plan of `train` without training. Requirements that this machine lacks are not refused."""
    from userrl.run.plan import plan_run

    values = {**_asked(recipe, profile, backend, seed, name, overrides, None), "dry_run": True}
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
        "overrides": dict(overrides) if overrides else None,
        "init_from": init_from,
    }


def _request(values: dict[str, Any]) -> Any:
    from userrl.run.request import TrainRequest, requested

    return requested(TrainRequest, values, "train")
