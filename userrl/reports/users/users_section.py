"""The section on users in a run's report and on its page: their audits, and how often a served user shows its trait.

A run whose users were not audited imports no statistics.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Any

from userrl.machine.home import warehouse_dir
from userrl.reports.document import Block, Code, TableBlock, Text
from userrl_core.number_format import with_limits
from warehouse import Warehouse

TITLE = "Users"


def users_of(warehouse: Warehouse, run: str) -> Iterator[Block]:
    """Yield the users' compliance, and the stored audits of a run. Without an audit, yield one sentence with the command."""
    yield from compliance_of(warehouse, run)
    if not warehouse.rows("SELECT traj_id FROM user_features WHERE run_id = $run LIMIT 1", run=run):
        yield Text(("The users of this run were not audited: ", Code(f"userrl audit user {run}"), "."))
        return
    from userrl.reports.users.audited import audited_users  # imported here: scipy takes half a second
    from userrl.reports.users.document import users_blocks

    for users in audited_users(warehouse, run):
        yield from users_blocks(users)


def audited_json(run: str) -> list[dict[str, Any]]:
    """Return the stored audits of a run's users as JSON."""
    from userrl.reports.users.audited import audited_users  # imported here: scipy takes half a second
    from userrl.reports.users.document import users_json
    from warehouse import open_warehouse

    if not warehouse_dir().is_dir():
        return []
    with open_warehouse(warehouse_dir(), run=run) as warehouse:
        return [users_json(users, conversations=False) for users in audited_users(warehouse, run)]


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
