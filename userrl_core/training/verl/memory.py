"""The GPU memory that a configuration needs, computed in advance so that ``--dry-run`` refuses a run that cannot fit.

Two phases decide. The update holds the sharded training state (float32 weights, gradients and both Adam moments: 16
bytes a parameter), one gathered layer, the activations of one forward pass, and the logits. A rollout holds weights
and moments (12 bytes), unless they are offloaded, and the rollout engine's share. That share must hold the bfloat16
weights and the key-value cache of at least one full-length conversation. Under LoRA the frozen weights are 4 bytes a
parameter, only the adapters take 16 bytes, and the frozen base is the reference model.

The estimate is coarse (a tenth either way). It refuses only a sum beyond the card, not a close one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from userrl_core.errors import ConfigError
from userrl_core.rewards import CreditConfig
from userrl_core.training.config import AlgorithmConfig, Cluster, ModelConfig, SftConfig
from userrl_core.training.one_gpu import GB, RESERVED, check_evaluation, training_state
from userrl_core.training.shapes import ModelShape, shape_of
from userrl_core.training.verl.config import refuse_what_verl_cannot
from userrl_core.training.verl.flags import micro_tokens
from userrl_core.training.verl.job import VerlJob, VerlSftJob

SPARE, MAX_SHARE = 3.0, 0.8
"""GB left free when an engine's share is proposed, for new weights in transfer, and the largest share proposed."""
FILLED, MAX_CONVERSATIONS = 0.9, 4
"""Share of the update's free memory that micro_tokens auto fills, and the maximum full-length conversations in a pass."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """GB per GPU, and the capacity of the engine.

    state: sharded weights, gradients, moments. activations: of one forward and backward pass, without logits. update:
    the sum in the update. rollout: the sum in the rollout. conversations: full-length conversations that the engine's
    cache holds at once, per copy of the policy.
    """

    parameters: float
    pass_tokens: int
    state: float
    gathered: float
    activations: float
    logits: float
    reference: float
    update: float
    engine: float
    engine_weights: float
    rollout: float
    conversations: float
    card: float
    engine_share: float
    best_share: float

    def table(self) -> list[tuple[str, str]]:
        """Return labels and values for ``--dry-run``."""
        return [
            ("parameters", f"{self.parameters / 1e9:.2f} B"),
            ("weights, gradients, Adam", f"{self.state:.1f} GB"),
            ("one gathered layer and embeddings", f"{self.gathered:.1f} GB"),
            ("activations", f"{self.activations:.1f} GB"),
            ("logits", f"{self.logits:.1f} GB"),
            ("reference model", f"{self.reference:.1f} GB"),
            ("update, in all", f"{self.update:.1f} of {self.card:.0f} GB"),
            ("rollout engine", f"{self.engine:.1f} GB, {self.engine_weights:.1f} of them weights"),
            ("rollout, in all", f"{self.rollout:.1f} of {self.card:.0f} GB"),
            ("full conversations at once, per copy", f"{self.conversations:.0f}"),
            ("hardware.engine_memory", self._share()),
            ("hardware.micro_tokens", f"{self.pass_tokens:,} in one forward pass"),
        ]

    def _share(self) -> str:
        """Return the recipe's share, and the share that the card would hold next to the training state."""
        rest = f"the card holds {self.best_share:.2f} beside weights and moments ({self.rollout - self.engine:.1f} GB)"
        return f"{self.engine_share:.2f}" + (f"; {rest}" if round(self.best_share, 2) > self.engine_share else "")


