"""AdamW, and its state as named tensors.

16-bit weights need 32-bit master weights. The optimiser steps the master weights, and the 16-bit weights are rounded from
them. A trained parameter takes at most 16 bytes either way, and a step works on one tensor at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

_MASTER = "master"


class MasterAdamW(torch.optim.AdamW):
    """AdamW on float32 master weights of a module."""

    def __init__(self, module: nn.Module, lr: float, betas: tuple[float, float], weight_decay: float) -> None:
        # A step of 1e-6 is far below the resolution of bfloat16 near 1, and would always be rounded away.
        self.masters = {p: nn.Parameter(p.detach().float().clone()) for p in trained(module).values()}
        # `foreach` would hold one or two more copies of the model: 4 billion parameters would not fit on 80 GB. On a CPU the fused
        # step reads each number once, in .4 of the time.
        fused = all(parameter.device.type == "cpu" for parameter in self.masters)
        super().__init__(
            self.masters.values(), lr=lr, betas=betas, weight_decay=weight_decay, foreach=False, fused=fused
        )

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Step the master weights with the weights' gradients, then round them into the weights."""
        loss = None if closure is None else closure()
        (group,) = self.param_groups
        masters = group["params"]
        try:
            # AdamW treats parameters alone. One at a time, a second copy of all gradients never exists.
            for parameter, master in self.masters.items():
                if parameter.grad is None:
                    continue
                master.grad = parameter.grad.float()
                group["params"] = [master]  # else each base step would look at every parameter
                super().step()
                parameter.grad = master.grad = None
        finally:
            group["params"] = masters
        self.publish()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of weights and master weights."""
        for parameter, master in self.masters.items():
            parameter.grad = master.grad = None

    @torch.no_grad()
    def publish(self) -> None:
        """Round the master weights into the weights."""
        for parameter, master in self.masters.items():
            parameter.copy_(master)


def adamw(module: nn.Module, lr: float, betas: tuple[float, float], weight_decay: float) -> torch.optim.AdamW:
    """Return AdamW over all trained parameters, with 32-bit master weights where they have fewer bits."""
    parameters = trained(module).values()
    if all(parameter.dtype == torch.float32 for parameter in parameters):
        # `foreach` would hold one or two more copies of the weights, for the same result.
        return torch.optim.AdamW(parameters, lr=lr, betas=betas, weight_decay=weight_decay, foreach=False)
    return MasterAdamW(module, lr, betas, weight_decay)


def trained(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the trained parameters by name: the adapters under LoRA, otherwise all."""
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of the next step."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def clip_and_step(optimizer: torch.optim.Optimizer, parameters: Iterable[Tensor], limit: float) -> float:
    """Take one optimiser step with the gradient clipped to the limit. Return the norm before clipping.

    The step is skipped when the norm is not finite.
    """
    norm = float(nn.utils.clip_grad_norm_(list(parameters), limit))
    # One gradient that is not finite would spoil all weights and both moments. The step is skipped.
    if norm == norm and norm != float("inf"):
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm


def optimizer_tensors(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimiser's state as ``<parameter>/<moment>``."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in trained(module).items():
        stepped = _stepped(optimizer, parameter)
        if stepped is not parameter:
            tensors[f"{name}/{_MASTER}"] = stepped.detach().cpu().contiguous()
        for moment, value in optimizer.state.get(stepped, {}).items():
            tensors[f"{name}/{moment}"] = torch.as_tensor(value).detach().cpu().contiguous()
    return tensors


def load_optimizer_tensors(module: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Load the state that `optimizer_tensors` returned. Raises KeyError with the name of a parameter that the module
    does not train.
    """
    parameters = trained(module)
    for key, value in tensors.items():
        name, _, moment = key.rpartition("/")
        stepped: Any = _stepped(optimizer, parameters[name])
        if moment == _MASTER:
            with torch.no_grad():
                stepped.copy_(value)
            continue
        # Cloned: tensors mapped from a file are aligned differently from torch's own. AdamW keeps its step on the CPU.
        device = "cpu" if moment == "step" else stepped.device
        optimizer.state[stepped][moment] = value.clone().to(device)


def _stepped(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> nn.Parameter:
    """Return the tensor that the optimiser steps for this parameter: the parameter or its master weights."""
    return optimizer.masters[parameter] if isinstance(optimizer, MasterAdamW) else parameter
