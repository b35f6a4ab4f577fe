"""Supervised fine-tuning on conversations, with the loss on the agent's tokens (UserRL section 4.1, "SFT cold start").

It also writes the first checkpoint of a run. A model from scratch gets its tokenizer here, trained on the same
conversations. With ``enabled: false`` the checkpoint is the untrained model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from userrl_core.distill import read_chats
from userrl_core.errors import TrainingError
from userrl_core.gyms.prompt import number_word
from userrl_core.seeding import derive_seed
from userrl_core.sink import Sink
from userrl_core.training.config import ModelConfig, SftConfig
from userrl_core.training.jobs import SftJob, StageResult
from userrl_core.training.local.fit import fit, own_checkpoint, shuffled_batches
from userrl_core.training.local.logprobs import token_logprobs
from userrl_core.training.local.lora import Base, adapt
from userrl_core.training.local.micro_batches import add_gradients
from userrl_core.training.local.model import build_model, card_gb, load_model
from userrl_core.training.local.optimizer import adamw, clip_and_step, set_lr
from userrl_core.training.local.state import TrainState, load_start
from userrl_core.training.local.text.calls import set_form
from userrl_core.training.local.text.chat import ChatFormat, Encoded
from userrl_core.training.local.text.tokenizer import load_tokenizer, render, train_tokenizer
from userrl_core.training.local.threads import fix_threads
from userrl_core.training.one_gpu import check_cold_start, known_shape
from userrl_core.training.protocols import Progress


def train_sft(job: SftJob, sink: Sink | None = None, progress: Progress | None = None) -> StageResult:
    """Run the job to its end. A restart continues bit for bit from its newest checkpoint.

    Raises TrainingError without usable examples, CheckpointError for an unusable checkpoint.
    """
    fix_threads(job.threads)
    card, shape = card_gb(job.device), known_shape(job.init or job.model.path)
    if card is not None and shape is not None and job.sft.enabled:
        check_cold_start(shape, job.model, job.sft, card)
    chats = read_chats(job.chats) if job.chats is not None else []
    model, tokenizer, base = _start(job, chats)
    if base is not None:
        adapt(model, base.settings, derive_seed(job.seed, "adapters"))
    generator = torch.Generator(job.device).manual_seed(derive_seed(job.seed, "sft"))
    optimizer = adamw(model, job.sft.lr, job.sft.betas, job.sft.weight_decay)
    state = TrainState(model, tokenizer, optimizer, generator, kind="sft", base=base)
    examples = encode_chats(ChatFormat(tokenizer), chats, job.sft.cutoff) if job.sft.enabled else []
    total = _total_steps(job.sft, len(examples))
    batches = shuffled_batches(len(examples), job.sft.batch, job.seed)

    def step(number: int, rows: Sequence[int]) -> dict[str, float]:
        return _step(state, [examples[i] for i in rows], job.sft, number, total)

    return fit(job, job.stage, state, total, batches, step, sink, progress)


def encode_chats(chat_format: ChatFormat, chats: Sequence[Mapping[str, Any]], cutoff: int) -> list[Encoded]:
    """Encode conversations, leaving out those without an agent token within the cutoff. Raises TrainingError if none is left."""
    encoded = [chat_format.chat(chat, cutoff) for chat in chats]
    usable = [example for example in encoded if example.agent_tokens]
    if not usable:
        raise TrainingError(
            "demonstrations.too_few",
            f"None of the {len(chats)} conversations has an agent message within {cutoff} tokens. Raise "
            "cold_start.cutoff, or distil again.",
        )
    return usable


def learning_rate(config: SftConfig, number: int, total: int) -> float:
    """Return the learning rate of step `number` of 1 ... total: a linear warm-up, then the schedule."""
    warmup = round(config.warmup * total) if config.warmup < 1 else int(config.warmup)
    if number <= warmup:
        return config.lr * number / warmup
    # 0 in the first step after the warm-up.
    progress = (number - warmup - 1) / max(total - warmup, 1)
    if config.schedule == "cosine":
        return config.lr * 0.5 * (1 + math.cos(math.pi * progress))
    return config.lr * (1 - progress) if config.schedule == "linear" else config.lr


def new_model(config: ModelConfig, chats: Sequence[Mapping[str, Any]], seed: int, device: str) -> tuple[Any, Any]:
    """Return model and tokenizer of a new run: from the configured path, or from scratch."""
    if config.path is not None:
        model, tokenizer = load_model(config.path, config, device), load_tokenizer(config.path, config.thinking)
        set_form(model, tokenizer, config.calls)
        return model, tokenizer
    # Budgets that no demonstration has, in later stages or in an evaluation, are one token too.
    numbers = [number_word(left) for left in range(1, 33)] if config.turns_left else []
    tokenizer = train_tokenizer(render(chats, config.template), config.vocab_size, config.template, numbers)
    return build_model(config, tokenizer, derive_seed(seed, "weights"), device), tokenizer


def _start(job: SftJob, chats: Sequence[Mapping[str, Any]]) -> tuple[Any, Any, Base | None]:
    own_path, lora = own_checkpoint(job), job.sft.lora if job.sft.enabled else None
    # Its own checkpoint first: a restart continues.
    start = own_path or job.init or (Path(job.model.path) if lora and job.model.path else None)
    if start is not None:
        return load_start(start, job.model, job.device, lora, continued=own_path is not None)
    return *new_model(job.model, chats, job.seed, job.device), None


def _total_steps(config: SftConfig, examples: int) -> int:
    if not config.enabled:
        return 0
    return config.steps or max(1, round(config.epochs * examples / config.batch))


def _step(
    state: TrainState, examples: Sequence[Encoded], config: SftConfig, number: int, total: int
) -> dict[str, float]:
    lr = learning_rate(config, number, total)
    set_lr(state.optimizer, lr)
    # Rows of similar length need little padding.
    ordered = sorted(examples, key=lambda example: len(example.ids))
    tokens = sum(example.agent_tokens for example in ordered)

    def loss_of(rows: Sequence[Encoded]) -> tuple[Tensor, float]:
        logprob_S, _ = token_logprobs(state.model, [row.ids for row in rows], [row.turns for row in rows])
        # The mean over the agent tokens of the whole batch, whatever the size of a micro-batch.
        loss = -logprob_S.sum() / tokens
        return loss, float(loss.detach())

    state.model.train()
    parts = [ordered[start : start + config.micro_batch] for start in range(0, len(ordered), config.micro_batch)]
    loss_sum = sum(add_gradients(state.model, parts, loss_of))
    norm = clip_and_step(state.optimizer, state.model.parameters(), config.grad_norm)
    state.model.eval()
    return {
        "sft/loss/mean": loss_sum,
        "sft/lr/value": lr,
        "sft/grad_norm/mean": norm,
        "sft/tokens/count": float(tokens),
    }
