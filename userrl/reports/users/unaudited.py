"""The sentence of a run whose users were not audited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from userrl.reports.document import Code, Text

if TYPE_CHECKING:
    from warehouse import Warehouse

TITLE = "Users"


def unaudited(warehouse: Warehouse, run: str) -> Text | None:
    """Return one sentence with the command that audits the run's users. None if they were audited."""
    if warehouse.rows("SELECT traj_id FROM user_features WHERE run_id = $run LIMIT 1", run=run):
        return None
    return Text(("The users of this run were not audited: ", Code(f"userrl audit user {run}"), "."))
