"""``userrl.reverify``: new scores for stored conversations under another judge or changed rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from userrl.evaluation.reverified import ReverifiedRun


def reverify(
    run: str = "latest",
    *,
    judge: str | Mapping[str, Any] | None = None,
    changes: Mapping[str, Mapping[str, Any]] | None = None,
    gyms: Sequence[str] = (),
    phase: str = "evaluate",
) -> ReverifiedRun:
    """Score a run's stored conversations again and return the scores before and after. No conversation is repeated.

    judge: ``rule``, ``openai``, or kind and options. changes: changed rules by gym, such as
    ``{"tau": {"check_outputs": True}}``. phase: ``evaluate``, ``validate``, ``train`` or ``distill``. The result is stored as
    a separate run in the warehouse. Raises ConfigError with one sentence.
    """
    from curricula.validation import validated
    from userrl.evaluation.reverified import ReverifyRequest, reverify_run
    from userrl.machine.home import quiet_process

    quiet_process()
    values = {"run": run, "judge": judge, "changes": changes or {}, "gyms": gyms, "phase": phase}
    return reverify_run(validated(ReverifyRequest, values, "reverify"))
