"""Direct preference optimisation on whole conversations (Rafailov et al. 2023): no rollouts, no rewards.

The loss of a pair is -log sigmoid(beta * margin), the margin being how much more than the starting model the trained one
prefers the chosen conversation to the rejected one. Only the agent's tokens count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  the customary name
from torch import Tensor

from userrl_core.errors import TrainingError
from userrl_core.seeding import derive_seed
from userrl_core.sink import Sink
from userrl_core.training.jobs import DpoConfig, DpoJob, StageResult
from userrl_core.training.local.algorithms.pairs import read_pairs
from userrl_core.training.local.chat import ChatFormat, Encoded
from userrl_core.training.local.fit import fit, own_checkpoint, shuffled_batches
from userrl_core.training.local.logprobs import reference_logprobs, token_logprobs
from userrl_core.training.local.model import context_limit
from userrl_core.training.local.optimizer import adamw, clip_and_step, set_lr
from userrl_core.training.local.state import TrainState, load_checkpoint
from userrl_core.training.local.threads import fix_threads
from userrl_core.training.protocols import Progress


def train_dpo(job: DpoJob, sink: Sink | None = None, progress: Progress | None = None) -> StageResult:
    """Run the job to its end; a job started again goes on from its newest checkpoint, bit for bit.

    Raises TrainingError where there is no pair, CheckpointError for an unusable start.
    """
    fix_threads(job.threads)
    pairs = read_pairs(job.pairs)
    if not pairs:
        raise TrainingError(f"{job.pairs} holds no preference pair; every task's attempts scored alike.")
    start, tokenizer = load_checkpoint(job.init, job.model, job.device)
    chat_format, limit = ChatFormat(tokenizer), context_limit(start)
    encoded = [[chat_format.chat(chat, limit) for chat in pair] for pair in pairs]
    both = [side for pair in encoded for side in pair]
    start_sums = _sums(reference_logprobs(start, [s.ids for s in both], [s.turns for s in both], 1.0, job.dpo.batch))
    found = own_checkpoint(job)
    model = load_checkpoint(found, job.model, job.device)[0] if found else start
    generator = torch.Generator(job.device).manual_seed(derive_seed(job.seed, "dpo"))
    optimizer = adamw(model, job.dpo.lr, job.dpo.betas, job.dpo.weight_decay)
    state = TrainState(model, tokenizer, optimizer, generator, kind="dpo")

    def step(number: int, rows: Sequence[int]) -> dict[str, float]:
        reference = torch.stack([start_sums[2 * row + side] for row in rows for side in (0, 1)])
        return _step(state, [side for row in rows for side in encoded[row]], reference, job.dpo, number)

    batches = shuffled_batches(len(pairs), job.dpo.batch, job.seed)
    return fit(job, job.stage, state, job.dpo.steps, batches, step, sink, progress)


def dpo_loss(own_P2: Tensor, reference_P2: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """Loss and margin per pair, [P]; columns are chosen and rejected, entries the sums of log-probabilities in nats."""
    gain_P2 = own_P2 - reference_P2
    margin_P = beta * (gain_P2[:, 0] - gain_P2[:, 1])
    return -F.logsigmoid(margin_P), margin_P


def _step(
    state: TrainState, sides: Sequence[Encoded], reference: Tensor, config: DpoConfig, number: int
) -> dict[str, float]:
    """sides: chosen, rejected, chosen, rejected ...; reference: their sums under the starting model."""
    rise = max(1, config.steps // 10)
    set_lr(state.optimizer, config.lr * min(1.0, number / rise))
    state.model.train()
    picked_S, _ = token_logprobs(state.model, [side.ids for side in sides], [side.turns for side in sides])
    counts = [side.agent_tokens for side in sides]
    own_P2 = torch.stack([part.sum() for part in torch.split(picked_S, counts)]).view(-1, 2)
    loss_P, margin_P = dpo_loss(own_P2, reference.view(-1, 2).to(own_P2.device), config.beta)
    loss = loss_P.mean()
    if config.sft_coef:
        loss = loss - config.sft_coef * own_P2[:, 0].sum() / max(sum(counts[::2]), 1)
    loss.backward()  # type: ignore[no-untyped-call]
    norm = clip_and_step(state.optimizer, state.model.parameters(), config.grad_norm)
    state.model.eval()
    return {
        "dpo/loss/mean": float(loss_P.detach().mean()),
        "dpo/margin/mean": float(margin_P.detach().mean()),
        "dpo/preferred/share": float((margin_P.detach() > 0).float().mean()),
        "dpo/grad_norm/mean": norm,
    }


def _sums(logprobs: Sequence[Any]) -> list[Tensor]:
    return [row.sum() for row in logprobs]
