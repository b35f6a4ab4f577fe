"""A credit rule from outside the tree: `credit: {shaping: last_turn}`."""

import numpy as np
from numpy.typing import NDArray


def last_turn(
    rewards_NT: NDArray[np.float64], real_NT: NDArray[np.bool_], *, gamma: float, k: float
) -> NDArray[np.float64]:
    """Give all credit to the last turn: the trajectory's reward sum there, zero before."""
    turns_N = real_NT.sum(axis=1)
    credit_NT = np.zeros_like(rewards_NT)
    credit_NT[np.arange(len(turns_N)), np.maximum(turns_N, 1) - 1] = rewards_NT.sum(axis=1)
    return credit_NT
