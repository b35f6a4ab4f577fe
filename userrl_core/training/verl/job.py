"""One verl stage as data: what a flow hands over, and what the processes of the stage read. No verl, torch or Ray here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from userrl_core.errors import ConfigError
from userrl_core.gyms.prompt import PromptStyle
from userrl_core.rewards.optional import OptionalTerms
from userrl_core.sink import Sink
from userrl_core.training.jobs import RlJob, SftJob, User

SINKS = "userrl.sinks"
"""Entry point group of sinks: a name and ``module:callable`` that opens one from keyword options."""

ALIVE = "alive"
"""Folder in a stage's own in which its rollout workers leave their signs of life."""

GPU_MEMORY = {"A100": 80.0, "H100": 80.0, "H200": 141.0, "B200": 180.0}
"""Memory of one GPU in GB, by the name that profiles use."""


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Cluster(_Settings):
    """Where verl runs, and how the model is cut up there."""

    gpus: PositiveInt = 8
    """GPUs per node."""

    nodes: PositiveInt = 1
    """Nodes; more than one needs a running Ray cluster (ray_address)."""

    sft_gpus: NonNegativeInt = 0
    """GPUs of the cold start, on one node; 0 takes as many as RL."""

    gpu_memory: PositiveFloat = 141.0
    """Memory of one GPU in GB."""

    tensor_parallel: PositiveInt = 1
    """GPUs that serve one copy of the policy in rollouts."""

    sequence_parallel: PositiveInt = 1
    """GPUs that share one long conversation in the update (Ulysses)."""

    offload: bool = False
    """Weights and optimizer state wait in host memory while conversations are played."""

    engine: str = "vllm"
    """Rollout engine, as verl names it."""

    engine_memory: float = Field(default=0.5, gt=0.0, lt=1.0)
    """Share of a GPU's memory that the rollout engine may take."""

    micro_tokens: PositiveInt | None = None
    """Most tokens of one forward pass of the update, per GPU; None: room for one conversation of full length."""

    workers: PositiveInt = 8
    """Processes that play conversations; each logs its own turns."""

    device: str = "cuda"
    """As verl names it."""

    python: str | None = None
    """Interpreter of the environment that has verl; None: this one."""

    ray_address: str | None = None
    """A running Ray cluster, such as ``auto``; None starts one for the stage on this machine."""

    env: dict[str, str] = {}
    """Environment variables of all processes of the stage."""

    overrides: tuple[str, ...] = ()
    """More verl overrides for RL; they have the last word."""

    sft_overrides: tuple[str, ...] = ()
    """More overrides for verl's SFT trainer."""

    @classmethod
    def of(cls, hardware: Mapping[str, Any]) -> Cluster:
        """The cluster that a recipe's ``hardware`` block describes; what concerns only flows is left out.

        Raises ConfigError for a GPU whose memory is neither known nor given.
        """
        known = {key: value for key, value in hardware.items() if key in cls.model_fields and value is not None}
        if known.get("gpus") == 0:
            known["gpus"] = 1
        kind = hardware.get("gpu")
        if "gpu_memory" not in known and kind is not None:
            name = next((name for name in GPU_MEMORY if name.lower() in str(kind).lower()), None)
            if name is None:
                raise ConfigError(f"The memory of GPU '{kind}' is not known; give hardware.gpu_memory in GB.")
            known["gpu_memory"] = GPU_MEMORY[name]
        try:
            return cls(**known)
        except ValueError as error:
            raise ConfigError(f"The hardware block does not describe a cluster: {error}") from error


class SinkSpec(_Settings):
    """How a worker process opens its turn log: an entry point of group ``userrl.sinks`` and its options."""

    name: str
    """Name of the entry point."""

    options: dict[str, Any] = {}
    """Keyword options."""

    def open(self) -> Sink:
        """This process's sink, the same one for the same spec. Raises ConfigError when there is no such entry point."""
        return _open(self.name, json.dumps(self.options, sort_keys=True))


@lru_cache(maxsize=8)
def _open(name: str, options: str) -> Sink:
    found = entry_points(group=SINKS, name=name)
    if not found:
        raise ConfigError(
            f"No installed package offers a sink '{name}' (entry point group {SINKS}); install userrl here."
        )
    sink: Sink = next(iter(found)).load()(**json.loads(options))
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

    max_prompt_tokens: PositiveInt = 1152
    """Most tokens of the opening messages."""

    kl_reward_coef: NonNegativeFloat = 0.0
    """Weight of a KL penalty that is taken off the turn rewards before credit is assigned."""

    step_timeout: PositiveFloat = 120.0
    """Seconds that gym and user may take for one turn."""

    policy_timeout: PositiveFloat = 600.0
    """Seconds that the rollout engine may take for one reply."""

    stall: PositiveFloat = 14400.0
    """Seconds without a finished step after which the stage counts as stuck."""


class VerlSftJob(SftJob):
    """The cold start on verl's SFT trainer."""

    cluster: Cluster = Cluster()
    """Machines."""

    stall: PositiveFloat = 7200.0
    """Seconds without any output after which the stage counts as stuck."""


class HorizonFrom(_Settings):
    """From this step on, conversations may have this many turns."""

    step: PositiveInt
    """Global step, from 1."""

    turns: PositiveInt
    """Horizon."""


class StageFile(_Settings):
    """What every process of a stage reads, as one plain JSON file: no recipe and no flow is needed to play."""

    stage: str
    """Name in records."""

    seed: int = 0
    """Fixes every random draw of gyms and users."""

    horizons: tuple[HorizonFrom, ...]
    """Ascending steps."""

    validation_horizon: PositiveInt
    """In validation."""

    on_format_error: Literal["end", "continue"] = "end"
    """What a reply without a readable call does."""

    prompt_style: PromptStyle = "full"
    """How conversations open."""

    gym_config: dict[str, dict[str, Any]] = {}
    """Options per gym."""

    users: User | dict[str, User] = "rule"
    """Who answers."""

    policy: str = "policy"
    """Who acts, as reports name it."""

    max_tokens: PositiveInt
    """Most tokens of one reply."""

    assignment: Literal["turn", "trajectory"] = "turn"
    """Where rewards lie: on the last token of each turn, or all on the last token of the last turn (PPO)."""

    attempts: NonNegativeInt = 0
    """Attempts after which a step's numbers are written, where no estimator of ours sees the step; 0: one does."""

    terms: OptionalTerms = OptionalTerms()
    """Optional reward terms of the recipe; the log keeps raw rewards."""

    step_timeout: PositiveFloat = 120.0
    """Seconds for gym and user, per turn."""

    policy_timeout: PositiveFloat = 600.0
    """Seconds for the rollout engine, per reply."""

    patience: NonNegativeFloat = 1800.0
    """Seconds that an attempt waits for its served user."""

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
