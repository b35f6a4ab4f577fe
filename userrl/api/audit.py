"""``userrl.audit_credit`` and ``userrl.audit_judge``: audits of what training learns from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from userrl.audits.credit import CreditAudit
    from userrl.audits.judge import JudgeAudit


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
    """Compare every credit rule with what turns were worth to a checkpoint, from continuations of real conversations.

    who: a run, or a checkpoint's folder in one. gym: its only training gym by default. groups: training tasks, each with a group
    of trajectories. k: continuations of a prefix in either half; more groups
    lower the error more than more continuations do. horizon: most agent turns, by default of the recipe's last stage.
    The result is stored in the warehouse as a run of its own. Raises ConfigError or CheckpointError with one sentence.
    """
    from userrl.api.progress import ProgressLine
    from userrl.audits.credit import audit_checkpoint
    from userrl.machine.home import quiet_process

    quiet_process()
    line = ProgressLine() if progress else None

    def show(done: int, total: int) -> None:
        if line is not None:
            line("continued prefixes", {"step": done, "total": total})

    return audit_checkpoint(who, gym=gym, groups=groups, group=group, k=k, horizon=horizon, seed=seed, progress=show)


def audit_judge(
    run: str,
    judge: str | Mapping[str, Any] | None = None,
    *,
    repeats: int = 2,
    phase: str = "train",
    most: int = 100,
) -> JudgeAudit:
    """Compare a judge of turns with the rule judge, and with itself on repeated readings of stored conversations.

    judge: ``rule``, a model's name, or the recipe's judge keys; the run's own by default. phase: train, validate, evaluate or
    distill. most: at most so many conversations, spread over the run. Nothing is stored. Raises ConfigError with one sentence.
    """
    from userrl.audits.judge import audit_judge as audit
    from userrl.machine.home import quiet_process

    quiet_process()
    return audit(run, judge, repeats=repeats, phase=phase, most=most)
