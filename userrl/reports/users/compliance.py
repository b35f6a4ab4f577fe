"""How often a served user shows the trait that it was told to show: its compliance."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from userrl.reports.document import Block, TableBlock
from userrl_core.number_format import with_limits
from warehouse import Warehouse

_DUE = """
WITH due AS (
    SELECT traj_id, info->>'$.persona.move' AS move, (info->>'$.persona.shown')::BOOLEAN AS shown FROM turns
    WHERE run_id = $run AND info LIKE '%"shown"%'
), shares AS (
    SELECT t.phase, t.gym, t.user_name, d.move, t.task_id, avg(d.shown::INT) AS share, count(*) AS due
    FROM due d JOIN trajectories t USING (traj_id) WHERE d.shown IS NOT NULL
    GROUP BY t.phase, t.gym, t.user_name, d.move, t.task_id, traj_id
), by_task AS (
    SELECT phase, gym, user_name, move, task_id, list(share) AS shares, sum(due) AS due FROM shares GROUP BY ALL
)
SELECT phase, gym, user_name, move, list(shares ORDER BY task_id) AS shares, sum(due)::BIGINT AS due
FROM by_task GROUP BY ALL ORDER BY ALL
"""


def compliance_of(warehouse: Warehouse, run: str) -> Iterator[Block]:
    """Yield the compliance by move. Yield nothing for a run whose users were told no moves."""
    rows = warehouse.rows(_DUE, run=run)
    if rows:
        import numpy as np  # imported here: most runs have no served user

        from analysis.measure.interval import score_interval

        yield TableBlock(
            ("phase", "gym", "user", "move", "due turns", "compliance"),
            tuple(
                (
                    row["phase"],
                    row["gym"],
                    row["user_name"] or "unknown",
                    row["move"],
                    str(row["due"]),
                    with_limits(score_interval(np.array([fmean(task) for task in row["shares"]]))),
                )
                for row in rows
            ),
            "Compliance: the share of the turns in which a served user was told to make a move, and its reply shows it. Means "
            "over conversations, then over tasks, with 95 % limits; the tasks' means if they are few. Words of the reply decide.",
        )
