"""The optimiser step of 16-bit weights: one parameter at a time, to the same bits as all at once."""

from __future__ import annotations

import torch
from torch import nn

from userrl_core.training.local.optimizer import MasterAdamW


def test_a_step_is_that_of_adamw_on_all_master_weights_bit_for_bit() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4), nn.Linear(4, 4)).bfloat16()
    optimizer = MasterAdamW(module, 1e-2, (0.9, 0.95), 0.1)
    masters = [nn.Parameter(p.detach().float().clone()) for p in module.parameters()]
    plain = torch.optim.AdamW(masters, lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    for number in range(5):
        for parameter, master in zip(module.parameters(), masters, strict=True):
            if number == 2 and parameter.shape == (4, 4):
                continue  # one without a gradient
            parameter.grad = torch.randn(parameter.shape).bfloat16()
            master.grad = parameter.grad.float()
        optimizer.step()
        plain.step()
        plain.zero_grad()
        for parameter, ours, other in zip(module.parameters(), optimizer.masters.values(), masters, strict=True):
            assert torch.equal(ours, other)
            assert torch.equal(parameter, other.bfloat16())
            assert parameter.grad is None


def test_a_step_looks_at_each_parameter_once() -> None:
    module = nn.Sequential(*(nn.Linear(2, 2) for _ in range(20))).bfloat16()
    optimizer = MasterAdamW(module, 1e-2, (0.9, 0.95), 0.0)
    looked: list[int] = []
    optimizer.register_step_pre_hook(lambda *_: looked.append(len(optimizer.param_groups[0]["params"])))
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert set(looked[-40:]) == {1}
    assert len(optimizer.param_groups[0]["params"]) == 40
