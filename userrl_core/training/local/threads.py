"""How torch may use the processor. Call `quiet_threads` first thing in a process that will train, before torch is imported.

Idle OpenMP threads that spin steal the cores from whoever else works on a laptop: decoding with two threads then swings
by a factor of twenty. The settings only count when they are in the environment before torch loads.
"""

from __future__ import annotations

import os
import sys

from userrl_core.errors import ConfigError

SETTINGS = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
"""Environment of a training process; a flow that starts one may merge these into its environment."""


def quiet_threads() -> None:
    """Let idle OpenMP threads sleep. Values that the environment already holds are kept."""
    if "torch" in sys.modules and any(name not in os.environ for name in SETTINGS):
        raise ConfigError("quiet_threads() comes too late: torch is already imported; call it first in the process.")
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


def fix_threads(count: int) -> None:
    """Use this many threads for one operation. The sum of a matrix product depends on it in its last bits."""
    if count < 1:
        raise ConfigError(f"A trainer needs at least one thread, not {count}.")
    import torch

    if torch.get_num_threads() != count:
        torch.set_num_threads(count)
