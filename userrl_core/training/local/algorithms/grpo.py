"""GRPO with multi-turn credit (UserRL section 3): the trajectories of a task are compared with each other.

Shaping, scoring and the form of the advantage are those of the recipe's `credit` block; a group whose scores are all equal
carries no signal and is dropped from the batch, unless the block's filter keeps it.
"""

from __future__ import annotations

import numpy as np

from userrl_core.rewards import CreditConfig, Credits
from userrl_core.training.local.batch import Advantages, Batch, from_turns


def grpo(batch: Batch, credits: Credits, config: CreditConfig) -> Advantages:
    """Group-normalised advantages per turn."""
    trains = credits.admitted if config.filter == "keep" else credits.signal
    return from_turns(batch, [np.asarray(row) for row in credits.advantages], trains.copy(), {})
