"""The GPU memory that the local backend needs, computed in advance so that ``--dry-run`` refuses a run that cannot fit.

A trained parameter takes 16 bytes in either number format: weights and gradients (in bfloat16 2 + 2, and 4 for
float32 master weights) and AdamW's two moments in float32. An update also needs the activations of one micro-batch of
full-length conversations and a chunk of the output layer, or the optimiser's memory for its largest tensor. During
rollouts the gradients are freed, and keys and values take a share of the free memory. A checkpoint's evaluation has
the GPU to itself.

The arithmetic is coarse (a tenth either way), and none of it was measured on a GPU. Only the activations that a layer
keeps for the backward pass were counted. Numbers are bytes unless GB is stated.
"""

from __future__ import annotations

from pathlib import Path

from userrl_core.errors import ConfigError
from userrl_core.training.config import AlgorithmConfig, LoraSettings, ModelConfig, SftConfig
from userrl_core.training.shapes import ModelShape, shape_of

GB = 1e9
RESERVED = 2.5
"""GB for CUDA, its libraries and the allocator's fragments."""
HEAD_ENTRIES, ENTRY_BYTES = 2**26, 20
"""Maximum entries of the output layer held at once (tokens times vocabulary), and bytes per entry: 441 tokens of
Qwen3's vocabulary.
"""
STEP_BYTES = 12
"""Bytes that AdamW needs, in addition to its state, per entry of the tensor it steps."""
CACHE_SHARE = 0.6
"""Share of free memory for keys and values; the rest is for reading prompts, logits and unusable fragments."""
COLUMNS_AHEAD = 256
"""Spare columns of a large cache beyond its current need."""
MAX_ROWS = 256
"""Maximum conversations in one lock-step batch."""

Rows = list[tuple[str, str]]


def check_one_gpu(
    model: ModelConfig, algorithm: AlgorithmConfig, cold_start: SftConfig, card: float, path: str | Path | None = None
) -> Rows:
    """Return the memory that cold start, RL and evaluation need on a GPU of `card` GB, as label and value, for ``--dry-run``.

    path: folder of the model, if not model.path. Raises ConfigError, with remedies, where the need exceeds the GPU's memory.
    """
    shape = known_shape(path or model.path)
    if shape is None:
        return [("memory", "not computed: the shape of the model is not known")]
    rows = [("parameters", f"{shape.parameters / GB:.2f} B")]
    if cold_start.enabled:
        rows += check_cold_start(shape, model, cold_start, card)
    return rows + check_rl(shape, model, algorithm, card) + [check_evaluation(shape, model, algorithm, card)]


def known_shape(path: str | Path | None) -> ModelShape | None:
    """Return the shape of a model by folder or published name; None where it is unknown and memory cannot be computed."""
    try:
        return None if path is None else shape_of(path)
    except ConfigError:
        return None


def check_cold_start(shape: ModelShape, model: ModelConfig, sft: SftConfig, card: float) -> Rows:
    """Return the memory of supervised training. Raises ConfigError where it exceeds the GPU's."""
    state = training_state(shape, _width(model), sft.lora)
    needed = _update(shape, model, state, sft.micro_batch * sft.cutoff)
    if needed > card * GB:
        raise ConfigError(
            "hardware.too_little_memory",
            f"The cold start needs {needed / GB:.0f} GB on one GPU, which has {card:.0f} GB. Remedies: "
            f"{_remedies(model, 'cold_start', sft, ('lower cold_start.cutoff', True))}.",
        )
    return [("cold start, in all", f"{needed / GB:.1f} of {card:.0f} GB")]


def check_rl(shape: ModelShape, model: ModelConfig, algorithm: AlgorithmConfig, card: float) -> Rows:
    """Return the memory of an RL step, rollout and update. Raises ConfigError where it exceeds the GPU's."""
    width, longest = _width(model), algorithm.max_prompt_tokens + algorithm.max_response_tokens
    critics = 1 if algorithm.name == "ppo" else 0  # another model of this size, all of whose weights are trained
    state = training_state(shape, width, algorithm.lora) + 16 * shape.parameters * critics
    gradients = width * ((shape.adapters(algorithm.lora) or shape.parameters) + shape.parameters * critics)
    reference = width * shape.parameters if algorithm.kl_coef > 0 and algorithm.lora is None else 0
    update = _update(shape, model, state + reference, algorithm.micro_batch * longest)
    if update > card * GB:
        raise ConfigError(
            "hardware.too_little_memory",
            f"The update needs {update / GB:.0f} GB on one GPU, which has {card:.0f} GB. Remedies: "
            f"{_remedies(model, 'algorithm', algorithm, ('set algorithm.kl_coef: 0', reference > 0))}.",
        )
    resident = state - gradients + reference
    conversations = _conversations(shape, width, (card - RESERVED) * GB - resident, longest)
    if not conversations:
        raise ConfigError(
            "hardware.too_little_memory",
            f"While conversations are played, {resident / GB:.0f} of the GPU's {card:.0f} GB are taken, and "
            f"the rest has no room for a conversation of {longest:,} tokens. Lower "
            "algorithm.max_response_tokens, use a smaller model, or use backend verl on more GPUs.",
        )
    return [
        ("weights, gradients, AdamW", f"{state / GB:.1f} GB"),
        ("reference model", f"{reference / GB:.1f} GB"),
        ("update, in all", f"{update / GB:.1f} of {card:.0f} GB"),
        ("rollout, beside its cache", f"{resident / GB + RESERVED:.1f} of {card:.0f} GB"),
        ("full conversations at once, in training", f"{conversations}"),
    ]


