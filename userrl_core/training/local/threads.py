"""Thread settings of torch. A training process calls `quiet_threads` first, before torch is imported.

On a laptop, idle OpenMP threads that spin take the cores from other processes. The time of decoding with two threads
then varies by a factor of twenty. The settings take effect only if they are set before torch is imported.
"""

from __future__ import annotations

import os
import sys

from userrl_core.errors import ConfigError

SETTINGS = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
"""Environment variables of a training process; a flow that starts one adds them to its environment."""


def quiet_threads() -> None:
    """Let idle OpenMP threads sleep. Values already in the environment are kept."""
    if "torch" in sys.modules and any(name not in os.environ for name in SETTINGS):
        raise ConfigError(
            "training.bad_call",
            "quiet_threads() was called too late: torch is already imported. Call it first in the process.",
        )
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


def fix_threads(count: int) -> None:
    """Set the number of threads of one operation. The last bits of a matrix product depend on it."""
    if count < 1:
        raise ConfigError("argument.out_of_range", f"A trainer needs at least one thread, not {count}.")
    import torch  # imported here: quiet_threads must be called before torch is imported

    if torch.get_num_threads() != count:
        torch.set_num_threads(count)
