"""One piece of training as data: what a flow hands to a training process, and what it gets back. JSON both ways; no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from userrl_core.judging.config import InterventionConfig
from userrl_core.records import Task
from userrl_core.rewards import CreditConfig
from userrl_core.rewards.judge import JudgeConfig
from userrl_core.settings import Settings
from userrl_core.training.config import NO_ADAPTERS, AlgorithmConfig, ModelConfig, SftConfig

User = str | tuple[str, dict[str, Any]]


class TrainingJob(Settings):
    """What all trainings share."""

    model: ModelConfig
    """The model; its path is used only where no checkpoint is given."""

    out_dir: Path
    """Folder of this job alone; its checkpoints lie here, and a job started again continues from the newest."""

    seed: int = 0
    """Fixes every random draw."""

    device: str = "cpu"
    """Where torch computes: cpu, cuda or cuda:0."""

    threads: PositiveInt = 2
    """Threads of one operation; a resume is exact only with the same number."""

    checkpoint_every: PositiveInt = 10
    """Steps between two checkpoints; the last step always has one."""

    keep_checkpoints: PositiveInt = 2
    """Newest checkpoints that are kept, besides the best one."""


class SftJob(TrainingJob):
    """Supervised training on chats: the cold start, and rejection-sampling self-training."""

    sft: SftConfig
    """Optimisation."""

    chats: Path | None = None
    """JSONL of conversations as `userrl_core.distill.write_chats` writes them; needed to train, and for the tokenizer of a
    model from scratch."""

    init: Path | None = None
    """A checkpoint to start from instead of `model`."""

    stage: str = "sft"
    """Name in records."""

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> SftJob:
        if self.chats is None and (self.sft.enabled or (self.init is None and self.model.path is None)):
            raise ValueError(
                "supervised training and a model from scratch both need chats; give a file of demonstrations."
            )
        if self.sft.enabled and self.sft.lora is not None and self.init is None and self.model.path is None:
            raise ValueError(NO_ADAPTERS)
        return self


class RlJob(TrainingJob):
    """One stage of reinforcement learning: steps first_step to last_step of a run."""

    stage: str | None = None
    """Name in records; None: the curriculum's name of each step, for a job that spans several stages."""

    algorithm: AlgorithmConfig
    """The update."""

    credit: CreditConfig = CreditConfig()
    """Shaping, scoring and filtering."""

    init: Path
    """Checkpoint to start from: the cold start's for the first stage, the stage before for the others (its optimiser,
    generators and curriculum go on)."""

    reference: Path | None = None
    """Model that the distance is measured to (kl_coef, `policy/kl_reference/mean`): normally the cold start's."""

    first_step: PositiveInt = 1
    """Global number of the stage's first step, from 1."""

    last_step: PositiveInt
    """Global number of the stage's last step."""

    total_steps: PositiveInt | None = None
    """Steps of the whole run, for progress; last_step when not given."""

    seconds: tuple[Literal["cpu", "gpu"], PositiveFloat] | None = None
    """The stage ends once its steps have used this much time on the processor or the GPU, validations apart; last_step at most."""

    timed: bool = False
    """Whether what a step took decides anything: then it is written down, and a step that is played again took the same."""

    validation: list[Task] = Field(default_factory=list)
    """Tasks that checkpoints are chosen on; none turns validation off."""

    validate_every: PositiveInt = 10
    """Steps between two validations; the first stage also validates before its first step."""

    validation_horizon: PositiveInt = 16
    """The run's final horizon, so that checkpoints of all stages compare."""

    validation_temperature: NonNegativeFloat = 0.0
    """Of sampling in validation; 0 is greedy. Draws come from a generator of their own, the same for every validation."""

    validation_top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    """Nucleus of sampling in validation; 1 keeps the whole distribution."""

    gym_config: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Options per gym."""

    users: User | dict[str, User] = "rule"
    """Who answers: a kind, (kind, options), or one of those per gym."""

    on_format_error: Literal["end", "continue"] = "end"
    """What a reply without a readable call does to a conversation."""

    judge: JudgeConfig | None = None
    """Judges the turns of training's conversations; None: the gyms' rewards alone."""

    intervention: InterventionConfig | None = None
    """Interrupts wrong steps of training's conversations; None: all are carried out."""

    max_rollout: PositiveInt = 256
    """Most conversations in one lock-step batch; more are played one batch after the other."""

    patience: NonNegativeFloat = 1800.0
    """Seconds that training waits for a served user that went away, before it gives up."""

    best: Best | None = None
    """The best checkpoint of earlier stages."""

    @model_validator(mode="after")
    def _steps_ascend(self) -> RlJob:
        if self.last_step < self.first_step:
            raise ValueError(f"The stage ends at step {self.last_step}, before its first step {self.first_step}.")
        if self.algorithm.kl_coef > 0 and self.reference is None:
            raise ValueError(
                "algorithm.kl_coef needs a reference model; give the cold start's checkpoint as reference."
            )
        return self


class Best(BaseModel):
    """The checkpoint with the highest validation score so far; the earlier one at a tie."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Path
    id: str
    step: NonNegativeInt
    score: float


class StageResult(BaseModel):
    """What a finished job left behind.

    checkpoint, id, sha256, step: the last checkpoint; sha256 is that of its weights. metrics: the last step's.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    checkpoint: Path
    id: str
    sha256: str
    step: NonNegativeInt
    best: Best | None = None
    metrics: dict[str, float] = {}


def begun_marker(out_dir: Path) -> Path:
    """The file that says that a job of this folder began before, and logged. Beside the folder, not in it: who deletes the
    folder to have the work done again must not make what was logged count twice."""
    return out_dir.with_name(f".{out_dir.name}.begun")


RlJob.model_rebuild()