def check_evaluation(shape: ModelShape, model: ModelConfig, algorithm: AlgorithmConfig, card: float) -> tuple[str, str]:
    """Return how many conversations fit next to a checkpoint's weights in evaluation. Raises ConfigError where none fits.

    The local decoder also evaluates a checkpoint of verl, on one GPU, unless an interpreter for vLLM is named.
    """
    width, longest = _width(model), algorithm.max_prompt_tokens + algorithm.max_response_tokens
    weights = width * shape.parameters
    conversations = _conversations(shape, width, (card - RESERVED) * GB - weights, longest)
    if not conversations:
        raise ConfigError(
            "hardware.too_little_memory",
            f"A checkpoint is evaluated on one GPU of {card:.0f} GB. Its weights take {weights / GB:.0f} GB, "
            f"and the rest has no room for a conversation of {longest:,} tokens. Set model.dtype: bfloat16, "
            "give vLLM's interpreter as hardware.python, or use a smaller model.",
        )
    return "full conversations at once, in evaluation", f"{conversations}"


def rows_that_fit(free: int, token_bytes: int, tokens: int) -> int:
    """Return the number of full-length conversations whose cache fits into the cache's share of free memory.

    free: bytes of the device. token_bytes: bytes of one token's keys and values. tokens: maximum tokens of one conversation.
    """
    return int(free * CACHE_SHARE) // (token_bytes * (tokens + COLUMNS_AHEAD))


def _conversations(shape: ModelShape, width: int, free: float, longest: int) -> int:
    return min(rows_that_fit(max(int(free), 0), shape.kv_bytes * width // 2, longest), MAX_ROWS)


def _update(shape: ModelShape, model: ModelConfig, resident_bytes: int, tokens: int) -> float:
    """Return all memory of an update. resident_bytes: training state and reference. tokens: tokens of one forward pass, padding
    included.
    """
    embeddings = shape.vocab * shape.hidden
    return resident_bytes + max(_pass(shape, model, tokens), STEP_BYTES * embeddings) + RESERVED * GB


def _pass(shape: ModelShape, model: ModelConfig, tokens: int) -> int:
    """Return the memory of activations, and of the largest chunk of the output layer with two more gradients of its matrix."""
    width, attention = _width(model), (shape.heads + shape.kv_heads) * shape.head_dim
    # What a block keeps of a token, counted on Qwen3 with flash kernels; its norms and rotations are float32 in either format.
    block = width * (4 * shape.hidden + 4 * shape.mlp + 3 * attention) + 8 * shape.hidden + 4 * attention
    kept = shape.layers * width * shape.hidden + block if model.gradient_checkpointing else shape.layers * block
    gradients = width * (4 * shape.hidden + 3 * shape.mlp)
    head = min(HEAD_ENTRIES, tokens * shape.vocab) * ENTRY_BYTES + 2 * width * shape.vocab * shape.hidden
    return tokens * (kept + gradients) + head


def training_state(shape: ModelShape, width: int, lora: LoraSettings | None) -> int:
    """Return the memory of weights, gradients, master weights and moments. Under LoRA, frozen weights count once."""
    adapters = shape.adapters(lora)
    return width * shape.parameters + 16 * adapters if adapters else 16 * shape.parameters


def _width(model: ModelConfig) -> int:
    return 2 if model.dtype == "bfloat16" else 4


def _remedies(model: ModelConfig, block: str, settings: AlgorithmConfig | SftConfig, *shorter: tuple[str, bool]) -> str:
    """Return the settings that would make an update smaller and are not set yet. shorter: further ways, and True for
    those available.
    """
    ways = [
        (f"lower {block}.micro_batch ({settings.micro_batch})", settings.micro_batch > 1),
        *shorter,
        ("set model.gradient_checkpointing: true", not model.gradient_checkpointing),
        ("set model.dtype: bfloat16", model.dtype != "bfloat16"),
        (f"train adapters ({block}.lora)", settings.lora is None),
        ("use a smaller model", True),
    ]
    return ", ".join([*(way for way, is_open in ways if is_open), "or backend verl on more GPUs"])
