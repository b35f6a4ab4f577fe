"""The gradient of a minibatch, as the sum over its micro-batches.

Two threads that divide the operations of a bfloat16 model gain little on a CPU: most of its operations are short, and all
threads wait for the slowest at the end of each. With a large model each thread therefore computes a micro-batch of its own.
Six groups of eight conversations of 76 to 146 tokens take .71 of the time with it (two cores with AMX), in float32 as long as
without it and more memory. Gradients are added in the order of the micro-batches, so the sum has the bits that one thread gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch import Tensor

from userrl_core.training.local.samples import LARGE_VOCABULARY

Part = TypeVar("Part")
Metrics = TypeVar("Metrics")


def add_gradients(
    model: Any, parts: Sequence[Part], loss_of: Callable[[Part], tuple[Tensor, Metrics]]
) -> list[Metrics]:
    """Add the gradients of the parts' losses to those of the model. Return what `loss_of` returns beside each loss."""
    if not _side_by_side(model, len(parts)):
        kept = []
        for part in parts:
            loss, metrics = loss_of(part)
            loss.backward()  # type: ignore[no-untyped-call]
            kept.append(metrics)
        return kept
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def gradients(part: Part) -> tuple[Sequence[Tensor | None], Metrics]:
        loss, metrics = loss_of(part)
        return torch.autograd.grad(loss, parameters, allow_unused=True), metrics

    kept, threads = [], torch.get_num_threads()
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        # As many at a time as there are threads: no more gradients than these exist at once.
        for start in range(0, len(parts), threads):
            for added, metrics in pool.map(gradients, parts[start : start + threads]):
                for parameter, gradient in zip(parameters, added, strict=True):
                    if gradient is not None:
                        parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
                kept.append(metrics)
    # The number that a thread sets is also that of threads that start later.
    torch.set_num_threads(threads)
    return kept


def _side_by_side(model: Any, parts: int) -> bool:
    """Return whether micro-batches are computed at the same time. Results of the small models made here keep their bits."""
    gains = model.config.vocab_size > LARGE_VOCABULARY and model.dtype == torch.bfloat16 and model.device.type == "cpu"
    return gains and parts > 1 and torch.get_num_threads() > 1 and not model.is_gradient_checkpointing
