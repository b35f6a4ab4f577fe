"""One verl stage as data: the job that a flow passes on, and the file that the stage's processes read. No verl, torch or Ray."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from userrl_core.errors import ConfigError
from userrl_core.settings import Settings
from userrl_core.sink import Sink
from userrl_core.training.config import Cluster
from userrl_core.training.jobs import RlJob, SftJob

SINKS = "userrl.sinks"
"""Entry point group of sinks: a name and ``module:callable`` that opens one from keyword options."""

STAGE_ENV = "USERRL_STAGE_ENV"
"""JSON list of the environment variables that every process of a stage must have, on any host."""

HEARTBEATS = "alive"
"""Folder of the workers' heartbeats, in the stage's folder."""

OUTAGES = "outages.jsonl"
"""File in the stage's folder for workers' reports of a served user that is down."""


class SinkSpec(Settings):
    """The turn log of a worker process: an entry point of group ``userrl.sinks`` and its options."""

    name: str
    """Name of the entry point."""

    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword options."""

    def open(self) -> Sink:
        """Return this process's sink, the same one for the same spec. Raises ConfigError for an unknown entry point."""
        return _open(self.name, json.dumps(self.options, sort_keys=True))


@lru_cache(maxsize=8)
def _open(name: str, options: str) -> Sink:
    offered = entry_points(group=SINKS, name=name)
    if not offered:
        raise ConfigError(
            "install.missing",
            f"No installed package provides a sink '{name}' (entry point group {SINKS}). Install userrl in "
            "this environment.",
        )
    sink: Sink = next(iter(offered)).load()(**json.loads(options))
    return sink


class VerlJob(RlJob):
    """One stage of reinforcement learning on verl. `RlJob.init` is a HF folder: the cold start's, or the previous stage's."""

    stage: str = "rl-1"
    """Name in records."""

    cluster: Cluster = Cluster()
    """Machines."""

    sink: SinkSpec | None = None
    """Turn log of the worker processes; None logs nothing."""

    policy: str = "policy"
    """The acting policy's name in reports."""

    step_timeout: PositiveFloat | None = None
    """Maximum seconds of gym and user for one turn. None: by the users' time-outs (`served.health.turn_seconds`)."""

    policy_timeout: PositiveFloat = 600.0
    """Maximum seconds of the rollout engine for one reply."""

    stall: PositiveFloat = 14400.0
    """Seconds without a finished step after which the stage counts as stuck."""

    first_stall: PositiveFloat = 5400.0
    """The same limit before the first step of a start, while engines start and the initial policy is validated."""


@dataclass(frozen=True, slots=True)
class Resume:
    """The start of a stage. model: a HF folder or name. path: a verl checkpoint folder ``global_step_N``, or None.

    weights_only: take only the step from the folder's name; weights come from model, and the optimizer is new.
    """

    model: str
    path: Path | None = None
    weights_only: bool = False


class VerlSftJob(SftJob):
    """The cold start on verl's SFT trainer."""

    cluster: Cluster = Cluster()
    """Machines."""

    stall: PositiveFloat = 7200.0
    """Seconds without any output after which the stage counts as stuck."""


class HorizonFrom(Settings):
    """The horizon of conversations from one step on."""

    step: PositiveInt
    """Global step, from 1."""

    turns: PositiveInt
    """Horizon."""


class StageFile(Settings):
    """The settings that every process of a stage reads, as one JSON file: playing needs no recipe and no flow."""

    job: VerlJob
    """The stage, as the trainer has it. Its validation tasks are left out."""

    horizons: tuple[HorizonFrom, ...]
    """Horizons by ascending steps."""

    decided: bool = False
    """True if further horizons, or tasks, are decided during the stage, and read from its folder (`step_plan.decided`)."""

    sink: SinkSpec | None = None
    """The turn log."""

    folder: Path
    """Folder for errors that end the stage (``fatal``) and for each step's statistics (``steps.jsonl``)."""

    @property
    def greedy_baseline(self) -> bool:
        """True if each group also plays one greedy conversation as its baseline (remax)."""
        return self.job.algorithm.name == "remax"

    @property
    def assignment(self) -> Literal["turn", "trajectory", "group"]:
        """Placement of rewards (PPO): on the last token of each turn, their sum on the last token, or there the score
        normalised within its group.
        """
        return self.job.algorithm.assignment if self.job.algorithm.name == "ppo" else "turn"

    @property
    def attempts(self) -> int:
        """Number of trajectories after which a step's numbers are written, if none of our estimators sees the step; 0 otherwise."""
        algorithm = self.job.algorithm
        return algorithm.batch * algorithm.group if algorithm.name == "ppo" else 0

    def horizon(self, step: int) -> int:
        """Return the horizon of a step: a pure function, so a resumed run sees the same one."""
        turns = self.horizons[0].turns
        for piece in self.horizons:
            if step < piece.step:
                break
            turns = piece.turns
        return turns

    def write(self, path: Path) -> None:
        """Write the file to the path that the processes read."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.model_dump_json(indent=1))


@lru_cache(maxsize=8)
def read_stage_file(path: str) -> StageFile:
    """Return the stage file, read once per process."""
    return StageFile.model_validate_json(Path(path).read_text())


def horizons_of(steps: Mapping[int, int]) -> tuple[HorizonFrom, ...]:
    """Convert step -> horizon to the list of its changes."""
    pieces: list[HorizonFrom] = []
    for step in sorted(steps):
        if not pieces or pieces[-1].turns != steps[step]:
            pieces.append(HorizonFrom(step=step, turns=steps[step]))
    return tuple(pieces)
