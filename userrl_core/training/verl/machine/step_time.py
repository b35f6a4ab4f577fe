"""An estimate of a step's duration: operations over the card's peak, bytes over its memory bandwidth.

Nothing here was measured. The shares of peak and bandwidth are assumed. Stragglers, the network between GPUs and
nodes, and the user's thinking add to the estimate. It serves to compare machines and to plan a study.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from userrl_core.training.config import AlgorithmConfig, Cluster
from userrl_core.training.shapes import ModelShape, shape_of


@dataclass(frozen=True, slots=True)
class GpuCard:
    """The speed of a GPU. flops: dense bfloat16 operations a second. bandwidth: bytes a second from its memory."""

    flops: float
    bandwidth: float


CARDS = {
    "A100": GpuCard(312e12, 2.0e12),
    "H100": GpuCard(989e12, 3.35e12),
    "H200": GpuCard(989e12, 4.8e12),
    "B200": GpuCard(2250e12, 8.0e12),
}
"""Values of the makers' data sheets, by the name that profiles use."""

COMPUTED, READ = 0.4, 0.8
"""Assumed shares of peak operations and of bandwidth."""
LAUNCH = 0.002
"""Seconds of one decoding step in addition to reading weights and cache."""
AROUND = 15.0
"""Seconds of a step for waking the engine, sending it new weights, putting it to sleep, and assembling batches."""
AT_ONCE = 256
"""Maximum conversations that one copy of an engine decodes at once (vLLM's and verl's max_num_seqs)."""
USER_MEMORY = 0.9
"""Share of its GPUs that the user's server takes (`serve-user --memory`)."""


@dataclass(frozen=True, slots=True)
class ConversationTokens:
    """The assumed tokens of a conversation. role: additional tokens that the user's model reads (its role and rules)."""

    turns: int = 12
    opening: int = 600
    reply: int = 160
    answer: int = 80
    role: int = 500

    @property
    def tokens(self) -> int:
        """Return the tokens at its end."""
        return self.opening + self.turns * (self.reply + self.answer)


@dataclass(frozen=True, slots=True)
class ServedCopies:
    """A model behind an engine. per_copy: GPUs of one copy (tensor parallel). memory: GB per GPU for the engine."""

    shape: ModelShape
    gpus: int
    per_copy: int
    memory: float


def step_time(
    cluster: Cluster,
    algorithm: AlgorithmConfig,
    model: str | Path,
    *,
    user: ServedCopies | None = None,
    talk: ConversationTokens = ConversationTokens(),
) -> float | None:
    """Estimate the seconds of one step of RL on the cluster; None for a card of unknown speed.

    user: the model of the users, on GPUs of the same kind (`user_server`). Policy and user answer at the same time, so the
    slower of them counts.
    """
    card = card_of(cluster.gpu)
    if card is None:
        return None
    shape, conversations = shape_of(model), algorithm.batch * algorithm.group
    passes = 1 + (algorithm.kl_coef > 0 or algorithm.kl_reward_coef > 0)
    # A forward pass, the same again for its activations, and a backward pass of twice its work, or once where no weight but
    # adapters has a gradient.
    passes += (4 if algorithm.lora is None else 3) * algorithm.inner_epochs
    if algorithm.name == "ppo":  # a critic of the same size: its values, and its update
        passes += 1 + 4 * algorithm.inner_epochs
    trained = passes * conversations * talk.tokens * _forward(shape, talk.tokens)
    policy = ServedCopies(shape, cluster.all_gpus, cluster.tensor_parallel, cluster.engine_share * cluster.memory_gb)
    rollout = _played(policy, card, algorithm.conversations, talk, talk.reply)
    if user is not None:
        rollout = max(rollout, _played(user, card, algorithm.conversations, talk, talk.answer, extra_tokens=talk.role))
    return trained / (cluster.all_gpus * card.flops * COMPUTED) + rollout + AROUND


def user_server(model: str | Path, gpus: int, memory: float) -> ServedCopies:
    """Return the user's model on GPUs of ``memory`` GB, distributed as by `serve-user`."""
    shape = shape_of(model)
    per_copy = gpus_per_copy(shape, gpus, memory)
    return ServedCopies(shape, gpus // per_copy * per_copy, per_copy, USER_MEMORY * memory)


def card_of(gpu: str | None) -> GpuCard | None:
    """Return the card's speed; an H200's for no name, None for an unknown name."""
    if gpu is None:
        return CARDS["H200"]
    return next((card for name, card in CARDS.items() if name.lower() in gpu.lower()), None)


def gpus_per_copy(shape: ModelShape, gpus: int, memory: float) -> int:
    """Return the GPUs per copy of a served model: as few as leave a third of the memory to its cache.

    Copies do not wait for each other, but a split model does at every layer. Remaining GPUs stay idle. The model's
    heads are divided evenly. Where no number leaves so much memory, use the most GPUs that divide the heads. memory:
    GB of one GPU.
    """
    even = [count for count in range(1, gpus + 1) if shape.heads % count == 0]
    fits = (n for n in even if 2 * shape.parameters / 1e9 / n <= 2 / 3 * USER_MEMORY * memory)
    return next(fits, even[-1])


def _forward(shape: ModelShape, length: int) -> float:
    """Return the operations per token of one forward pass: two per weight, and attention to half of the conversation
    on average.
    """
    return 2 * shape.parameters + 4 * shape.heads * shape.head_dim * shape.layers * length / 2


def _played(
    served: ServedCopies,
    card: GpuCard,
    conversations: int,
    talk: ConversationTokens,
    tokens_per_turn: int,
    extra_tokens: int = 0,
) -> float:
    """Return the seconds that an engine takes to generate ``tokens_per_turn`` tokens a turn in all conversations and to read
    everything else once.

    Decoding reads the weights once a step for all conversations that fit the cache at once, and each one's cache. The
    other conversations wait.
    """
    shape, copies = served.shape, served.gpus / served.per_copy
    conversations_per_copy = conversations / copies
    flops, bandwidth = card.flops * served.per_copy * COMPUTED, card.bandwidth * served.per_copy * READ
    mean_tokens = (talk.opening + talk.tokens) / 2
    room = (served.memory - 2.0) * served.per_copy * 1e9 - 2 * shape.parameters  # 2 GB: the engine's own activations
    at_once = max(min(conversations_per_copy, room / (shape.kv_bytes * mean_tokens), AT_ONCE), 1.0)
    generated = talk.turns * tokens_per_turn
    reading = conversations_per_copy * (talk.tokens + extra_tokens) * _forward(shape, talk.tokens) / flops
    caches = conversations_per_copy * generated * mean_tokens * shape.kv_bytes / bandwidth
    weights = conversations_per_copy / at_once * generated * (2 * shape.parameters / bandwidth + LAUNCH)
    return reading + caches + weights
