"""``userrl.branch``: alternative continuations from a turn of a stored conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from userrl.branching.branch import Branches


def branch(
    trajectory: int, turn: int, *, k: int = 4, edit: str | None = None, policy: str | None = None, seed: int = 0
) -> Branches:
    """Continue a stored conversation from one turn several times, with new random draws or another reply. Nothing is logged.

    trajectory: its traj_id. turn: the turn that is played again, from 1. k: number of continuations. edit: the agent's reply
    in that turn, such as ``answer H1``, or a whole reply text. policy: a run or a checkpoint's folder; by default the run's
    own. Raises ConfigError, CheckpointError or GymError with one sentence.
    """
    from curricula.validation import validated
    from userrl.branching.branch import BranchRequest, play_on
    from userrl.machine.home import quiet_process

    quiet_process()
    values = {"trajectory": trajectory, "turn": turn, "k": k, "edit": edit, "policy": policy, "seed": seed}
    return play_on(validated(BranchRequest, values, "branch"))
