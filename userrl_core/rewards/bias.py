"""Mean-advantage bias (ours, "push"): how far a rule's advantages deviate from a mean of 0. It needs only rewards and
token counts.

An advantage compares an action with the alternatives, so its mean over a group should be 0. Any other mean raises or
lowers the probability of all replies, good or bad. With w the turn's share of its trajectory's agent tokens:

    group push = sum over groups |sum w A| / sum w |A|          turn push: the same over (group, turn number)

Both are in [0, 1]. The group push of ``equalized`` and of form ``centred`` is 0 by construction.

Shape suffixes as in ``ragged.py``.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from userrl_core.rewards.advantage import Credits
from userrl_core.rewards.ragged import TurnTokens, index_of, pad_tokens, turn_weights
from userrl_core.rewards.shaping import Floats

WARN_ABOVE = 0.5
"""Group push above which training warns. In the prototype study such rules stalled or collapsed on errand, though not
on travel.
"""

BELOW = -1e-9
"""A trajectory with z below this is below its group's mean; equal scores differ by rounding."""


@dataclass(frozen=True, slots=True)
class MeanAdvantageBias:
    """The mean-advantage bias of a batch.

    group, turn: see above; 0 where every advantage is 0. silent: of the trajectories that score below their group's
    mean, the share with zero advantage everywhere. The update cannot tell these zero-gradient failures from actions
    that were never tried.
    """

    group: float
    turn: float
    silent: float

    def metrics(self) -> dict[str, float]:
        """Return the metrics that are logged per step."""
        return {
            "credit/push_group/share": self.group,
            "credit/push_turn/share": self.turn,
            "credit/silent_below/share": self.silent,
        }


def measure_bias(
    advantages: Sequence[Floats] | Sequence[Sequence[float]],
    groups: Sequence[Hashable],
    credits: Credits,
    turn_tokens: TurnTokens | None = None,
) -> MeanAdvantageBias:
    """Measure the advantages that are trained on. They may differ from ``credits``, which is used only for scores
    below the mean.

    advantages, turn_tokens: ragged, one number per turn; one token per turn by default. groups: one id per trajectory.
    """
    turns_N = np.array([len(row) for row in advantages], dtype=np.int64)
    real_NT = np.arange(turns_N.max(initial=0)) < turns_N[:, None]
    advantage_NT = np.zeros(real_NT.shape)
    advantage_NT[real_NT] = np.array([a for row in advantages for a in row], dtype=np.float64)
    pushed_NT = advantage_NT * turn_weights(pad_tokens(turn_tokens, turns_N, real_NT))
    ids, group_N = index_of(groups)
    of_turn_GT = np.zeros((len(ids), real_NT.shape[1]))
    np.add.at(of_turn_GT, group_N, pushed_NT)
    mass = float(np.abs(pushed_NT).sum())
    below_N = credits.signal & (credits.z < BELOW)
    silent_N = below_N & ~advantage_NT.any(axis=1)
    return MeanAdvantageBias(
        group=float(np.abs(of_turn_GT.sum(axis=1)).sum()) / mass if mass else 0.0,
        turn=float(np.abs(of_turn_GT).sum()) / mass if mass else 0.0,
        silent=float(silent_N.sum()) / max(int(below_N.sum()), 1),
    )
