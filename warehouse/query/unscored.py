"""Conversations without a score, and why they have none. They count in no mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from warehouse.query.warehouse import Warehouse

SHOWN, LENGTH = 3, 100
"""Reasons in a sentence, and characters of one."""


def unscored(warehouse: Warehouse, pairs: Iterable[tuple[str, str]], gym: str | None = None) -> dict[str, int]:
    """Count the conversations without a score by reason, of one gym or of all. pairs: (run, policy)."""
    reasons: Counter[str] = Counter()
    for run, policy in pairs:
        rows = warehouse.rows(_REASONS, run=run, policy=policy, gym=gym)
        reasons.update({row["reason"]: row["count"] for row in rows})
    return dict(reasons)


_REASONS = """
    SELECT coalesce(string_split(reject_reason, chr(10))[1], 'no reason is stored') AS reason, count(*) AS count
    FROM trajectories
    WHERE phase = 'evaluate' AND run_id = $run AND policy = $policy AND gym = coalesce($gym, gym)
          AND (NOT admitted OR score IS NULL)
    GROUP BY reason ORDER BY reason"""


def unscored_sentence(name: str, reasons: Mapping[str, int], *, of: int | None = None) -> str:
    """Return a sentence with the most common reasons. of: the number of all conversations, if it is known."""
    common = Counter(reasons).most_common(SHOWN)
    texts = [f"{reason[:LENGTH]} ({count:,})" for reason, count in common]
    texts += [f"{len(reasons) - SHOWN} other reasons"] if len(reasons) > SHOWN else []
    count = sum(reasons.values())
    amount = f"{count:,} of {of:,} conversations" if of else f"{count:,} conversation{'s' * (count != 1)}"
    return f"{name}: no score for {amount}, which count in no mean: {'; '.join(texts)}."
