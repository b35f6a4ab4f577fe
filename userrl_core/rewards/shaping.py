"""Turn-level reward shaping (UserRL section 3): the credit of each turn of a trajectory.

Pure functions of the raw rewards of many trajectories at once; no group, no policy, no state. Every value is
independent of the rest of the batch.

Shape suffixes: N trajectories, T turns of the longest one. Rows are left-aligned and padded with zeros; ``real_NT``
marks the entries that are turns.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from userrl_core.errors import ConfigError
from userrl_core.rewards.config import CreditConfig
from userrl_core.rewards.installed import installed_credit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def shape(rewards_NT: Floats, real_NT: Bools, config: CreditConfig) -> Floats:
    """Return the shaped credit of every turn, shape [N, T], zero at padding.

    rewards_NT: raw rewards, zero at padding. real_NT: True where a turn exists. Raises ConfigError for rewards outside
    [0, 1] under ``em``, and for an installed rule that is missing or gives no valid credit.
    """
    match config.shaping:
        case "naive":
            return rewards_NT.copy()
        case "equalized":
            # Every turn counts alike, and the trajectory's score alone distinguishes (UserRL section 3).
            return real_NT.astype(np.float64)
        case "r2g":
            return reward_to_go(rewards_NT, config.gamma)
        case "em":
            mapped_NT = exponential_mapping(rewards_NT, real_NT, config.k)
            # The released code rounds em to four digits.
            return four_digits(mapped_NT) if config.rounding == "released" else mapped_NT
    return installed_credit(config.shaping, rewards_NT, real_NT, gamma=config.gamma, k=config.k)


def reward_to_go(rewards_NT: Floats, gamma: float) -> Floats:
    """Return the discounted sum of this and all later rewards: g_t = r_t + gamma g_(t+1).

    gamma: in [0, 1]; 1 gives plain suffix sums, 0 the rewards themselves.
    """
    # A reverse scan over columns, not a Toeplitz product: T is at most a few dozen, and padding adds exact zeros.
    credit_NT = rewards_NT.copy()
    for t in range(credit_NT.shape[1] - 2, -1, -1):
        credit_NT[:, t] += gamma * credit_NT[:, t + 1]
    return credit_NT


def exponential_mapping(rewards_NT: Floats, real_NT: Bools, k: float) -> Floats:
    """Map rewards in [0, 1] into [0.5, 1]: 0.5 + 0.5 (1 - e^(-k r)) / (1 - e^(-k)), k > 0.

    Raises ConfigError for rewards outside [0, 1], where the mapping is undefined.
    """
    if rewards_NT.size and (rewards_NT.min() < 0.0 or rewards_NT.max() > 1.0):
        raise ConfigError(
            "credit.out_of_range",
            f"Shaping em needs rewards in [0, 1], but they range from {rewards_NT.min():g} to "
            f"{rewards_NT.max():g}. Use shaping equalized, or let the gym scale its rewards.",
        )
    # expm1, not exp(x) - 1: small k would lose the digits that tell rewards apart.
    mapped_NT = 0.5 + 0.5 * np.expm1(-k * rewards_NT) / np.expm1(-k)
    return np.where(real_NT, mapped_NT, 0.0)


def four_digits(values: Floats) -> Floats:
    """Round to four digits as Python does."""
    # To the nearest decimal of the exact value, which NumPy's scaling occasionally misses.
    return np.array([round(value, 4) for value in values.ravel().tolist()]).reshape(values.shape)
