"""The gradient of a minibatch, as the sum over its micro-batches.

Most operations of a bfloat16 model on a CPU are short. Two threads that divide each one wait for each other again and again. With
a large model each thread therefore computes a micro-batch of its own (`python -m lab.benchmarks.language_model` times both). In
float32 this takes as long, and more memory. Gradients are added in the order of the micro-batches. So the sum has the bits that
one thread gives.
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
        results = []
        for part in parts:
            loss, metrics = loss_of(part)
            loss.backward()  # type: ignore[no-untyped-call]
            results.append(metrics)
        return results
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def gradients(part: Part) -> tuple[Sequence[Tensor | None], Metrics]:
        loss, metrics = loss_of(part)
        return torch.autograd.grad(loss, parameters, allow_unused=True), metrics

    results, threads = [], torch.get_num_threads()
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        # As many at a time as there are threads: no more gradients than these exist at once.
        for start in range(0, len(parts), threads):
            for of_part, metrics in pool.map(gradients, parts[start : start + threads]):
                for parameter, gradient in zip(parameters, of_part, strict=True):
                    if gradient is not None:
                        parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
                results.append(metrics)
    # The number that a thread sets is also that of threads that start later.
    torch.set_num_threads(threads)
    return results


def _side_by_side(model: Any, parts: int) -> bool:
    """Return whether micro-batches are computed at the same time. Results of the small models made here keep their bits."""
    gains = model.config.vocab_size > LARGE_VOCABULARY and model.dtype == torch.bfloat16 and model.device.type == "cpu"
    return gains and parts > 1 and torch.get_num_threads() > 1 and not model.is_gradient_checkpointing
