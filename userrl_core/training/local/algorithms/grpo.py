"""GRPO with multi-turn credit (UserRL section 3): trajectories of the same task are compared with each other.

The recipe's `credit` block sets shaping, scoring and the form of the advantage. A group with equal scores carries no
signal. It is dropped from the batch unless the block's filter keeps it.
"""

from __future__ import annotations

import numpy as np

from userrl_core.rewards import CreditConfig, Credits
from userrl_core.training.local.batch import Advantages, Batch, from_turns


def grpo(batch: Batch, credits: Credits, config: CreditConfig) -> Advantages:
    """Return group-normalised advantages per turn."""
    # Groups without a signal have advantage 0. Under `keep` they still count in the loss's means.
    trains = credits.admitted if config.filter == "keep" else credits.signal
    return from_turns(batch, [np.asarray(row) for row in credits.advantages], trains.copy(), {})
