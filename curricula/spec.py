"""The blocks of a recipe: a pydantic model each, a sentence under every field. `recipe.Recipe` puts them together."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from curricula.options import check_options, check_url
from curricula.schedule import Gate, Turns
from userrl_core.settings import Count, Settings
from userrl_core.training.config import Cluster

FOLDER = "published"
"""``gyms.NAME.published`` of a gym that is played on the folder of published data."""
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class UserSetup(Settings):
    """Who answers inside a gym."""

    kind: str = "rule"
    """rule (offline, seeded), openai (any OpenAI-compatible server) or human."""

    options: dict[str, Any] = Field(default_factory=dict)
    """Options of that kind: for openai the fields of `ChatServer`, such as model and base_url; for rule those of the gym's
    own user, such as wish's manner; human has none."""

    @model_validator(mode="after")
    def _known(self) -> UserSetup:
        check_options(self.kind, self.options)
        return self

    def as_argument(self) -> str | tuple[str, dict[str, Any]]:
        """What the rollout's ``user`` parameter takes."""
        return (self.kind, dict(self.options)) if self.options else self.kind


def _user(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


User = Annotated[UserSetup, BeforeValidator(_user)]


class GymSetup(Settings):
    """How one gym is set up in this recipe."""

    tasks: dict[str, Any] = Field(default_factory=dict)
    """Options of the gym's task list, such as tier."""

    config: dict[str, Any] = Field(default_factory=dict)
    """Fields of the gym's own config, such as reward values."""

    evaluation: dict[str, Any] = Field(default_factory=dict)
    """Fields of that config that differ in the held-out evaluation, such as the reward values of a released script."""

    user: User = UserSetup()
    """Who answers: a kind, or kind and options."""

    only: tuple[str, ...] = ()
    """Tiers of the gym's test tasks that are evaluated, of travel compositions too (easy, 22); none: all."""

    published: str | None = None
    """Other tasks in place of our own: the root of a copy of the released repository, a .jsonl file of tasks, imported
    (what `userrl tasks import` brought into this home), or published (the recipe's data_folder; `data` writes it)."""


class Demonstrations(Settings):
    """What is distilled before the cold start (UserRL 4.1 and appendix E)."""

    policy: str = "scripted"
    """Who demonstrates: scripted, or the name of a served model."""

    user: User | None = UserSetup()
    """Who answers while demonstrations are made; none: each gym's own user, as in training."""

    skill: Share = 1.0
    """Skill of the scripted demonstrator, 0 to 1; ignored for a served model."""

    episodes: Count | None = None
    """Trajectories made per gym; none: every training task once per trajectory."""

    attempts: Count = 1
    """Trajectories at each task."""

    top_k: PositiveInt = 1000
    """Trajectories kept in all, the best of every gym; their tasks leave the RL set."""

    horizon: Turns | None = None
    """Most turns of a demonstration; none: the evaluation's horizon."""

    temperature: NonNegativeFloat = 0.0
    """Sampling temperature of a served demonstrator."""


class Evolve(Settings):
    """AgentEvol in place of RL: sample, keep what succeeded, fine-tune the first model on all that was kept, again.

    AgentGym-RL 3.2.2. As in AgentGym's released code every iteration begins with the model before any fine-tuning, and what
    it is trained on grows: demonstrations, then the successes of every iteration.
    """

    iterations: Count = 4
    """How often (released code: 4)."""

    tasks: PositiveInt | None = None
    """Training tasks sampled per gym and iteration; none: all."""

    attempts: Count = 1
    """Trajectories at each of them."""

    temperature: NonNegativeFloat = 1.0
    """Sampling temperature; the released multi-task script samples greedily, its webshop script at 1.2."""

    horizon: Turns | None = None
    """Most turns of what is sampled; none: the evaluation's."""


class Stage(Settings):
    """A span of training steps with its own horizon and task mix."""

    steps: PositiveInt | None = None
    """Length in training steps (with gates: at most)."""

    epochs: PositiveFloat | None = None
    """Length in passes over the RL tasks, in place of steps."""

    pool: PositiveInt | None = None
    """Tasks of one pass, as they were counted when the recipe was loaded under a profile; none: rl_tasks."""

    tokens: PositiveInt | None = None
    """Length in tokens, openings and observations included, in place of steps; needs algorithm.batch_tokens, which divides it
    into steps."""

    cpu_seconds: PositiveFloat | None = None
    """Length in processor time of its training steps, validations apart (local backend); steps beside it: at most so many."""

    gpu_seconds: PositiveFloat | None = None
    """The same in seconds on the GPU."""

    horizon: Turns | None = None
    """Most agent turns; left out where a schedule gives it."""

    mix: dict[str, Annotated[float, Field(gt=0.0, allow_inf_nan=False)]] = Field(default_factory=dict)
    """Gyms and their weights."""

    weigh: Literal["gyms", "tasks", "tokens"] = "gyms"
    """gyms: weights are shares of a batch's tasks; tokens: shares of its tokens, by what each gym's tasks have cost so far
    (local backend); tasks: all gyms' tasks are shuffled into one list, as the papers do."""

    alternate: tuple[str, ...] = ()
    """Gyms that take turns batch by batch (TARL section 4.1), in place of a mixed batch."""

    tasks: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Task options per gym in this stage alone, such as a simpler tier for a warm-up."""

    gates: Gate | None = None
    """Ends the stage early once it opens; the steps saved go to the last stage."""

    oversample: Share = 0.0
    """Share of a batch drawn again from tasks whose last group was mixed, neither all-good nor all-bad (after DAPO)."""

    @model_validator(mode="after")
    def _sensible(self) -> Stage:
        if self.cpu_seconds is not None and self.gpu_seconds is not None:
            raise ValueError("give cpu_seconds or gpu_seconds, one of them")
        lengths = (self.steps, self.epochs, self.tokens) if not self.timed else (self.epochs, self.tokens)
        if sum(length is not None for length in lengths) != (not self.timed):
            raise ValueError("give steps, epochs, tokens, cpu_seconds or gpu_seconds, one of them")
        if self.timed and self.gates is not None:
            raise ValueError("a stage in seconds has no gates; give gates.cpu_seconds, or leave them out")
        if not self.mix and not self.alternate:
            raise ValueError("the mix is empty; name at least one gym, such as mix: {travel: 1}")
        for gym in self.alternate:
            if self.mix and gym not in self.mix:
                raise ValueError(f"alternate names '{gym}', which the mix lacks")
        return self

    @property
    def timed(self) -> bool:
        """Whether its length is in seconds, so that only training shows how many steps it has."""
        return self.cpu_seconds is not None or self.gpu_seconds is not None

    @property
    def gyms(self) -> tuple[str, ...]:
        """All gyms of the stage."""
        return tuple(self.mix) if self.mix else tuple(dict.fromkeys(self.alternate))


class Evaluate(Settings):
    """The held-out evaluation, and the validation that chooses the checkpoint."""

    horizon: Turns = 16
    """Most agent turns, also in validation."""

    temperature: NonNegativeFloat = 0.0
    """Sampling temperature; 0 is greedy."""

    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    """Nucleus of sampling, also in validation; none: training's, where the temperature is above 0."""

    gyms: Literal["all"] | tuple[str, ...] = "all"
    """Gyms evaluated on their test split: all (the eight of the paper), or some."""

    tasks: PositiveInt | None = None
    """Test tasks per gym; none: all of them."""

    total: PositiveInt | None = None
    """Test tasks in all, shared equally among the gyms as far as each has them; none: tasks per gym."""

    attempts: Count = 1
    """Trajectories per task; pass^k needs k or more."""

    user: User | None = None
    """Who answers in the evaluation; none: as in training."""

    draw: Literal["same", "seed"] = "same"
    """Which of the test tasks, where there are more: the same for every seed, or drawn by the run's seed."""

    last: PositiveInt = 1
    """Newest checkpoints of training that are played on the test tasks, the last step among them."""

    every: PositiveInt = 25
    """Training steps between two validations."""

    validation_tasks: PositiveInt = 64
    """Validation tasks in all."""


class SplitConfig(Settings):
    """Which tasks are trained on, chosen on and tested on."""

    validation: Share = 0.05
    """Share of published training tasks that checkpoints are chosen on (UserRL appendix E); our own tasks have theirs."""

    test: Share = 0.2
    """Share of our own tasks that is test: always 0.2, by a hash of the task. Published tasks keep their split."""

    held_out: tuple[str, ...] = ("intention", "telepathy", "search")
    """Gyms that are never trained on (UserRL 4.1)."""

    @model_validator(mode="after")
    def _fixed(self) -> SplitConfig:
        if self.test != 0.2:
            raise ValueError(
                "test is 0.2 for our own tasks, and published tasks keep their split; leave it out, or import tasks split as you "
                "want them (gyms.NAME.published)"
            )
        return self


class Hardware(Cluster):
    """The machine a profile is made for: where the policy trains, and who serves the model that plays users."""

    backend: Literal["local", "verl"] = "local"
    """Training backend that backend=auto means."""

    threads: PositiveInt | None = None
    """Threads of one operation on a CPU, where $USERRL_THREADS does not say it; none: 2. A resume is exact only with the same
    number. One is best for the smallest models, whose operations are too small to divide."""

    user_model: str | None = None
    """Model served as the user while training, where the user is no rule."""

    user_url: str | None = None
    """Where user_model is served already: the /v1 address of an OpenAI-compatible server."""

    user_gpus: str | None = None
    """GPUs of this machine, such as "6,7", on which a run serves user_model itself for as long as it lasts (vLLM)."""

    user_port: Annotated[int, Field(ge=1, le=65535)] = 8000
    """Port of the server that a run starts; runs that share a machine need one each, or a common user_url."""

    user_command: str | None = None
    """Another server than vLLM's to start in its place; {port} is filled in."""

    checkpoint_engine: Literal["auto", "vllm", "local"] = "auto"
    """Who speaks for a checkpoint in evaluations and in AgentEvol's sampling: vllm, started from python on the GPUs of the stage,
    or local, our own decoder. auto: vllm where the stage has GPUs and python, or $USERRL_VLLM_PYTHON, names its interpreter.
    Validation within a training is the trainer's."""

    @model_validator(mode="after")
    def _no_password(self) -> Hardware:
        if self.user_url is not None:
            check_url(self.user_url, "user_url")
        return self