def estimate(job: VerlJob, shape: ModelShape) -> Estimate:
    """Return the job's need on each GPU of its cluster."""
    cluster, algorithm = job.cluster, job.algorithm
    gpus = cluster.all_gpus
    parameters = shape.parameters
    critic = 16 * parameters if algorithm.name == "ppo" else 0  # a second model of the same size
    state = (training_state(shape, 4, algorithm.lora) + critic) / gpus / GB
    gradients = (4 * (shape.adapters(algorithm.lora) or parameters) + critic / 4) / gpus / GB
    gathered = _gathered(shape)
    activations, logits = _pass(shape, micro_tokens(job))
    compared = (algorithm.kl_coef > 0 or algorithm.kl_reward_coef > 0) and algorithm.lora is None
    reference = 4 * parameters / gpus / GB if compared else 0.0
    update = state + gathered + activations + logits + (0.0 if cluster.offload else reference) + RESERVED
    engine = cluster.engine_share * cluster.memory_gb
    engine_weights = 2 * parameters / cluster.tensor_parallel / GB
    resident = 0.0 if cluster.offload else state - gradients + reference
    longest = algorithm.max_prompt_tokens + algorithm.max_response_tokens
    kv_heads = max(shape.kv_heads / cluster.tensor_parallel, 1) / shape.kv_heads
    room = max(engine - engine_weights - 2.0, 0.0)  # 2 GB: the engine's own activations
    return Estimate(
        parameters=parameters,
        pass_tokens=micro_tokens(job),
        state=state,
        gathered=gathered,
        activations=activations,
        logits=logits,
        reference=reference,
        update=update,
        engine=engine,
        engine_weights=engine_weights,
        rollout=resident + engine + RESERVED,
        conversations=room * GB / (shape.kv_bytes * kv_heads * longest),
        card=cluster.memory_gb,
        engine_share=cluster.engine_share,
        best_share=min(max(cluster.memory_gb - resident - RESERVED - SPARE, 0.0) / cluster.memory_gb, MAX_SHARE),
    )


def settle(job: VerlJob, model: str | Path | None = None) -> VerlJob:
    """Replace auto in hardware.engine_memory and hardware.micro_tokens by numbers.

    A larger pass wastes fewer of the GPU's operations and changes only rounding. A larger engine plays more
    conversations at once. Neither may turn a fitting configuration into one that does not fit, so both leave some
    memory free.
    """
    cluster = job.cluster
    if "auto" not in (cluster.engine_memory, cluster.micro_tokens):
        return job
    plain = cluster.model_copy(update={"engine_memory": cluster.engine_share, "micro_tokens": cluster.pass_tokens})
    job = job.model_copy(update={"cluster": plain})
    needs = estimate(job, shape_of(model or job.model.path or job.init))
    chosen: dict[str, float | int] = {}
    if cluster.engine_memory == "auto":
        chosen["engine_memory"] = max(round(needs.best_share, 2), 0.01)
    if cluster.micro_tokens == "auto":
        one = micro_tokens(job)
        per_token = (needs.activations + needs.logits) / one
        free = needs.card - needs.update + per_token * one
        chosen["micro_tokens"] = max(one, min(int(FILLED * free / per_token), MAX_CONVERSATIONS * one))
    return job.model_copy(update={"cluster": plain.model_copy(update=chosen)})


def check_memory(job: VerlJob, model: str | Path | None = None) -> Estimate:
    """Return the estimate. Raises ConfigError, with remedies, where it exceeds the card."""
    job = settle(job, model)
    needs = estimate(job, shape_of(model or job.model.path or job.init))
    cluster = job.cluster
    if needs.update > needs.card:
        raise ConfigError(
            "hardware.too_little_memory",
            f"The update needs {needs.update:.0f} GB on each of {cluster.all_gpus} GPUs, and they have "
            f"{needs.card:.0f} GB. Use more GPUs, a smaller model, or raise hardware.sequence_parallel.",
        )
    if needs.conversations < 1:
        raise ConfigError(
            "hardware.too_little_memory",
            f"The rollout engine's {needs.engine:.0f} GB have room for its weights ({needs.engine_weights:.0f} "
            "GB) but not for a conversation of full length. Raise hardware.engine_memory or "
            "hardware.tensor_parallel.",
        )
    if needs.rollout > needs.card:
        raise ConfigError(
            "hardware.too_little_memory",
            f"While conversations are played, each GPU needs {needs.rollout:.0f} GB and has {needs.card:.0f} "
            "GB. Set hardware.offload, or lower hardware.engine_memory.",
        )
    return needs


