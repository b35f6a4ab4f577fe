"""The blocks of a recipe: a pydantic model each, a sentence under every field. `recipe.Recipe` puts them together."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from curricula.schedule import Gate

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Block(BaseModel):
    """A frozen part of a recipe; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, protected_namespaces=())


class UserSetup(Block):
    """Who answers inside a gym."""

    kind: str = "rule"
    """rule (offline, seeded), openai (any OpenAI-compatible server) or human."""

    options: dict[str, Any] = Field(default_factory=dict)
    """Options of that kind, such as model and base_url."""

    def as_argument(self) -> str | tuple[str, dict[str, Any]]:
        """What the rollout's ``user`` parameter takes."""
        return (self.kind, dict(self.options)) if self.options else self.kind


def _user(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


User = Annotated[UserSetup, BeforeValidator(_user)]


class GymSetup(Block):
    """How one gym is set up in this recipe."""

    tasks: dict[str, Any] = Field(default_factory=dict)
    """Options of the gym's task list, such as tier."""

    config: dict[str, Any] = Field(default_factory=dict)
    """Fields of the gym's own config, such as reward values."""

    user: User = UserSetup()
    """Who answers: a kind, or kind and options."""

    published: str | None = None
    """Root of a copy of the released repository; its tasks are then used in place of our own."""


class Demonstrations(Block):
    """What is distilled before the cold start (UserRL 4.1 and appendix E)."""

    policy: str = "scripted"
    """Who demonstrates: scripted, or the name of a served model."""

    user: User = UserSetup()
    """Who answers while demonstrations are made."""

    skill: Share = 1.0
    """Skill of the scripted demonstrator, 0 to 1; ignored for a served model."""

    episodes: PositiveInt | None = None
    """Attempts made per gym; none: every training task once per attempt."""

    attempts: PositiveInt = 1
    """Attempts at each task."""

    top_k: PositiveInt = 1000
    """Trajectories kept in all, the best of every gym; their tasks leave the RL set."""

    horizon: PositiveInt | None = None
    """Most turns of a demonstration; none: the evaluation's horizon."""

    temperature: NonNegativeFloat = 0.0
    """Sampling temperature of a served demonstrator."""


class ColdStart(Block):
    """Supervised fine-tuning on the demonstrations before RL."""

    enabled: bool = True
    """False starts RL from the model as it is."""

    epochs: PositiveFloat | None = None
    """Passes over the demonstrations; give this or steps."""

    steps: PositiveInt | None = None
    """Optimizer steps; wins over epochs where both are given."""

    lr: PositiveFloat = 1e-5
    """Peak learning rate."""

    schedule: Literal["cosine", "constant", "linear"] = "cosine"
    """Learning-rate schedule after the warm-up."""

    warmup: Share = 0.1
    """Share of the steps in which the learning rate rises."""

    cutoff: PositiveInt = 16384
    """Longest conversation in tokens; what is longer is cut."""

    batch: PositiveInt = 32
    """Conversations per optimizer step, over all devices."""

    weight_decay: NonNegativeFloat = 0.0
    """AdamW weight decay."""


class Architecture(Block):
    """A Qwen3 model trained from scratch."""

    hidden: PositiveInt = 128
    """Width of the residual stream."""

    layers: PositiveInt = 2
    """Transformer layers."""

    heads: PositiveInt = 4
    """Attention heads."""

    kv_heads: PositiveInt = 2
    """Key-value heads; divides heads."""

    head_dim: PositiveInt = 32
    """Width of a head."""

    mlp: PositiveInt = 384
    """Width of the feed-forward layer."""

    initializer_range: PositiveFloat = 0.08
    """Standard deviation of the initial weights; 0.02 stalls at this size."""

    vocab_size: PositiveInt = 512
    """Tokens of the byte-level BPE that is trained on the demonstrations."""

    @model_validator(mode="after")
    def _heads_divide(self) -> Architecture:
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads {self.kv_heads} must divide heads {self.heads}")
        return self


class Model(Block):
    """Which weights are trained: a checkpoint, or an architecture from scratch. Neither: the profile chooses."""

    path: str | None = None
    """A Hugging Face checkpoint: a folder or a name."""

    architecture: Architecture | None = None
    """Trained from scratch when given."""

    prompt_style: Literal["brief", "full"] = "full"
    """full for pretrained models; brief is the shortest message that states the task."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Number format of weights and activations in training."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Model:
        if self.path is not None and self.architecture is not None:
            raise ValueError("give model.path or model.architecture, not both (set the other to null)")
        return self


class Algorithm(Block):
    """The policy-gradient algorithm and its optimisation."""

    name: Literal["grpo", "rloo", "ppo", "reinforce_pp", "dpo", "rejection"] = "grpo"
    """grpo, rloo, ppo and reinforce_pp learn from fresh rollouts; dpo and rejection from logged ones."""

    clip: PositiveFloat = 0.2
    """Clip of the probability ratio, both sides."""

    clip_high: PositiveFloat | None = None
    """Upper clip where it differs from the lower one."""

    dual_clip: float | None = Field(default=None, gt=1.0)
    """Bound of the loss on negative advantages, above 1 (verl's default is 3); none switches it off."""

    kl_coef: NonNegativeFloat = 0.0
    """Weight of the KL term to the initial model in the loss (low_var_kl)."""

    kl_reward_coef: NonNegativeFloat = 0.0
    """Weight of a KL penalty taken off the rewards before the advantage."""

    entropy: NonNegativeFloat = 0.0
    """Weight of the entropy bonus."""

    entropy_mask: float | None = Field(default=None, gt=0.0, le=1.0)
    """Only this share of the tokens, those of highest entropy, carries the loss (TARL section 5: 0.2); none: all."""

    group: PositiveInt = 8
    """Attempts at each task in a step."""

    batch: PositiveInt = 128
    """Tasks per step."""

    minibatches: PositiveInt = 1
    """Optimizer steps per pass over a batch."""

    inner_epochs: PositiveInt = 1
    """Passes over a batch."""

    lr: PositiveFloat = 1e-6
    """Learning rate of the policy, constant after the warm-up."""

    warmup_steps: NonNegativeInt = 0
    """Optimizer steps in which the learning rate rises."""

    betas: tuple[Share, Share] = (0.9, 0.999)
    """AdamW's decay rates."""

    weight_decay: NonNegativeFloat = 0.01
    """AdamW weight decay."""

    grad_norm: PositiveFloat = 1.0
    """Gradient norm is clipped to this."""

    loss_aggregation: Literal["trajectory_mean", "token_mean"] = "trajectory_mean"
    """trajectory_mean: mean over a trajectory's tokens, then over trajectories (the papers); token_mean: over all."""

    temperature: PositiveFloat = 1.0
    """Sampling temperature of rollouts."""

    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    """Nucleus of rollouts."""

    max_tokens: PositiveInt = 1024
    """Most tokens of one reply."""

    max_prompt_tokens: PositiveInt = 1152
    """Most tokens of the opening messages."""

    max_response_tokens: PositiveInt = 8192
    """Most tokens of a conversation after its opening, replies and observations together."""

    gamma: Share = 1.0
    """Discount per token of PPO's advantage estimate (not the turn discount of credit.gamma)."""

    gae_lambda: Share = 1.0
    """Lambda of PPO's advantage estimate."""

    critic_lr: PositiveFloat = 1e-5
    """Learning rate of PPO's critic."""

    assignment: Literal["trajectory", "per_turn"] = "trajectory"
    """Where PPO puts the reward: one normalised score on all tokens, or each turn's reward on its last token."""

    dpo_beta: PositiveFloat = 0.1
    """Strength of DPO's pull towards the initial model."""


class Stage(Block):
    """A span of training steps with its own horizon and task mix."""

    steps: PositiveInt | None = None
    """Length in training steps (with gates: at most)."""

    epochs: PositiveFloat | None = None
    """Length in passes over the RL tasks, in place of steps."""

    horizon: PositiveInt | None = None
    """Most agent turns; left out where a schedule gives it."""

    mix: dict[str, Annotated[float, Field(gt=0.0, allow_inf_nan=False)]] = Field(default_factory=dict)
    """Gyms and their weights."""

    weigh: Literal["gyms", "tasks"] = "gyms"
    """gyms: weights are shares of a batch; tasks: all gyms' tasks are shuffled into one list, as the papers do."""

    alternate: tuple[str, ...] = ()
    """Gyms that take turns batch by batch (TARL section 4.1), in place of a mixed batch."""

    tasks: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Task options per gym in this stage alone, such as a simpler tier for a warm-up."""

    gates: Gate | None = None
    """Ends the stage early once it opens."""

    oversample: Share = 0.0
    """Share of a batch drawn again from tasks whose last group was mixed, neither all-good nor all-bad (after DAPO)."""

    @model_validator(mode="after")
    def _sensible(self) -> Stage:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give steps or epochs, one of them")
        if not self.mix and not self.alternate:
            raise ValueError("the mix is empty; name at least one gym, such as mix: {travel: 1}")
        for gym in self.alternate:
            if self.mix and gym not in self.mix:
                raise ValueError(f"alternate names '{gym}', which the mix lacks")
        return self

    @property
    def gyms(self) -> tuple[str, ...]:
        """All gyms of the stage."""
        return tuple(self.mix) if self.mix else tuple(dict.fromkeys(self.alternate))


class Evaluate(Block):
    """The held-out evaluation, and the validation that chooses the checkpoint."""

    horizon: PositiveInt = 16
    """Most agent turns, also in validation."""

    temperature: NonNegativeFloat = 0.0
    """Sampling temperature; 0 is greedy."""

    gyms: Literal["all"] | tuple[str, ...] = "all"
    """Gyms evaluated on their test split: all (the eight of the paper), or some."""

    tasks: PositiveInt | None = None
    """Test tasks per gym; none: all of them."""

    attempts: PositiveInt = 1
    """Attempts per task; pass^k needs k or more."""

    user: User | None = None
    """Who answers in the evaluation; none: as in training."""

    every: PositiveInt = 25
    """Training steps between two validations."""

    validation_tasks: PositiveInt = 64
    """Validation tasks in all."""


class SplitConfig(Block):
    """Which tasks are trained on, chosen on and tested on."""

    validation: Share = 0.05
    """Share of train that checkpoints are chosen on (UserRL appendix E)."""

    test: Share = 0.2
    """Share of our own tasks that is test; published tasks keep their split."""

    held_out: tuple[str, ...] = ("intention", "telepathy", "search")
    """Gyms that are never trained on (UserRL 4.1)."""


class Judge(Block):
    """The judge that scores turns, and how its marks become a score (TARL section 3.2)."""

    model: str = "gpt-4.1"
    """Who judges: rule, or the name of a served model."""

    terminal: float = 10.0
    """Points for a verified success."""

    deviation: float = -5.0
    """Points for the one turn marked -1."""

    good: float = 5.0
    """Points that all turns marked 1 share: each gives this divided by the number of turns."""


class Hardware(Block):
    """The machine a profile is made for."""

    gpus: NonNegativeInt = 0
    """GPUs per node for RL; 0 is CPU."""

    nodes: PositiveInt = 1
    """Nodes."""

    sft_gpus: NonNegativeInt = 0
    """GPUs for the cold start."""

    gpu: str | None = None
    """The kind of GPU the source used."""

    backend: Literal["local", "verl"] = "local"
    """Training backend that backend=auto means."""

    user_model: str | None = None
    """Model served as the user while training, where the user is no rule."""

    tensor_parallel: PositiveInt = 1
    """GPUs that serve one copy of the policy in rollouts."""
