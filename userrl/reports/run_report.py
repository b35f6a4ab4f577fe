"""The report of a run as data: what ``report.json`` holds and what a flow returns. `run_document` shows it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from userrl.machine.home import warehouse_dir
from userrl.run.results import KeptDemonstrations, ScoresByActor, SolvedByActor
from userrl.run.run import Run
from userrl_core.errors import ConfigError

REPORT_FILE = "report.json"


class RunReport(BaseModel):
    """What a run achieved, and where it is."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    run: str
    recipe: str
    profile: str | None
    seed: int
    backend: str = "local"
    demonstrations: KeptDemonstrations | None = None
    cold_start: bool = True
    """Whether there was one before RL; earlier reports do not say, and had one."""
    from_scratch: bool = False
    table: ScoresByActor = Field(default_factory=dict)
    horizon: int | None = None
    test_tasks: int | None = None
    checkpoint: str | None = None
    """The best of training on validation, of all branches, else the last."""
    tiers: ScoresByActor = Field(default_factory=dict)
    """Scores by actor and tier, of gyms with more than one."""
    solved: SolvedByActor = Field(default_factory=dict)
    """Share solved within 1, 2 ... turns, by actor and by gym or tier."""
    told_horizon: bool = True
    """Whether the agent was told how many turns it had: then it might have acted otherwise with fewer."""
    forgotten: tuple[str, ...] = ()
    """What a checkpoint solves less often than an earlier one did, a sentence each."""
    best: Reached | None = None
    """The checkpoint that validation chose; none where nothing was trained."""
    last: Reached | None = None
    """The last step of training."""
    branches: dict[str, tuple[Reached, Reached]] = Field(default_factory=dict)
    """Best and last of each branch, in place of those of the whole."""
    fork: str = ""
    """What the branches are compared by, and what one run of each cannot say."""
    collapsed: tuple[str, ...] = ()
    """A sentence for RL, or for each branch, that lost what it had reached; earlier reports do not say."""
    held: tuple[str, ...] = ()
    """And for the others."""
    alarms: tuple[str, ...] = ()
    """What the alarms said while it trained."""
    replaced: tuple[str, ...] = ()
    """Values that stronger layers of the recipe replaced."""
    data: dict[str, str] = Field(default_factory=dict)
    """Which tasks each gym was played on; earlier reports do not say."""
    evaluated: Evaluated | None = None
    """What was evaluated, where it is no run's own training."""
    seconds: dict[str, float] = Field(default_factory=dict)
    cpu_seconds: dict[str, float] = Field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    warehouse: str
    folder: str


class Reached(BaseModel):
    """Where training was at a step."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    step: int
    validation: float | None = None
    """Mean score on validation tasks, at the run's final horizon."""
    score: float | None = None
    """Mean score on held-out tasks."""
    stderr: float | None = None


class Evaluated(BaseModel):
    """Who was evaluated by itself. kind: demonstrator, checkpoint or served; where: its folder, or its server."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    label: str
    kind: str
    where: str = ""


RunReport.model_rebuild()


def has_report(run: Run) -> bool:
    """Return whether the run has come to its report."""
    return (run.folder / REPORT_FILE).is_file()


def read_report(run: Run) -> RunReport:
    """Return a run's report, with the paths of this home where the home was moved or copied since.

    Raises ConfigError for a run without a report, or with one that cannot be read.
    """
    if not has_report(run):
        raise ConfigError(f"Run {run.id} has no report yet; it is {run.status.state}.")
    try:
        report = RunReport.model_validate_json((run.folder / REPORT_FILE).read_text(encoding="utf-8"))
    except ValidationError:
        raise ConfigError(
            f"{run.folder / REPORT_FILE} cannot be read; start the run again, which writes it anew."
        ) from None
    checkpoint = None if run.checkpoint is None else str(run.checkpoint)
    here = {"folder": str(run.folder), "warehouse": str(warehouse_dir()), "checkpoint": checkpoint}
    return report.model_copy(update=here)