def check_sft_memory(job: VerlSftJob, model: str | Path) -> tuple[str, str]:
    """Return the cold start's need of each GPU, as label and value. Raises ConfigError where it exceeds the card."""
    shape, cluster = shape_of(model), job.cluster
    gpus = cluster.cold_start_gpus
    tokens = max(cluster.pass_tokens or 0, -(-job.sft.cutoff // cluster.sequence_parallel))
    needed = (
        training_state(shape, 4, job.sft.lora) / gpus / GB + _gathered(shape) + sum(_pass(shape, tokens)) + RESERVED
    )
    if needed > cluster.memory_gb:
        raise ConfigError(
            "hardware.too_little_memory",
            f"The cold start needs {needed:.0f} GB on each of {gpus} GPUs, and they have "
            f"{cluster.memory_gb:.0f} GB. Raise hardware.sft_gpus, or lower cold_start.cutoff.",
        )
    return "cold start, in all", f"{needed:.1f} of {cluster.memory_gb:.0f} GB on {gpus} GPUs"


def _gathered(shape: ModelShape) -> float:
    """Return the GB of one layer and the embeddings, gathered from all shards, with gradients."""
    embeddings = shape.vocab * shape.hidden * (1 if shape.tied else 2)
    return (2 * 2 * shape.layer_parameters + 2 * embeddings) / GB


def _pass(shape: ModelShape, tokens: int) -> tuple[float, float]:
    # Checkpointed: one hidden state a layer, and the working set of the layer that is being computed again.
    working = 18 * shape.hidden + 8 * shape.mlp
    activations = tokens * (2 * shape.hidden * shape.layers + working) / GB
    return activations, tokens * shape.vocab * (2 + 4 + 4) / GB  # bfloat16, float32, gradient


def check_machine(
    model: ModelConfig, cluster: Cluster, algorithm: AlgorithmConfig, credit: CreditConfig, cold_start: SftConfig
) -> list[tuple[str, str]]:
    """Return the need of a recipe's cold start and RL on each GPU, as label and value, for ``--dry-run`` with backend verl.

    Raises ConfigError, with remedies, where it exceeds the card or verl does not support the recipe.
    """
    rl = _planned(model, cluster, algorithm, credit)
    refuse_what_verl_cannot(rl)
    if not model.path:
        return [("memory", "not computed, since the recipe names no model.path")]
    rows = check_memory(rl, model.path).table()
    if cluster.python is None:  # elsewhere the rollout engine plays checkpoints, on as many GPUs as one copy takes
        rows.append(check_evaluation(shape_of(model.path), model, algorithm, cluster.memory_gb))
    if cold_start.enabled:
        sft = VerlSftJob(model=model, cluster=cluster, out_dir=rl.out_dir, sft=cold_start, chats=rl.out_dir)
        rows.insert(0, check_sft_memory(sft, model.path))
    return rows


def settled(model: ModelConfig, cluster: Cluster, algorithm: AlgorithmConfig) -> Cluster:
    """Return a recipe's cluster with numbers instead of auto (see `settle`)."""
    return settle(_planned(model, cluster, algorithm, CreditConfig())).cluster


def _planned(model: ModelConfig, cluster: Cluster, algorithm: AlgorithmConfig, credit: CreditConfig) -> VerlJob:
    """Return a stage before the run exists. The estimate depends on no path, and uses only settings that all stages share."""
    nowhere = Path("unused")
    return VerlJob(
        model=model,
        cluster=cluster,
        algorithm=algorithm,
        credit=credit,
        out_dir=nowhere,
        init=nowhere,
        reference=nowhere,
        last_step=1,
    )
