"""One verl stage as data: what a flow hands over, and what the processes of the stage read. No verl, torch or Ray here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from userrl_core.errors import ConfigError
from userrl_core.gyms.prompt import PromptStyle
from userrl_core.judging.config import InterventionConfig
from userrl_core.rewards import CreditConfig
from userrl_core.rewards.judge import JudgeConfig
from userrl_core.rewards.optional import OptionalTerms
from userrl_core.settings import Settings
from userrl_core.sink import Sink
from userrl_core.training.config import Cluster
from userrl_core.training.jobs import RlJob, SftJob, User

SINKS = "userrl.sinks"
"""Entry point group of sinks: a name and ``module:callable`` that opens one from keyword options."""

STAGE_ENV = "USERRL_STAGE_ENV"
"""Names, as a JSON list, of the environment variables that every process of a stage must have, wherever it runs."""

HEARTBEATS = "alive"
"""Folder in a stage's own in which its rollout workers leave their heartbeats."""

OUTAGES = "outages.jsonl"
"""File in a stage's own in which its rollout workers say that a served user is down and waited for."""


class SinkSpec(Settings):
    """How a worker process opens its turn log: an entry point of group ``userrl.sinks`` and its options."""

    name: str
    """Name of the entry point."""

    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword options."""

    def open(self) -> Sink:
        """This process's sink, the same one for the same spec. Raises ConfigError when there is no such entry point."""
        return _open(self.name, json.dumps(self.options, sort_keys=True))


@lru_cache(maxsize=8)
def _open(name: str, options: str) -> Sink:
    offered = entry_points(group=SINKS, name=name)
    if not offered:
        raise ConfigError(
            f"No installed package offers a sink '{name}' (entry point group {SINKS}); install userrl here."
        )
    sink: Sink = next(iter(offered)).load()(**json.loads(options))
    return sink


class VerlJob(RlJob):
    """One stage of reinforcement learning on verl. `RlJob.init` is a HF folder: the cold start's, or the stage before's."""

    stage: str = "rl-1"
    """Name in records."""

    cluster: Cluster = Cluster()
    """Machines."""

    sink: SinkSpec | None = None
    """Where worker processes log turns; None logs nothing."""

    policy: str = "policy"
    """Who acts, as reports name it."""

    step_timeout: PositiveFloat = 120.0
    """Seconds that gym and user may take for one turn."""

    policy_timeout: PositiveFloat = 600.0
    """Seconds that the rollout engine may take for one reply."""

    stall: PositiveFloat = 14400.0
    """Seconds without a finished step after which the stage counts as stuck."""

    first_stall: PositiveFloat = 5400.0
    """The same before the first step of a start, in which engines come up and the starting point is validated."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Where a stage starts. model: a HF folder or name. path: a verl checkpoint folder ``global_step_N``, or None.

    weights_only: take the step from the folder's name and nothing else; weights come from model, the optimizer is new.
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
    """From this step on, conversations may have this many turns."""

    step: PositiveInt
    """Global step, from 1."""

    turns: PositiveInt
    """Horizon."""


class StageFile(Settings):
    """What every process of a stage reads, as one plain JSON file: no recipe and no flow is needed to play."""

    stage: str
    """Name in records."""

    seed: int = 0
    """Fixes every random draw of gyms and users."""

    horizons: tuple[HorizonFrom, ...]
    """Ascending steps."""

    decided: bool = False
    """Whether further horizons are decided as the stage goes on, and read from its folder (`step_plan.decided_horizon`)."""

    greedy_baseline: bool = False
    """Whether one more conversation is played greedily for each group, for its others to be compared with (remax)."""

    validation_horizon: PositiveInt
    """In validation."""

    on_format_error: Literal["end", "continue"] = "end"
    """What a reply without a readable call does."""

    prompt_style: PromptStyle = "full"
    """How conversations open."""

    gym_config: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Options per gym."""

    users: User | dict[str, User] = "rule"
    """Who answers."""

    policy: str = "policy"
    """Who acts, as reports name it."""

    max_tokens: PositiveInt
    """Most tokens of one reply."""

    assignment: Literal["turn", "trajectory", "group"] = "turn"
    """Where rewards lie: on the last token of each turn, all on the last token of the last turn, or there the score normalised
    within its group (PPO)."""

    group: PositiveInt = 1
    """Trajectories of a group."""

    credit: CreditConfig = CreditConfig()
    """How a group's scores are made and normalised."""

    judge: JudgeConfig | None = None
    """Judges the turns of training's conversations, each as it ends."""

    intervention: InterventionConfig | None = None
    """Interrupts wrong steps of training's conversations."""

    attempts: NonNegativeInt = 0
    """Trajectories after which a step's numbers are written, where no estimator of ours sees the step; 0: one does."""

    terms: OptionalTerms = OptionalTerms()
    """Optional reward terms of the recipe; the log keeps raw rewards."""

    step_timeout: PositiveFloat = 120.0
    """Seconds for gym and user, per turn."""

    policy_timeout: PositiveFloat = 600.0
    """Seconds for the rollout engine, per reply."""

    patience: NonNegativeFloat = 1800.0
    """Seconds that a trajectory waits for its served user."""

    sink: SinkSpec | None = None
    """Where turns are logged."""

    folder: Path
    """Where workers leave what ends the stage (``fatal``) and what each step held (``steps.jsonl``)."""

    def horizon(self, step: int) -> int:
        """The horizon of a step: a pure function, so that a resumed run cannot see another one."""
        turns = self.horizons[0].turns
        for piece in self.horizons:
            if step < piece.step:
                break
            turns = piece.turns
        return turns

    def write(self, path: Path) -> None:
        """Put the file where the processes read it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.model_dump_json(indent=1))


@lru_cache(maxsize=8)
def read_stage_file(path: str) -> StageFile:
    """The stage file, read once per process."""
    return StageFile.model_validate_json(Path(path).read_text())


def horizons_of(steps: Mapping[int, int]) -> tuple[HorizonFrom, ...]:
    """Step -> horizon as its changes only."""
    pieces: list[HorizonFrom] = []
    for step in sorted(steps):
        if not pieces or pieces[-1].turns != steps[step]:
            pieces.append(HorizonFrom(step=step, turns=steps[step]))
    return tuple(pieces)
