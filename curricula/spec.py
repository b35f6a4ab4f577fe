"""The blocks of a recipe: one pydantic model each, with a sentence under every field. `recipe.Recipe` combines them."""

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

from curricula.gate import Gate
from curricula.options import USER_OPTIONS, check_options, check_url
from curricula.schedule import Turns
from userrl_core.errors import ConfigError
from userrl_core.gyms.population import population
from userrl_core.served.client import ChatServer
from userrl_core.settings import Count, Settings
from userrl_core.training.config import Cluster

FOLDER = "published"
"""``gyms.NAME.published`` of a gym that uses the folder of published data."""
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class UserSetup(Settings):
    """The user inside a gym."""

    kind: str = "rule"
    """rule (offline, seeded), openai (any OpenAI-compatible server) or human."""

    options: dict[str, Any] = Field(default_factory=dict)
    """Options of that kind. openai: the fields of `ChatServer`, such as model and base_url. rule: the options of the
    gym's own user, such as wish's manner. human: none.
    """

    population: str | dict[str, Any] | None = None
    """The users to draw from (wish, travel, tau): plain, vague, both, wide, shifted, slips, rough, or ranges of traits.
    Each task meets one user. null: the gym's one user.
    """

    @model_validator(mode="after")
    def _known(self) -> UserSetup:
        check_options(self.kind, self.options)
        if self.population is not None:
            population(self.population)
            if self.kind == "human":
                raise ConfigError("user.bad_option", "a human user is not drawn from a population; omit population")
        return self

    def as_argument(self) -> str | tuple[str, dict[str, Any]]:
        """Return the value for the rollout's ``user`` parameter."""
        drawn_from = {} if self.population is None else {"population": self.population}
        options = {**self.options, **drawn_from}
        return (self.kind, options) if options else self.kind


