"""``userrl.audit_credit``, ``userrl.audit_judge`` and ``userrl.audit_user``: audits of the training signal and of users."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from userrl.audits.credit import CreditAudit
    from userrl.audits.judge import JudgeAudit
    from userrl.audits.user import UserAuditReport


def audit_credit(
    who: str,
    *,
    gym: str | None = None,
    groups: int = 40,
    group: int = 8,
    k: int = 8,
    horizon: int | None = None,
    seed: int = 0,
    progress: bool = True,
) -> CreditAudit:
    """Compare every credit rule with the true advantage of turns, estimated from continuations of real conversations.

    who: a run, or a checkpoint's folder in one. gym: by default its only training gym. groups: number of training tasks, each
    with a group of trajectories. k: continuations of each prefix in each half; more groups reduce the error more than more
    continuations. horizon: maximum number of agent turns, by default the recipe's last horizon.

    The result is stored in the warehouse as a separate run. Raises ConfigError or CheckpointError with one sentence.
    """
    from userrl.api.progress import ProgressLine
    from userrl.audits.credit import audit_checkpoint
    from userrl.machine.home import quiet_process

    quiet_process()
    line = ProgressLine(at_once=True) if progress else None
    began = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal began
        if not done:
            began = time.monotonic()
        left = {"left_seconds": (time.monotonic() - began) / done * (total - done)} if done else {}
        if line is not None:
            line("continued prefixes", {"step": done, "total": total, **left})

    return audit_checkpoint(who, gym=gym, groups=groups, group=group, k=k, horizon=horizon, seed=seed, progress=show)


def audit_judge(
    run: str,
    judge: str | Mapping[str, Any] | None = None,
    *,
    repeats: int = 2,
    phase: str = "train",
    most: int = 100,
) -> JudgeAudit:
    """Compare a turn judge with the rule judge, and with its own repeated readings of stored conversations.

    judge: ``rule``, a model's name, or the recipe's judge keys; by default the run's own. phase: train, validate, evaluate or
    distill. most: maximum number of conversations, spread over the run. Nothing is stored. Raises ConfigError with one
    sentence.
    """
    from userrl.audits.judge import audit_judge as audit
    from userrl.machine.home import quiet_process

    quiet_process()
    return audit(run, judge, repeats=repeats, phase=phase, most=most)


def audit_user(
    run: str, *, phase: str | None = None, against: str | None = None, mix: Sequence[str] = ()
) -> UserAuditReport:
    """Report the errors of the users in a run's stored conversations, with a verdict for every failure, and store them.

    phase: train, validate, evaluate, distill or play; by default evaluate, and play for the run people. against: people, a run
    or a file that can be imported, whose users are the reference of a distance. mix: further runs and files, to find the
    mixture of users that is nearest to the reference. No model is called. Raises ConfigError with one sentence.
    """
    from userrl.audits.user import audit_user as audit
    from userrl.machine.home import quiet_process

    quiet_process()
    return audit(run, phase=phase, against=against, mix=mix)
