"""The report of a run as data: the content of ``report.json`` and the result of a flow. `run_document` shows it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from userrl.machine.home import warehouse_dir
from userrl.reports.result_card import ResultCard
from userrl.run.results import KeptDemonstrations, ScoresByActor, SolvedByActor
from userrl.run.run import Run
from userrl_core.errors import ConfigError

REPORT_FILE = "report.json"


class RunReport(BaseModel):
    """The results of a run, with the paths of its files."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    run: str
    recipe: str
    profile: str | None
    seed: int
    backend: str = "local"
    demonstrations: KeptDemonstrations | None = None
    cold_start: bool = True
    """Whether there was a cold start before RL. Earlier reports lack this field, and had one."""
    from_scratch: bool = False
    table: ScoresByActor = Field(default_factory=dict)
    horizon: int | None = None
    test_tasks: int | None = None
    checkpoint: str | None = None
    """The best checkpoint on validation over all branches, else the last."""
    tiers: ScoresByActor = Field(default_factory=dict)
    """Scores by actor and tier, for gyms with more than one tier."""
    solved: SolvedByActor = Field(default_factory=dict)
    """Share solved within 1, 2 ... turns, by actor and by gym or tier."""
    told_horizon: bool = True
    """Whether the agent was told its number of turns. If so, it might have acted differently with fewer."""
    forgotten: tuple[str, ...] = ()
    """Sentences on gyms where a checkpoint scores worse than an earlier one."""
    best: Reached | None = None
    """The checkpoint that validation chose. None if nothing was trained."""
    last: Reached | None = None
    """The last training step."""
    branches: dict[str, tuple[Reached, Reached]] = Field(default_factory=dict)
    """Best and last of each branch, for a run with branches."""
    fork: str = ""
    """A sentence on the branches' differences, and on the limits of a single seed."""
    collapsed: tuple[str, ...] = ()
    """A sentence for RL, or for each branch, that collapsed. Earlier reports lack this field."""
    held: tuple[str, ...] = ()
    """A sentence for RL, or for each branch, that did not collapse."""
    alarms: tuple[str, ...] = ()
    """The sentences of the alarms during training."""
    replaced: tuple[str, ...] = ()
    """Values that stronger layers of the recipe replaced."""
    data: dict[str, str] = Field(default_factory=dict)
    """The tasks that each gym was played on. Earlier reports lack this field."""
    card: ResultCard | None = None
    """The result card. Earlier reports lack it; `userrl.reports.result_card` makes it from the warehouse."""
    evaluated: Evaluated | None = None
    """The evaluated policy, for a run that is an evaluation alone."""
    seconds: dict[str, float] = Field(default_factory=dict)
    cpu_seconds: dict[str, float] = Field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    warehouse: str
    folder: str


class Reached(BaseModel):
    """The scores at a training step."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    step: int
    validation: float | None = None
    """Mean score on validation tasks, at the run's final horizon."""
    score: float | None = None
    """Mean score on held-out tasks."""
    stderr: float | None = None


class Evaluated(BaseModel):
    """The policy of a separate evaluation. kind: demonstrator, checkpoint or served. where: its folder, or its server."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    label: str
    kind: str
    where: str = ""


RunReport.model_rebuild()


def has_report(run: Run) -> bool:
    """Return whether the run has a report."""
    return (run.folder / REPORT_FILE).is_file()


def read_report(run: Run) -> RunReport:
    """Return a run's report. Its paths refer to this home, also if the home was moved or copied since.

    Raises ConfigError for a run without a report, or with an unreadable one.
    """
    if not has_report(run):
        raise ConfigError("run.no_report", f"Run {run.id} has no report yet. It is {run.status.state}.")
    try:
        report = RunReport.model_validate_json((run.folder / REPORT_FILE).read_text(encoding="utf-8"))
    except ValidationError:
        raise ConfigError(
            "file.damaged", f"{run.folder / REPORT_FILE} cannot be read. Start the run again, which writes it anew."
        ) from None
    checkpoint = None if run.checkpoint is None else str(run.checkpoint)
    here = {"folder": str(run.folder), "warehouse": str(warehouse_dir()), "checkpoint": checkpoint}
    return report.model_copy(update=here)
