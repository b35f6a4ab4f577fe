"""Recipe settings of the model, the cold start, the algorithm and the machines. No torch here, so recipes load quickly."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from userrl_core.errors import Check, ConfigError, refuse_first
from userrl_core.gyms.prompt import PromptStyle
from userrl_core.settings import MOST, Count, Settings

Template = Literal["chatml", "lean"]
CallForm = Literal["json", "lean", "line"]
Decay = Annotated[float, Field(ge=0.0, lt=1.0)]
"""A decay rate of Adam's moments."""
Projection = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
MAX_WEIGHTS = 10**9
"""Maximum weights of a model from scratch. A machine with one process has neither memory nor data for more."""


class ModelConfig(Settings):
    """The model to train: a checkpoint, or the shape of a model from scratch (Qwen3 architecture)."""

    path: str | None = None
    """A Hugging Face checkpoint (folder or name, safetensors only); None makes a model from scratch."""

    hidden_size: PositiveInt = 128
    """From scratch: width of the residual stream."""

    layers: PositiveInt = 2
    """From scratch: number of transformer blocks."""

    heads: PositiveInt = 4
    """From scratch: query heads per block."""

    kv_heads: PositiveInt = 2
    """From scratch: key and value heads per block; divides heads."""

    head_dim: PositiveInt = 32
    """From scratch: width of one head, an even number."""

    mlp: PositiveInt = 384
    """From scratch: inner width of the feed-forward part."""

    initializer_range: PositiveFloat = 0.08
    """From scratch: standard deviation of the initial weights. At half a million parameters 0.02 stalls and 0.08 learns."""

    vocab_size: int = Field(default=512, ge=300)
    """From scratch: maximum entries of the byte-level BPE that is trained on the run's own demonstrations."""

    max_context: Count = 1024
    """From scratch: maximum tokens of a conversation. A checkpoint has its own limit."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Number format of weights and arithmetic; log-probabilities are always computed in float32."""

    prompt_style: PromptStyle = "full"
    """Opening of conversations: full (goal, choices and rules), paper (the same with <think> tags and the gym's hint),
    released (the task's released prompt) or brief (one short user message, for models from scratch)."""

    turns_left: bool = False
    """Show the agent before each turn how many turns it has left: a short line, or one word in brief prompts."""

    template: Template = "chatml"
    """From scratch: chatml (Qwen's format, about 14 tokens a turn) or lean (about 5; brief prompts only)."""

    calls: CallForm = "json"
    """Form of a checkpoint's calls. json: a Hermes tool call, about 40 tokens. line: ``action: content``. lean: 3 or 4
    tokens that are added to the vocabulary. It needs a longer cold start and the local backend. The stored text is the
    same for all three."""

    thinking: bool | None = None
    """Turns a checkpoint's thinking on or off (Qwen3's enable_thinking); none follows its chat template. Thinking
    tokens count towards max_tokens, and a reply cut while thinking ends the conversation.
    """

    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: slower, but needed for billions of parameters on one GPU."""

    @property
    def weights(self) -> int:
        """Return the number of weights of a model from scratch."""
        attention = self.head_dim * 2 * (self.heads + self.kv_heads)
        return self.hidden_size * (self.layers * (attention + 3 * self.mlp) + self.vocab_size)

    @model_validator(mode="after")
    def _heads_fit(self) -> ModelConfig:
        scratch, unsupported, conflict = self.path is None, "model.unsupported", "recipe.conflict"
        too_large = (
            f"a model from scratch of {self.weights:,} weights cannot be trained here (at most {MAX_WEIGHTS:,}); reduce "
            "hidden_size or mlp, or give a checkpoint as path"
        )
        odd = f"head_dim {self.head_dim} must be even: rotary positions rotate pairs of numbers"
        no_mode = "only checkpoints have a thinking mode; set model.path, or model.thinking to null"
        no_calls = f"calls {self.calls} is for a checkpoint; set model.path, or use model.template lean for a model from scratch"
        not_lean = (
            "the lean template is for models from scratch with brief prompts; set model.path to null and model.prompt_style to "
            "brief, or model.template to chatml"
        )
        checks: list[Check] = [
            (scratch and self.weights > MAX_WEIGHTS, unsupported, too_large),
            (self.heads % self.kv_heads, unsupported, f"kv_heads {self.kv_heads} must divide heads {self.heads}"),
            (self.head_dim % 2, unsupported, odd),
            (scratch and self.thinking is not None, conflict, no_mode),
            (scratch and self.calls != "json", conflict, no_calls),
            (self.template == "lean" and not (scratch and self.prompt_style == "brief"), conflict, not_lean),
        ]
        refuse_first(checks)
        return self


NO_ADAPTERS = (
    "adapters need an existing model; give it as model.path, or set cold_start.lora to null and train all weights of the "
    "model from scratch"
)
"""The refusal of a cold start from scratch with `cold_start.lora`."""


class LoraSettings(Settings):
    """LoRA (Hu et al. 2021): the weights are frozen, and each adapted layer learns a product of two thin matrices."""

    rank: int = Field(default=16, ge=1, le=512)
    """Width of the two matrices: the number of directions a layer can learn."""

    alpha: int = Field(default=32, ge=1, le=4096)
    """The product is scaled by alpha / rank, so one learning rate serves several ranks."""

    targets: Literal["all-linear"] | Annotated[tuple[Projection, ...], Field(min_length=1)] = "all-linear"
    """The adapted layers: all-linear (all linear layers of a block, not the output layer) or a list such as [q_proj, v_proj]."""


class SftConfig(Settings):
    """The supervised cold start on demonstrations (UserRL section 4.1; defaults from its appendix E)."""

    enabled: bool = True
    """False starts reinforcement learning from the untrained model. Demonstrations of a model from scratch are made in any
    case, because its tokenizer is trained on them.
    """

    data: str | None = None
    """File of conversations to use instead of distilled demonstrations: ShareGPT, or chats of messages; JSON or JSON lines."""

    epochs: Annotated[float, Field(gt=0.0, le=MOST)] = 3.0
    """Passes over the demonstrations; ignored where steps is set."""

    steps: Count | None = None
    """Number of optimiser steps; replaces epochs."""

    lr: PositiveFloat = 1e-5
    """Peak learning rate."""

    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    """Decay of the rate after the warm-up; cosine and linear reach zero after the last step."""

    warmup: NonNegativeFloat = 0.1
    """Length of the linear warm-up: a share of the steps when below 1, else a number of steps."""

    cutoff: PositiveInt = 16384
    """Maximum tokens of a demonstration; the rest is cut off."""

    batch: Count = 32
    """Demonstrations per optimiser step."""

    micro_batch: PositiveInt = 32
    """Demonstrations per forward pass; smaller needs less memory and changes only rounding."""

    weight_decay: NonNegativeFloat = 0.01
    """Decoupled weight decay of AdamW."""

    betas: tuple[Decay, Decay] = (0.9, 0.98)
    """Moment decay rates of AdamW."""

    grad_norm: PositiveFloat = 1.0
    """Maximum gradient norm; larger gradients are scaled down to it."""

    lora: LoraSettings | None = None
    """Train only adapters, on an existing model (model.path); none trains all weights."""


class AlgorithmConfig(Settings):
    """The reinforcement learning step: advantage estimation, limits of an update, and averaging of the loss."""

    name: Literal["grpo", "rloo", "ppo", "reinforce_pp", "remax", "dpo"] = "grpo"
    """The baseline of the advantage. grpo: mean and deviation of the group; rloo: leave-one-out mean; ppo: a critic;
    reinforce_pp: the batch's mean; remax: a greedy conversation on the same task; dpo: none, all pairs of a group are compared
    (local backend).
    """

    clip: PositiveFloat = 0.2
    """Clip range of the importance ratio: 1 - clip to 1 + clip (PPO)."""

    clip_high: PositiveFloat | None = None
    """Upper clip range where it differs from the lower one (DAPO); None uses clip."""

    dual_clip: float | None = Field(default=None, gt=1.0)
    """For tokens with a negative advantage, bounds the objective at dual_clip times the advantage (Ye et al. 2020)."""

    kl_coef: NonNegativeFloat = 0.0
    """Weight of the KL term to the reference model, estimated per token by exp(d) - d - 1 (low_var_kl); 0 turns it off."""

    kl_reward_coef: NonNegativeFloat = 0.0
    """Weight of a KL penalty subtracted from the turn rewards before credit assignment (verl only:
    algorithm.kl_ctrl.kl_coef).
    """

    entropy_coef: NonNegativeFloat = 0.0
    """Weight of an entropy bonus; 0 turns it off."""

    group: Count = 8
    """Trajectories per task and step."""

    batch: Count = 128
    """Tasks per step."""

    batch_tokens: PositiveInt | None = None
    """Target tokens per step, openings and observations included, instead of a fixed number of tasks (local backend). Each step
    draws as many tasks as bring the total over all steps closest to the target. Equal tokens then mean equal updates, whatever
    the horizon."""

    minibatches: PositiveInt = 1
    """Optimiser steps per pass over a batch."""

    inner_epochs: Count = 1
    """Passes over a batch before new trajectories are played."""

    micro_batch: PositiveInt = 32
    """Trajectories per forward pass of the update; smaller needs less memory and changes only rounding."""

    share_openings: bool = False
    """Compute the opening of a group once in rollouts, and in the update all that its trajectories begin with alike, where the
    model is a Llama or Qwen (local backend). It changes only rounding. A forward pass of the update then holds trajectories of
    one task.
    """

    lr: PositiveFloat = 1e-6
    """Learning rate of the policy after the warm-up."""

    critic_lr: PositiveFloat = 1e-5
    """Learning rate of the critic (ppo)."""

    critic_warmup: NonNegativeInt = 0
    """Number of initial steps that train only the critic (ppo)."""

    warmup_steps: NonNegativeInt = 0
    """Steps over which the learning rate rises from zero."""

    betas: tuple[Decay, Decay] = (0.9, 0.95)
    """Moment decay rates of AdamW."""

    weight_decay: NonNegativeFloat = 0.0
    """Decoupled weight decay of AdamW."""

    grad_norm: PositiveFloat = 1.0
    """Maximum gradient norm; larger gradients are scaled down to it."""

    loss_aggregation: Literal["trajectory_mean", "token_mean"] = "trajectory_mean"
    """trajectory_mean: average the tokens within a trajectory, then the trajectories (the papers'); token_mean:
    average all tokens.
    """

    entropy_mask: float | None = Field(default=None, gt=0.0, le=1.0)
    """Share of a batch's tokens, those drawn at the highest entropy, that carry the policy loss (0.2 in TARL)."""

    gae_gamma: float = Field(default=1.0, ge=0.0, le=1.0)
    """Discount per token of the critic's returns (ppo)."""

    gae_lambda: float = Field(default=1.0, ge=0.0, le=1.0)
    """GAE's lambda (ppo); 1 uses the whole return."""

    assignment: Literal["turn", "trajectory", "group"] = "turn"
    """Placement of ppo's rewards: turn (the last token of each turn), trajectory (their sum on the last token) or
    group (the score normalised within its group, on the last token; TARL section 3.2, trajectory-level).
    """

    dpo_beta: PositiveFloat = 0.1
    """dpo: the loss of a pair is -log sigmoid of beta times the difference of gains. A large one soon leaves a pair in order."""

    dpo_normalize: bool = False
    """dpo: divide a conversation's gain by its agent tokens, so that a long one weighs no more than a short one."""

    temperature: NonNegativeFloat = 1.0
    """Sampling temperature in training."""

    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    """Nucleus sampling threshold in training; 1 keeps the whole distribution."""

    lora: LoraSettings | None = None
    """Train only adapters of the policy; they need a higher lr than full training. none trains all weights. A critic
    (ppo) trains all its weights.
    """

    max_prompt_tokens: PositiveInt = 1152
    """Maximum tokens of the opening messages (verl: data.max_prompt_length)."""

    max_tokens: PositiveInt = 1024
    """Maximum tokens of one reply; a longer one is cut."""

    max_response_tokens: PositiveInt = 8192
    """Maximum tokens of a conversation after its opening; a longer one ends with the score so far."""

    @property
    def conversations(self) -> int:
        """Return the conversations per step, including remax's greedy ones."""
        return self.batch * (self.group + (self.name == "remax"))

    @model_validator(mode="after")
    def _group_fits(self) -> AlgorithmConfig:
        penalised = (
            "remax compares with a greedy conversation, whose tokens pay no KL penalty; set algorithm.kl_reward_coef to 0, or "
            "use algorithm.kl_coef"
        )
        no_signal = (
            f"{self.name} compares trajectories of one task, so a group of {self.group} gives no signal; set algorithm.group to "
            "2 or more, or algorithm.name to ppo or reinforce_pp"
        )
        no_group = (
            "assignment group normalises scores among trajectories of one task; set algorithm.group to 2 or more, or "
            "algorithm.assignment to trajectory"
        )
        greedy = "training needs trajectories that differ; set algorithm.temperature above 0"
        checks = [
            (self.name == "remax" and self.kl_reward_coef > 0, penalised),
            (self.name in ("grpo", "rloo", "dpo") and self.group < 2, no_signal),
            (self.name == "ppo" and self.assignment == "group" and self.group < 2, no_group),
            (self.temperature == 0.0, greedy),
        ]
        refuse_first((holds, "recipe.conflict", message) for holds, message in checks)
        return self


GPU_MEMORY = {"A100": 80.0, "H100": 80.0, "H200": 141.0, "B200": 180.0}
"""Memory of one GPU in GB, by the name that profiles use."""


class Cluster(Settings):
    """The machines that verl trains on, and the distribution of the model over them."""

    gpus: NonNegativeInt = 0
    """GPUs per node for RL; 0 trains on CPU."""

    nodes: PositiveInt = 1
    """Number of nodes; more than one needs a running Ray cluster (ray_address)."""

    sft_gpus: NonNegativeInt = 0
    """GPUs of the cold start, on one node; 0 uses as many as RL."""

    gpu: str | None = None
    """The kind of GPU that the source used."""

    gpu_memory: PositiveFloat | None = None
    """Memory of one GPU in GB, for kinds of GPU that are not in the table."""

    tensor_parallel: PositiveInt = 1
    """GPUs per copy of the policy in rollouts."""

    sequence_parallel: PositiveInt = 1
    """GPUs that share one long conversation in verl's update (Ulysses)."""

    offload: bool = False
    """Move training state to host memory during rollouts (verl)."""

    attention: Literal["auto", "flash_attention_2", "sdpa"] = "auto"
    """Attention implementation of verl's models. auto: flash_attention_2 where the trainer's interpreter imports
    flash_attn, else sdpa. sdpa cannot split a conversation over GPUs (sequence_parallel).
    """

    engine: str = "vllm"
    """verl's rollout engine, such as vllm or sglang."""

    engine_memory: Literal["auto"] | Annotated[float, Field(gt=0.0, lt=1.0)] = 0.5
    """Share of a GPU's memory for verl's rollout engine. auto: computed from the memory left by the training state,
    at most 0.8.
    """

    micro_tokens: Literal["auto"] | PositiveInt | None = None
    """Maximum tokens of one forward pass of verl's update, per GPU. none: one conversation of full length; auto: up
    to four of them, computed from the GPU's memory (RL only).
    """

    workers: PositiveInt = 8
    """Processes that play conversations under verl; each logs its own turns."""

    device: str = "cuda"
    """Accelerator by verl's name, such as cuda or npu."""

    python: str | None = None
    """Interpreter of verl's own environment on this host; none uses the one that runs the flow."""

    ray_address: str | None = None
    """Address of a running Ray cluster (auto); none starts one for each stage."""

    overrides: tuple[str, ...] = ()
    """Additional verl overrides, key=value; they take precedence."""

    sft_overrides: tuple[str, ...] = ()
    """Additional overrides for verl's SFT trainer."""

    @property
    def engine_share(self) -> float:
        """Return `engine_memory` as a number; half where auto could not be computed."""
        return 0.5 if self.engine_memory == "auto" else self.engine_memory

    @property
    def pass_tokens(self) -> int | None:
        """Return `micro_tokens` as a number; None where auto could not be computed."""
        return None if self.micro_tokens == "auto" else self.micro_tokens

    @property
    def node_gpus(self) -> int:
        """Return the RL processes on one node: one per GPU, or one on a CPU."""
        return max(self.gpus, 1)

    @property
    def all_gpus(self) -> int:
        """Return the RL processes on all nodes."""
        return self.node_gpus * self.nodes

    @property
    def cold_start_gpus(self) -> int:
        """Return the processes of the cold start."""
        return self.sft_gpus or self.node_gpus

    @property
    def memory_gb(self) -> float:
        """Return the memory of one GPU; an H200's where no GPU is named. Raises ConfigError for an unknown kind of GPU."""
        if self.gpu_memory is not None or self.gpu is None:
            return self.gpu_memory or GPU_MEMORY["H200"]
        for kind, memory in GPU_MEMORY.items():
            if kind.lower() in self.gpu.lower():
                return memory
        raise ConfigError(
            "recipe.missing_key", f"The memory of GPU '{self.gpu}' is not known. Give hardware.gpu_memory in GB."
        )