def _user(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


User = Annotated[UserSetup, BeforeValidator(_user)]


class GymSetup(Settings):
    """A gym's settings in this recipe."""

    tasks: dict[str, Any] = Field(default_factory=dict)
    """Options of the gym's task list, such as tier."""

    config: dict[str, Any] = Field(default_factory=dict)
    """Fields of the gym's own config, such as reward values."""

    evaluation: dict[str, Any] = Field(default_factory=dict)
    """Fields of that config that differ in the held-out evaluation, such as the reward values of a released script."""

    user: User = UserSetup()
    """The user: a kind, or kind and options."""

    only: tuple[str, ...] = ()
    """Tiers of the gym's test tasks to evaluate, for travel also compositions (easy, 22); empty: all."""

    published: str | None = None
    """Tasks that replace our own: the root of a copy of the released repository, a .jsonl file of tasks, imported
    (the result of `userrl tasks import` in this home), or published (the recipe's data_folder; `data` writes it).
    """


class Demonstrations(Settings):
    """Demonstrations to distil before the cold start (UserRL 4.1 and appendix E)."""

    policy: str = "scripted"
    """The demonstrator: scripted, or the name of a served model."""

    user: User | None = UserSetup()
    """The user during demonstrations; null: each gym's own user, as in training."""

    skill: Share = 1.0
    """Skill of the scripted demonstrator, 0 to 1. A served model ignores it."""

    episodes: Count | None = None
    """Trajectories per gym; null: every training task, attempts times."""

    attempts: Count = 1
    """Trajectories at each task."""

    top_k: PositiveInt = 1000
    """Trajectories kept in all, the best of every gym. Their tasks leave the RL set."""

    horizon: Turns | None = None
    """Maximum turns of a demonstration; null: the evaluation's horizon."""

    temperature: NonNegativeFloat = 0.0
    """Sampling temperature of a served demonstrator."""

    server: dict[str, Any] = Field(default_factory=dict)
    """Further options of a served demonstrator, as of a served user: base_url, timeout, token_field, extra_body ...
    Its temperature wins over the one above; null takes the server's.
    """

    @model_validator(mode="after")
    def _known(self) -> Demonstrations:
        if foreign := [name for name in ("model", *USER_OPTIONS) if name in self.server]:
            raise ConfigError(
                "recipe.unknown_key", f"server has no option '{foreign[0]}'; the model's name is demonstrations.policy"
            )
        check_options("openai", self.server)
        return self

    @property
    def chat_server(self) -> ChatServer:
        """The server of a served demonstrator."""
        return ChatServer(**{"model": self.policy, "temperature": self.temperature, **self.server})


class Evolve(Settings):
    """AgentEvol, which replaces RL: sample, keep the successes, fine-tune the first model on everything kept, repeat.

    AgentGym-RL 3.2.2. Every iteration begins with the model before any fine-tuning, as in AgentGym's released code.
    Its training data grow: demonstrations, then the successes of every iteration.
    """

    iterations: Count = 4
    """Number of iterations (released code: 4)."""

    tasks: PositiveInt | None = None
    """Training tasks sampled per gym and iteration; null: all."""

    attempts: Count = 1
    """Trajectories at each task."""

    temperature: NonNegativeFloat = 1.0
    """Sampling temperature. The released multi-task script samples greedily, its webshop script at 1.2."""

    horizon: Turns | None = None
    """Maximum turns of a sampled trajectory; null: the evaluation's."""


class Stage(Settings):
    """A span of training steps with its own horizon and task mix."""

    steps: PositiveInt | None = None
    """Length in training steps (with gates: the maximum)."""

    epochs: PositiveFloat | None = None
    """Length in passes over the RL tasks instead of steps."""

    pool: PositiveInt | None = None
    """Tasks of one pass, counted when the recipe was loaded under a profile; null: rl_tasks."""

    tokens: PositiveInt | None = None
    """Length in tokens instead of steps, with openings and observations. Needs algorithm.batch_tokens, which divides
    it into steps.
    """

    cpu_seconds: PositiveFloat | None = None
    """Length in processor time of its training steps, without validations (local backend). A value of steps is then
    the maximum.
    """

    gpu_seconds: PositiveFloat | None = None
    """Length in seconds on the GPU."""

    horizon: Turns | None = None
    """Maximum agent turns; left out if a schedule gives it."""

    mix: dict[str, Annotated[float, Field(gt=0.0, allow_inf_nan=False)]] = Field(default_factory=dict)
    """Gyms and their weights."""

    weigh: Literal["gyms", "tasks", "tokens"] = "gyms"
    """gyms: weights are shares of a batch's tasks. tokens: shares of its tokens, by the cost of each gym's tasks so
    far (local backend). tasks: all gyms' tasks are shuffled into one list, as in the papers.
    """

    alternate: tuple[str, ...] = ()
    """Gyms that take turns batch by batch (TARL section 4.1), instead of a mixed batch."""

    tasks: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Task options per gym in this stage only, such as a simpler tier for a warm-up."""

    gates: Gate | None = None
    """Gate that ends the stage early. The last stage gets the saved steps."""

    oversample: Share = 0.0
    """Share of a batch drawn again from tasks whose last group was mixed, neither all-good nor all-bad (after DAPO)."""

    @model_validator(mode="after")
    def _sensible(self) -> Stage:
        if self.cpu_seconds is not None and self.gpu_seconds is not None:
            raise ConfigError("recipe.conflict", "give either cpu_seconds or gpu_seconds")
        lengths = (self.steps, self.epochs, self.tokens) if not self.timed else (self.epochs, self.tokens)
        if sum(length is not None for length in lengths) != (not self.timed):
            raise ConfigError(
                "recipe.conflict", "give exactly one of steps, epochs, tokens, cpu_seconds and gpu_seconds"
            )
        if self.timed and self.gates is not None:
            raise ConfigError(
                "recipe.conflict",
                "a stage with its length in seconds has no gates; give gates.cpu_seconds, or omit them",
            )
        if not self.mix and not self.alternate:
            raise ConfigError("recipe.missing_key", "the mix is empty; name at least one gym, such as mix: {travel: 1}")
        for gym in self.alternate:
            if self.mix and gym not in self.mix:
                raise ConfigError("recipe.conflict", f"alternate names '{gym}', which is not in the mix")
        return self

    @property
    def timed(self) -> bool:
        """Return whether the length is in seconds, so that only training shows the number of steps."""
        return self.cpu_seconds is not None or self.gpu_seconds is not None

    @property
    def gyms(self) -> tuple[str, ...]:
        """All gyms of the stage."""
        return tuple(self.mix) if self.mix else tuple(dict.fromkeys(self.alternate))


class Evaluate(Settings):
    """The held-out evaluation, and the validation that chooses the checkpoint."""

    horizon: Turns = 16
    """Maximum agent turns, also in validation."""

    temperature: NonNegativeFloat = 0.0
    """Sampling temperature; 0 is greedy."""

    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    """Nucleus of sampling, also in validation; null: training's, if the temperature is above 0."""

    gyms: Literal["all"] | tuple[str, ...] = "all"
    """Gyms whose test split is evaluated: all (the eight of the paper), or some."""

    tasks: PositiveInt | None = None
    """Test tasks per gym; null: all."""

    total: PositiveInt | None = None
    """Test tasks in all, shared equally among the gyms as far as each has them; null: tasks per gym."""

    attempts: Count = 1
    """Trajectories per task; pass^k needs k or more."""

    user: User | None = None
    """The user in the evaluation; null: as in training."""

    draw: Literal["same", "seed"] = "same"
    """Selection of test tasks if there are more: the same for every seed, or drawn by the run's seed."""

    last: PositiveInt = 1
    """Newest training checkpoints to evaluate on the test tasks, the last step among them."""

    every: PositiveInt = 25
    """Training steps between two validations."""

    validation_tasks: PositiveInt = 64
    """Validation tasks in all."""


class SplitConfig(Settings):
    """Tasks for training, for the choice of checkpoints, and for testing."""

    validation: Share = 0.05
    """Share of published training tasks for validation (UserRL appendix E). Our own tasks have their own share."""

    test: Share = 0.2
    """Share of our tasks for testing: always 0.2, by a hash of the task. Published tasks keep their split."""

    held_out: tuple[str, ...] = ("intention", "telepathy", "search")
    """Gyms that are never trained on (UserRL 4.1)."""

    @model_validator(mode="after")
    def _fixed(self) -> SplitConfig:
        if self.test != 0.2:
            raise ConfigError(
                "recipe.invalid_value",
                "test is 0.2 for our own tasks, and published tasks keep their split; omit it, or import "
                "tasks with your own split (gyms.NAME.published)",
            )
        return self


class Hardware(Cluster):
    """The machine of a profile: where the policy trains, and the server of the model that simulates users."""

    backend: Literal["local", "verl"] = "local"
    """Training backend for backend=auto."""

    threads: PositiveInt | None = None
    """Threads on a CPU, unless $USERRL_THREADS is set; null: 2. A resume is exact only with the same number. They divide
    each operation; in the update of a bfloat16 model with more than 8,192 tokens each has a micro-batch of its own. One is
    best for the smallest models, whose operations are too small to divide.
    """

    user_model: str | None = None
    """Model served as the user during training, unless the user is a rule."""

    user_url: str | None = None
    """The /v1 address of an OpenAI-compatible server that already serves user_model."""

    user_gpus: str | None = None
    """GPUs of this machine, such as "6,7", on which the run itself serves user_model (vLLM)."""

    user_port: Annotated[int, Field(ge=1, le=65535)] = 8000
    """Port of the server that a run starts. Runs on one machine need different ports, or a common user_url."""

    user_command: str | None = None
    """Command of another server than vLLM; {port} is filled in."""

    checkpoint_engine: Literal["auto", "vllm", "local"] = "auto"
    """Inference for a checkpoint in evaluations and in AgentEvol's sampling. vllm: a server started from python on
    the GPUs of the stage. local: our own decoder. auto: vllm if the stage has GPUs and python, or
    $USERRL_VLLM_PYTHON, names its interpreter. The trainer does the validation within a training.
    """

    @model_validator(mode="after")
    def _no_password(self) -> Hardware:
        if self.user_url is not None:
            check_url(self.user_url, "user_url")
        return self
