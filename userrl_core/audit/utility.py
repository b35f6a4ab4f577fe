"""What a turn was worth: its advantage U = Q(h, a) - V(h), estimated from continuations of the conversation's prefixes.

    U_t = r_t + gamma V(h_(t+1)) - V(h_t), with V = 0 after the end; the sum of gamma^(t-1) U_t is G - V(h_1) exactly.

Not the return after the turn: that ranks how far a conversation is, not what was decided in it. The trajectory's own end is in
none of the values: it would flatter every rule that reads it. Neighbouring turns share a V, so their errors are anticorrelated.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from userrl_core.rewards.shaping import Bools, Floats


def utilities(rewards_T: Sequence[float], values_T: Floats, gamma: float) -> Floats:
    """U of every turn, [T]. values_T: V before each turn."""
    next_T = np.append(values_T[1:], 0.0)
    found: Floats = np.asarray(rewards_T, dtype=np.float64) + gamma * next_T - values_T
    return found


def return_from(rewards_NT: Floats, turn: int, gamma: float) -> Floats:
    """Discounted sum of the rewards from a turn on (index from 0), [N]."""
    left = rewards_NT[:, turn:]
    return left @ gamma ** np.arange(left.shape[1])


def gap(values_N: Floats, stops_N: Bools) -> tuple[float, float]:
    """What going on gives more than stopping, from the same prefix, and how much such a contrast weighs (0: none).

    values_N: of what was done there, one number per way on. stops_N: whether it ended the conversation.
    """
    stopped, going = int(stops_N.sum()), int((~stops_N).sum())
    if not stopped or not going:
        return 0.0, 0.0
    weight = stopped * going / (stopped + going)
    return float(values_N[~stops_N].mean() - values_N[stops_N].mean()), weight


def least_error(n: int, reach: float) -> float:
    """Least standard error to believe of a mean of n numbers that all came out alike, where numbers may differ by ``reach``."""
    p = 0.5 / (n + 1)
    return reach * float(np.sqrt(p * (1 - p) / n))
