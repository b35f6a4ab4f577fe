"""The result file of each kind of stage, which later stages and the report read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from userrl.machine.hashes import file_hash
from userrl.machine.home import in_this_home, relocated
from userrl_core.distill import GymCount
from userrl_core.json_files import read_json
from userrl_core.training.jobs import Best


class Result(BaseModel):
    """The common part of all results."""

    model_config = ConfigDict(extra="allow", frozen=True)

    sha256: str = ""
    """Hash of the data that the next stage reads. With the step, it decides whether later work can be reused."""

    step: int = 0
    """The last training step."""

    files: dict[Path, str] = Field(default_factory=dict)
    """Files and their hashes. The result is valid while they exist unchanged."""

    seconds: float = 0.0
    """Seconds from the stage's last start to its end."""

    cpu_seconds: float = 0.0
    """Processor seconds in the same span."""

    shared_from: str | None = None
    """The run that trained this cold start, if it was another one (`TrainRequest.share_cold_start`)."""

    @property
    def complete(self) -> bool:
        """Return whether a rerun has nothing left to do."""
        return True

    def holds(self) -> bool:
        """Return whether the result's files exist unchanged."""
        return all(path.is_file() and file_hash(path) == sha256 for path, sha256 in self.files.items())


class KeptDemonstrations(BaseModel):
    """The demonstrating policy, and the demonstrations that were kept."""

    policy: str
    played: int
    kept: int
    dropped: dict[str, int]
    """Counts by reason."""
    mean: float | None
    mean_kept: float | None
    by_gym: dict[str, GymCount]
    unread: dict[str, int] = Field(default_factory=dict)
    """Fields of given conversations that are not read, and how often they occur."""


class DistillResult(Result, KeptDemonstrations):
    """The result of distillation: chats for the cold start, and the tasks that leave the RL set."""

    chats: Path
    used_tasks: Path
    turns: int


class TrainResult(Result):
    """The result of a cold start or an RL stage, or the model that a run starts from."""

    checkpoint: Path
    """The last checkpoint."""

    id: str | None = None
    """The checkpoint's name in the warehouse."""

    best: Best | None = None
    """The checkpoint with the highest validation score so far."""

    metrics: dict[str, float] = Field(default_factory=dict)
    """Metrics of the last step."""

    @property
    def chosen(self) -> Path:
        """The best checkpoint on validation if there is one, else the last."""
        return self.best.path if self.best is not None else self.checkpoint


class GymScore(BaseModel):
    """Means over the admitted trajectories at one gym. ``rejected`` counts the others."""

    score: float | None = None
    stderr: float | None = None
    """Standard error over tasks: of the mean of their mean scores. None for one task."""
    turns: float | None = None
    format_errors: float | None = None
    """Share of trajectories with a reply without a readable call."""
    attempts: int = 0
    rejected: int = 0
    reasons: dict[str, int] = Field(default_factory=dict)
    """The most frequent reasons for rejection, with counts."""


ScoresByActor = dict[str, dict[str, GymScore]]
"""Scores by actor and gym."""

SolvedByActor = dict[str, dict[str, tuple[float, ...]]]
"""Share of the admitted trajectories solved within 1, 2 ... turns, by actor and by gym or tier."""


class EvaluateResult(Result):
    """The result of an evaluation."""

    table: ScoresByActor
    tiers: ScoresByActor = Field(default_factory=dict)
    """Scores by tier (``errand depth-3``), for gyms whose test tasks have several tiers."""
    solved: SolvedByActor = Field(default_factory=dict)
    """Share solved within 1, 2 ... horizon turns, by actor and by gym or tier. Old results lack this field."""
    horizon: int
    tasks: int
    turns: int

    @property
    def complete(self) -> bool:
        """Return whether every trajectory was scored. A rerun repeats the rejected ones."""
        return not any(row.rejected for gyms in self.table.values() for row in gyms.values())


RESULTS: Mapping[str, type[Result]] = {
    "distill": DistillResult,
    "sft": TrainResult,
    "rl": TrainResult,
    "evaluate": EvaluateResult,
}
"""Result types by kind of stage."""


EARLIER = "earlier"
"""The folder in a run's folder with the files of stages that began anew."""


def stage_results(run_folder: Path) -> dict[str, Result]:
    """Return the common part of all results of a run, in the order of finishing."""
    written = {path.parent.name: read_json(path) for path in run_folder.glob("stages/[!.]*/result.json")}
    results: list[tuple[str, dict[str, Any]]] = [(name, value) for name, value in written.items() if value is not None]
    return {
        name: Result.model_validate(value["value"]) for name, value in sorted(results, key=lambda item: item[1]["at"])
    }


def chosen_so_far(run_folder: Path) -> Path | None:
    """Return the checkpoint that validation has chosen in the finished stages. None before the first, or if it is gone."""
    best: tuple[float, Path] | None = None
    for path in run_folder.glob("stages/rl-*/result.json"):
        value = (read_json(path) or {}).get("value", {})
        if (chosen := value.get("best")) and (checkpoint := in_this_home(run_folder, Path(chosen["path"]))).is_dir():
            candidate = float(chosen["score"]), checkpoint
            best = candidate if best is None else max(best, candidate)
    return best[1] if best else None


def cold_start(run_folder: Path) -> Path | None:
    """Return the checkpoint of a run's cold start, from which its RL began. None without a cold start."""
    written = read_json(run_folder / "stages" / "sft" / "result.json")
    return None if written is None else TrainResult.model_validate(relocated(written["value"], run_folder)).chosen
