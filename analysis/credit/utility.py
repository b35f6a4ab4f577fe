"""The utility of a turn: its advantage U = Q(h, a) - V(h), estimated from continuations of the conversation's prefixes.

    U_t = r_t + gamma V(h_(t+1)) - V(h_t), with V = 0 after the end; the sum of gamma^(t-1) U_t is G - V(h_1) exactly.

This is not the return after the turn, which ranks the progress of a conversation and not the decision in it. The
values exclude the trajectory's own end, which would favour every rule that reads it. Neighbouring turns share a V, so
their errors are anticorrelated.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from userrl_core.rewards.shaping import Bools, Floats


def utilities(rewards_T: Sequence[float], values_T: Floats, gamma: float) -> Floats:
    """Return U of every turn, [T]. values_T: V before each turn."""
    next_T = np.append(values_T[1:], 0.0)
    utilities_T: Floats = np.asarray(rewards_T, dtype=np.float64) + gamma * next_T - values_T
    return utilities_T


def return_from(rewards_NT: Floats, turn: int, gamma: float) -> Floats:
    """Return the discounted sum of the rewards from a turn on (index from 0), [N]."""
    left = rewards_NT[:, turn:]
    return left @ gamma ** np.arange(left.shape[1])


def gap(values_N: Floats, stops_N: Bools) -> tuple[float, float]:
    """Return the mean value of continuing minus stopping after the same prefix, and the weight of this contrast.

    values_N: one value per continuation. stops_N: whether its next turn ended the conversation. The weight is 0
    without both cases.
    """
    stopped, going = int(stops_N.sum()), int((~stops_N).sum())
    if not stopped or not going:
        return 0.0, 0.0
    weight = stopped * going / (stopped + going)
    return float(values_N[~stops_N].mean() - values_N[stops_N].mean()), weight


def least_error(n: int, reach: float) -> float:
    """Return the minimum standard error of a mean of n equal numbers. reach: the range of the numbers."""
    p = 0.5 / (n + 1)
    return reach * float(np.sqrt(p * (1 - p) / n))
