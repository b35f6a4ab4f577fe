"""What verl loads in the driver and in every Ray worker: entry point ``userrl`` of group ``verl.plugins``.

verl swallows an import error here, so `registered` is asked before a step is spent (`main.preflight`).
"""

from __future__ import annotations

from typing import Any

from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, register_adv_est

from userrl_core.training.verl.estimator import NAME, estimate

register_adv_est(NAME)(estimate)


def registered() -> dict[str, Any]:
    """Whether this process knows our estimator, and which versions it runs."""
    import os
    import socket

    import verl

    return {
        "estimator": ADV_ESTIMATOR_REGISTRY.get(NAME) is estimate,
        "verl": verl.__version__,
        "host": socket.gethostname(),
        "pid": os.getpid(),
    }
