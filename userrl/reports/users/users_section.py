"""The section on users in a run's report and on its page. A run whose users were not audited imports no statistics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from userrl.machine.home import warehouse_dir
from userrl.reports.document import Block, Code, Text
from userrl.reports.users.compliance import compliance_of

if TYPE_CHECKING:
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
