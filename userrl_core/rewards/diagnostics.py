"""Statistics of a batch's groups, for the log: which have a signal, which are all good or all bad."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from userrl_core.rewards.ragged import GroupStatistics
from userrl_core.rewards.shaping import Bools, Ints


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """Statistics of a batch's groups. Group ids are the caller's; trajectories are identified by index.

    zero_variance: groups of two or more admitted trajectories with equal scores. too_small: groups with fewer than
    two admitted. null: trajectories with a null reward or without a turn. zero_credit: admitted trajectories, in a
    group with a signal, whose shaped credit sums to zero; form ``released`` gives them no gradient. all_good /
    all_bad / mixed: number of groups of two or more admitted trajectories with only good, only bad, or both kinds.
    """

    groups: int
    zero_variance: tuple[Hashable, ...]
    too_small: tuple[Hashable, ...]
    null: tuple[int, ...]
    zero_credit: tuple[int, ...]
    all_good: int
    all_bad: int
    mixed: int

    def metrics(self) -> dict[str, float]:
        """Return the metrics that are logged per step."""
        groups = max(self.groups, 1)
        return {
            "groups/zero_variance/share": len(self.zero_variance) / groups,
            "groups/too_small/share": len(self.too_small) / groups,
            "groups/all_good/share": self.all_good / groups,
            "groups/all_bad/share": self.all_bad / groups,
            "groups/mixed/share": self.mixed / groups,
            "groups/all/count": float(self.groups),
            "credit/null/count": float(len(self.null)),
            "credit/zero_credit/count": float(len(self.zero_credit)),
        }


def diagnose(
    ids: list[Hashable],
    group_N: Ints,
    admitted_N: Bools,
    zero_N: Bools,
    stats: GroupStatistics,
    good: Sequence[bool] | None,
) -> Diagnostics:
    """Return the statistics of a batch.

    ids: the groups. group_N: each trajectory's index into them. zero_N: trajectories with a signal and without credit.
    good: True for trajectories that succeeded. Without it a group of equal scores is all-good when the scores are above
    zero.
    """
    return Diagnostics(
        groups=len(ids),
        zero_variance=tuple(ids[g] for g in np.flatnonzero((stats.count >= 2) & ~stats.signal)),
        too_small=tuple(ids[g] for g in np.flatnonzero(stats.count < 2)),
        null=tuple(np.flatnonzero(~admitted_N).tolist()),
        zero_credit=tuple(np.flatnonzero(zero_N).tolist()),
        **_count_kinds(group_N, admitted_N, stats, good),
    )


def _count_kinds(
    group_N: Ints, admitted_N: Bools, stats: GroupStatistics, good: Sequence[bool] | None
) -> dict[str, int]:
    compared_G = stats.count >= 2
    if good is None:
        equal_G = compared_G & ~stats.signal
        all_good = int((equal_G & (stats.mean > 0)).sum())
        return {"all_good": all_good, "all_bad": int(equal_G.sum()) - all_good, "mixed": int(stats.signal.sum())}
    if len(good) != len(group_N):
        raise ValueError(f"{len(good)} values in good for {len(group_N)} trajectories; pass one per trajectory.")
    good_G = np.bincount(group_N[admitted_N], weights=np.asarray(good, float)[admitted_N], minlength=len(stats.count))
    all_good = int((compared_G & (good_G == stats.count)).sum())
    all_bad = int((compared_G & (good_G == 0)).sum())
    return {"all_good": all_good, "all_bad": all_bad, "mixed": int(compared_G.sum()) - all_good - all_bad}
