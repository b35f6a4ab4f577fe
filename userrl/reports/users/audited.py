"""Audited conversations as rows of the table ``user_features``, and the audit read back from them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from analysis.measure.checkpoints import mean_score
from analysis.measure.interval import Interval
from analysis.users.audit import UserAudit
from analysis.users.features import FEATURES
from analysis.users.findings import PATTERNS, Audited, Finding, Goal, shows_certain_error
from userrl_core.json_files import json_text
from warehouse import Warehouse

Row = dict[str, Any]

READER = "read by"
"""The key of ``user_errors`` that names the reader of the words, where it was not the patterns."""

CONTENT = (
    "utterances", *FEATURES, "typical", "identifiers", "stopped", "facts", "told", "asked_again", "parts", "settled",
    "user_errors", "agent_errors", "user_error", "verdict", "suspect", "rules_checked",
)  # fmt: skip
"""Columns of a row after those that say who wrote it."""


@dataclass(frozen=True, slots=True)
class AuditedUsers:
    """The audit of one phase of a run.

    style: the fingerprint of each conversation by its key; None where the user said nothing. utterances: the number of the
    user's utterances by key. typical: one utterance of middling length by key. later: finished conversations that the audit
    has not seen.
    """

    run: str
    phase: str
    audit: UserAudit
    style: Mapping[str, Mapping[str, float] | None]
    utterances: Mapping[str, int]
    typical: Mapping[str, str]
    later: int = 0

    @property
    def unknown(self) -> int:
        """Conversations of gyms whose tasks do not hold the truth."""
        return sum(not row.known for row in self.audit.rows)

    def fingerprint(self) -> dict[str, dict[str, Interval]]:
        """Return the means of the features by gym: over a task's attempts, then over tasks, with 95 % limits."""
        by_gym: dict[str, dict[str, list[Mapping[str, float]]]] = {}
        for row in self.audit.rows:
            if (style := self.style.get(row.key)) is not None:
                by_gym.setdefault(row.gym, {}).setdefault(row.task, []).append(style)
        return {
            gym: {
                name: mean_score([[style[name] for style in attempts] for attempts in by_task.values()])
                for name in FEATURES
            }
            for gym, by_task in by_gym.items()
        }


def as_rows(users: AuditedUsers) -> list[Row]:
    """Return the rows of the table, without the columns that say who wrote them."""
    return [_row(users, row) for row in users.audit.rows]


def _row(users: AuditedUsers, row: Audited) -> Row:
    style = users.style.get(row.key) or dict.fromkeys(FEATURES)
    goal = (
        asdict(row.goal)
        if row.goal is not None
        else dict.fromkeys(("facts", "told", "asked_again", "parts", "settled"))
    )
    return {
        "traj_id": int(row.key),
        "utterances": users.utterances.get(row.key, 0),
        **style,
        "typical": users.typical.get(row.key),
        "identifiers": row.identifiers,
        "stopped": row.stopped,
        **goal,
        "user_errors": json_text(
            {
                **{kind: [asdict(finding) for finding in findings] for kind, findings in row.user.items()},
                **({} if row.reader == PATTERNS else {READER: row.reader}),
            }
        ),
        "agent_errors": None if row.agent is None else json_text([asdict(finding) for finding in row.agent]),
        "user_error": shows_certain_error(row.user) if row.known else None,
        "verdict": row.verdict,
        "suspect": json_text(row.suspect),
        "rules_checked": row.rules_checked,
    }


_STORED = """SELECT f.*, t.phase, t.gym, t.task_id, t.score, t.stop_reason, t.policy, t.user_name
             FROM user_features f JOIN trajectories t USING (traj_id) WHERE t.run_id = $run ORDER BY t.phase, f.traj_id"""
_LATER = """SELECT t.phase, count(*) AS n FROM trajectories t ANTI JOIN user_features f USING (traj_id)
            WHERE t.run_id = $run AND t.admitted AND t.turns > 0 GROUP BY t.phase"""


def stored_rows(warehouse: Warehouse, run: str) -> dict[int, Row]:
    """Return the newest row of every audited conversation of a run, by its id, as `as_rows` gives it."""
    rows = warehouse.rows("FROM user_features WHERE run_id = $run", run=run)
    return {row["traj_id"]: {"traj_id": row["traj_id"], **{name: row[name] for name in CONTENT}} for row in rows}


def audited_users(warehouse: Warehouse, run: str) -> list[AuditedUsers]:
    """Return the stored audits of a run, one for each audited phase; [] for a run without an audit."""
    by_phase: dict[str, list[Row]] = {}
    for row in warehouse.rows(_STORED, run=run):
        by_phase.setdefault(row["phase"], []).append(row)
    later = {row["phase"]: row["n"] for row in warehouse.rows(_LATER, run=run)} if by_phase else {}
    return [_users(run, phase, rows, later.get(phase, 0)) for phase, rows in by_phase.items()]


def _users(run: str, phase: str, rows: Sequence[Row], later: int) -> AuditedUsers:
    return AuditedUsers(
        run,
        phase,
        UserAudit.of(map(audited_row, rows)),
        {str(row["traj_id"]): {name: row[name] for name in FEATURES} if row["utterances"] else None for row in rows},
        {str(row["traj_id"]): row["utterances"] for row in rows},
        {str(row["traj_id"]): row["typical"] for row in rows if row["typical"] is not None},
        later,
    )


def audited_row(row: Row) -> Audited:
    """Return an audited conversation from a row of the table, joined with its trajectory."""
    errors = json.loads(row["user_errors"])
    reader = errors.pop(READER, PATTERNS)
    user = {kind: [Finding(**fields) for fields in findings] for kind, findings in errors.items()}
    agent = None if row["agent_errors"] is None else [Finding(**fields) for fields in json.loads(row["agent_errors"])]
    facts = [row[name] for name in ("facts", "told", "asked_again", "parts", "settled")]
    return Audited(
        str(row["traj_id"]),
        f"{row['gym']}/{row['task_id']}",
        row["gym"],
        row["score"],
        row["stop_reason"] == "success",
        row["stopped"],
        row["identifiers"],
        user,
        agent,
        None if facts[0] is None else Goal(*facts),
        row["verdict"],
        tuple(json.loads(row["suspect"])),
        row["rules_checked"],
        row["policy"] or "",
        row["user_name"] or "",
        reader,
    )
