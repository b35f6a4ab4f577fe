"""The report of a run as data: the content of ``report.json`` and the result of a flow. `run_document` shows it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from analysis.measure.interval import Interval
from userrl.machine.home import warehouse_dir
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
    control: str = ""
    """Why a negative control was expected to fail. Empty for other recipes, and in earlier reports."""
    judge: str = ""
    """How reliable the judge of turns is that training used; empty without one, and in a report of an earlier version."""
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
    """The result card. Earlier reports lack it; `userrl.reports.card` makes it from the warehouse."""
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


class _Data(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


def _read_interval(stored: Any) -> Any:
    """Return an interval from its stored form. A single task has no limits, and earlier reports name no method."""
    if not isinstance(stored, Mapping):
        return stored
    try:
        low, high = (math.nan if stored[limit] is None else float(stored[limit]) for limit in ("low", "high"))
        return Interval(float(stored["estimate"]), low, high, int(stored["tasks"]), str(stored.get("method", "")))
    except (KeyError, TypeError) as error:
        raise ValueError(f"no interval: {error}") from None


def _write_interval(interval: Interval) -> dict[str, Any]:
    return {**interval.as_json(), "tasks": interval.units, "method": interval.method}


TaskInterval = Annotated[
    Interval, BeforeValidator(_read_interval), PlainSerializer(_write_interval, return_type=dict[str, Any])
]
"""A mean or a difference over tasks with its 95 % limits, and its stored form."""


class CardRow(_Data):
    """The scores of one policy. gain: the difference to the cold start, paired by task."""

    policy: str
    step: int | None = None
    validation: float | None = None
    score: TaskInterval | None = None
    gain: TaskInterval | None = None


class CardOutcome(_Data):
    """The outcome of RL, or of one branch, in a word and in a sentence."""

    branch: str
    outcome: str
    sentence: str


class CardDifference(_Data):
    """The last step of one branch minus the last step of another, paired by task.

    best: the same for the best steps. None if both branches end with their best step, and in reports of earlier versions.
    """

    a: str
    b: str
    difference: TaskInterval
    best: TaskInterval | None = None


class CardTiers(_Data):
    """Where the last step gained most and least on the start, among the tiers of the held-out tasks, paired by task."""

    policy: str
    tiers: int
    best: str
    gained: TaskInterval
    worst: str
    lost: TaskInterval


class CardAlarm(_Data):
    """An alarm with its branch ("" for stages before the split) and what to do."""

    sentence: str
    branch: str = ""
    remedy: str = ""


class CardCost(_Data):
    """The cost of all stages. tokens: sampled in training. dollars: of calls of served models
    whose price is known, None if there are none.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    tokens: int = 0
    dollars: float | None = None
    unpriced_calls: int = 0


class ResultCard(_Data):
    """The result of a run, in the order in which a reader asks for it."""

    start: str = ""
    """Name of the policy that RL started from."""
    test_tasks: int | None = None
    horizon: int | None = None
    rows: tuple[CardRow, ...] = ()
    outcomes: tuple[CardOutcome, ...] = ()
    between: tuple[CardDifference, ...] = ()
    tiers: tuple[CardTiers, ...] = ()
    """Empty in reports of earlier versions, and for tasks of one tier."""
    alarms: tuple[CardAlarm, ...] = ()
    cost: CardCost = Field(default_factory=CardCost)


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
        report = RunReport.model_validate_json((run.folder / REPORT_FILE).read_bytes())
    except ValidationError:
        raise ConfigError(
            "file.damaged", f"{run.folder / REPORT_FILE} cannot be read. Start the run again, which writes it anew."
        ) from None
    checkpoint = None if run.checkpoint is None else str(run.checkpoint)
    paths = {"folder": str(run.folder), "warehouse": str(warehouse_dir()), "checkpoint": checkpoint}
    return report.model_copy(update=paths)
