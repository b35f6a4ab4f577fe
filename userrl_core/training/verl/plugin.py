"""The plugin that verl loads in the driver and in every Ray worker: entry point ``userrl`` of group ``verl.plugins``.

verl swallows an import error here, so `registered` is checked before a step is spent (`main.check_workers`).
"""

from __future__ import annotations

from typing import Any

from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, register_adv_est

from userrl_core.training.verl.estimator import NAME, estimate
from userrl_core.training.verl.machine.attention import load_critics_as_configured
from userrl_core.training.verl.per_trajectory import (
    REINFORCE_PP,
    REMAX,
    RLOO,
    estimate_reinforce_pp,
    estimate_remax,
    estimate_rloo,
)

ESTIMATORS = {NAME: estimate, RLOO: estimate_rloo, REINFORCE_PP: estimate_reinforce_pp, REMAX: estimate_remax}

for _name, _function in ESTIMATORS.items():
    register_adv_est(_name)(_function)

load_critics_as_configured()


def registered() -> dict[str, Any]:
    """Return the plugin's state in this process: our estimators are known or not, and the versions."""
    import os
    import socket

    import verl

    return {
        "estimator": all(ADV_ESTIMATOR_REGISTRY.get(name) is ours for name, ours in ESTIMATORS.items()),
        "verl": verl.__version__,
        "host": socket.gethostname(),
        "pid": os.getpid(),
    }
