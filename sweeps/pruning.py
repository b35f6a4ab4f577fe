"""Pruning by comparison at the same point only.

Optuna's own median pruner compares a trial's best value so far with the others at a step. Under a staged horizon that is
unsound: the reward at horizon 4 says nothing about the reward at horizon 6, and a schedule that starts short would be cut
for being in its first stage. Here a value is compared only with values of the same stage, horizon and step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sweeps.objective import Point
from sweeps.space import Pruning
from userrl_core.number_format import number

TIE = 1e-9


def should_prune(
    points: Sequence[Point], others: Sequence[Sequence[Point]], rule: Pruning, *, maximize: bool = True
) -> str | None:
    """Return the reason why this trial should stop as a sentence, or None.

    points: the trial's validations so far. others: those of every other trial, finished or running. Only the trial's latest
    point counts. Ties are kept.
    """
    if not rule.enabled or not points or points[-1].step < max(1, rule.warmup_steps):
        return None
    last = points[-1]
    peers = [p.value for validations in others for p in validations if p.place == last.place]
    if len(peers) < rule.min_trials:
        return None
    share = rule.percentile if maximize else 100.0 - rule.percentile
    threshold = float(np.percentile(peers, share))
    # Means of the same scores in another order differ in their last bits, and are ties.
    worse = last.value < threshold - TIE if maximize else last.value > threshold + TIE
    if not worse:
        return None
    side = "below" if maximize else "above"
    return (
        f"{number(last.value)} at {last.stage}, horizon {last.horizon}, step {last.step} lies {side} {number(threshold)}, "
        f"percentile {share:g} of {len(peers)} other trials at the same point"
    )
