"""Training jobs as data: the input that a flow hands to a training process, and its result. JSON both ways; no torch."""

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
from userrl_core.sink import Sink
from userrl_core.training.config import NO_ADAPTERS, AlgorithmConfig, ModelConfig, SftConfig

User = str | tuple[str, dict[str, Any]]


class TrainingJob(Settings):
    """The settings that all kinds of training share."""

    model: ModelConfig
    """The model; its path is used only without a checkpoint."""

    out_dir: Path
    """Folder of this job only. It holds the job's checkpoints; a restarted job continues from the newest."""

    seed: int = 0
    """Seed of every random draw."""

    device: str = "cpu"
    """Device of torch: cpu, cuda or cuda:0."""

    threads: PositiveInt = 2
    """Threads of one operation; a resume is exact only with the same number."""

    checkpoint_every: PositiveInt = 10
    """Steps between two checkpoints; the last step always has one."""

    keep_checkpoints: PositiveInt = 2
    """Number of newest checkpoints to keep, in addition to the best one."""


class SftJob(TrainingJob):
    """Supervised training on chats: the cold start, and rejection-sampling self-training."""

    sft: SftConfig
    """Optimisation settings."""

    chats: Path | None = None
    """JSONL of conversations in the format of `userrl_core.distill.write_chats`; needed for training, and for the
    tokenizer of a model from scratch.
    """

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
    """Name in records. None: the curriculum's name of each step, for a job that spans several stages."""

    algorithm: AlgorithmConfig
    """Settings of the update."""

    credit: CreditConfig = CreditConfig()
    """Shaping, scoring and filtering."""

    init: Path
    """Checkpoint to start from: the cold start's for the first stage, the previous stage's for the others (with its
    optimiser, generators and curriculum).
    """

    reference: Path | None = None
    """Reference model of the KL term (kl_coef, `policy/kl_reference/mean`): normally the cold start's."""

    first_step: PositiveInt = 1
    """Global number of the stage's first step, from 1."""

    last_step: PositiveInt
    """Global number of the stage's last step."""

    total_steps: PositiveInt | None = None
    """Steps of the whole run, for progress; None uses last_step."""

    seconds: tuple[Literal["cpu", "gpu"], PositiveFloat] | None = None
    """End the stage once its steps have used this much processor or GPU time, validation excluded, and at last_step
    at the latest.
    """

    timed: bool = False
    """Set when step times decide anything. Each step's time is then written down, and a repeated step uses the recorded time."""

    validation: list[Task] = Field(default_factory=list)
    """Tasks for choosing checkpoints; an empty list turns validation off."""

    validate_every: PositiveInt = 10
    """Steps between two validations; the first stage also validates before its first step."""

    validation_horizon: PositiveInt = 16
    """The run's final horizon, so that checkpoints of all stages are comparable."""

    validation_temperature: NonNegativeFloat = 0.0
    """Sampling temperature in validation; 0 is greedy. Validation has its own generator, which makes the same draws
    every time.
    """

    validation_top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    """Nucleus sampling threshold in validation; 1 keeps the whole distribution."""

    gym_config: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Options per gym."""

    users: User | dict[str, User] = "rule"
    """The users: a kind, (kind, options), or one of those per gym."""

    on_format_error: Literal["end", "continue"] = "end"
    """The effect on a conversation of a reply without a readable call."""

    judge: JudgeConfig | None = None
    """Judge of the turns in training conversations; None uses the gyms' rewards only."""

    intervention: InterventionConfig | None = None
    """Interruption of wrong steps in training conversations; None executes all steps."""

    max_rollout: PositiveInt = 256
    """Maximum conversations in one lock-step batch; the rest are played in further batches."""

    patience: NonNegativeFloat = 1800.0
    """Seconds to wait for a served user that went away before training gives up."""

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
    """The result of a finished job.

    checkpoint, id, sha256, step: the last checkpoint; sha256 is the hash of its weights. metrics: the last step's.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    checkpoint: Path
    id: str
    sha256: str
    step: NonNegativeInt
    best: Best | None = None
    metrics: dict[str, float] = {}


def begun_marker(out_dir: Path) -> Path:
    """Return the marker file that shows that a job of this folder has begun and logged.

    The marker is next to the folder, not inside. Deleting the folder to repeat the work must not make the logged
    steps count twice.
    """
    return out_dir.with_name(f".{out_dir.name}.begun")


ANEW = "anew"
"""The marker's text for a stage that begins anew from other weights. Later stages had begun from its earlier ones."""


def void_earlier_start(marker: Path, sink: Sink, stage: str, first_step: int, continued: int | None) -> None:
    """Void what an earlier start of an RL stage logged for steps that are played again.

    continued: the step that the stage continues from, None from its start on. Later stages may be reused: they void their
    own log where they are not.
    """
    # From its start on, a stage may begin at another step than before, and validates again.
    sink.event("rewind", stage=stage, step=-1 if continued is None else continued, scope="stage")
    if marker.read_text() == ANEW:
        sink.event("rewind", stage=stage, step=first_step - 1)  # with later stages


RlJob.model_rebuild()
