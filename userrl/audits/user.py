"""An audit of the users in stored conversations: their errors, and a verdict for every failure. No model is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from userrl.evaluation.stored import stored_conversations
from userrl.machine.foreign_text import plain
from userrl.machine.home import published_data, warehouse_dir
from userrl_core.errors import ConfigError, TaskError
from userrl_core.gyms.tau.tasks import load_domain
from userrl_core.gyms.tau.tools import Domain
from userrl_core.measure.interval import Interval
from userrl_core.number_format import number, with_limits
from userrl_core.records import Trajectory
from userrl_core.user_audit.audit import UserAudit, audit, known, possible
from userrl_core.user_audit.conversation import conversation
from userrl_core.user_audit.distance import MIN_CONVERSATIONS, Distance, Users, distance
from userrl_core.user_audit.features import DIMENSIONS, FEATURES, fingerprint, typical
from userrl_core.user_audit.findings import AGENT_ERRORS, USER_ERRORS, VERDICTS
from warehouse.files.runs import find_run

if TYPE_CHECKING:
    import polars as pl

SHOWN_TASKS = 12
"""Suspect tasks that the text lists; the JSON has all."""


@dataclass(frozen=True, slots=True)
class UserAuditReport:
    """The audit of a run's users.

    unknown: conversations of gyms whose tasks do not hold the truth. fingerprint: mean of each feature over conversations.
    typical: utterances of middling length. distance: from the users of another run.
    """

    run: str
    phase: str
    audit: UserAudit
    unknown: int
    policy_checked: bool
    fingerprint: Mapping[str, float]
    typical: Sequence[str]
    distance: Distance | None

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON, with every conversation."""
        return {
            "run": self.run,
            "phase": self.phase,
            "conversations": len(self.audit.rows),
            "unknown": self.unknown,
            "score": _limits(self.audit.score),
            "score_without_user_errors": _limits(self.audit.without),
            "verdicts": self.audit.verdicts(),
            "verdicts_at_suspect_tasks": self.audit.verdicts(suspect=True),
            "user_errors": {
                kind: {"found": found, "conversations": count, "share": _limits(share), "possible": possible(kind)}
                for kind, (found, count, share) in self.audit.kinds().items()
            },
            "agent_errors": self.audit.agent_kinds(),
            "suspect_tasks": {task: list(reasons) for task, reasons in self.audit.suspects.items()},
            "fingerprint": dict(self.fingerprint),
            "typical_utterances": list(self.typical),
            "distance": None if self.distance is None else asdict(self.distance),
            "by_conversation": [asdict(row) for row in self.audit.rows],
        }

    def to_polars(self) -> pl.DataFrame:
        """Return one row per error."""
        import polars as pl

        rows = [
            {"conversation": row.key, "task": row.task, "verdict": row.verdict, "side": side, "kind": finding.kind,
             "turn": finding.turn, "detail": finding.detail, "harmful": finding.harmful}
            for row in self.audit.rows
            for side, findings in (("user", [f for one in row.user.values() for f in one]), ("agent", row.agent or []))
            for finding in findings
        ]  # fmt: skip
        schema = {"conversation": pl.String, "task": pl.String, "verdict": pl.String, "side": pl.String,
                  "kind": pl.String, "turn": pl.Int64, "detail": pl.String, "harmful": pl.Boolean}  # fmt: skip
        return pl.DataFrame(rows, schema=schema)

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def audit_user(run: str, *, phase: str = "evaluate", against: str | None = None) -> UserAuditReport:
    """Audit the users in a run's stored conversations of one phase.

    against: a run whose users are the reference of the distance. Raises ConfigError if there is nothing to audit.
    """
    run_id = find_run(warehouse_dir(), run)["run_id"]
    stored = [one for one in stored_conversations(run_id, phase, None, lenient=True) if one.turns]
    if not stored:
        raise ConfigError(
            "run.no_conversations",
            f"Run {run_id} has no finished conversation of phase {phase}. Choose another with --phase.",
        )
    policy, users = airline(), fingerprints(run_id, stored)
    return UserAuditReport(
        run_id,
        phase,
        audit(stored, policy=policy),
        sum(not known(one.task) for one in stored),
        policy is not None,
        dict(zip(FEATURES, map(float, users.features.mean(0)), strict=True)) if len(users.features) else {},
        typical([conversation(one).utterances() for one in stored]),
        _against(users, against) if against is not None else None,
    )


def fingerprints(name: str, stored: Sequence[Trajectory]) -> Users:
    """Return the fingerprints of conversations. Those without words of the user are left out."""
    talks = [talk for talk in map(conversation, stored) if talk.utterances()]
    features = np.array([list(fingerprint(talk.utterances()).values()) for talk in talks]).reshape(-1, len(FEATURES))
    return Users(name, features, tuple(talk.task.key for talk in talks))


def _against(user: Users, name: str) -> Distance:
    """Return the distance from another run's users. Raises ConfigError for too few conversations."""
    reference = find_run(warehouse_dir(), name)["run_id"]
    for phase in ("evaluate", "play"):
        stored = [one for one in stored_conversations(reference, phase, None, lenient=True) if one.turns]
        other = fingerprints(reference, stored)
        if len(other.features) >= MIN_CONVERSATIONS and len(user.features) >= MIN_CONVERSATIONS:
            return distance(user, other)
    raise ConfigError(
        "run.no_conversations",
        f"A distance needs {MIN_CONVERSATIONS} conversations with words of the user in both runs, in phase evaluate or play. "
        f"{plain(user.name)} has {len(user.features)}.",
    )


def airline() -> Domain | None:
    """Return tau-bench's airline from the folder of published data, or None if it is not there."""
    folder = published_data() / "tau-bench" / "airline"
    try:
        return load_domain("airline", str(folder)) if folder.is_dir() else None
    except TaskError:
        return None


def _limits(interval: Interval | None) -> dict[str, float] | None:
    return None if interval is None else {"estimate": interval.estimate, "low": interval.low, "high": interval.high}


def _lines(report: UserAuditReport) -> Iterator[str]:
    found = report.audit
    yield f"users of {report.run} ({report.phase}): {len(found.rows)} conversations, {len(found.failed)} failed"
    if report.unknown:
        yield f"  {report.unknown} are of gyms whose tasks do not hold the truth, so their errors cannot be seen"
    yield f"score                      {_shown(found.score)}"
    yield f"score without user errors  {_shown(found.without)}   (conversations in which the user made no certain error)"
    yield "  training keeps all conversations; choosing them by this audit would bias it"
    counted = {"all failures": found.verdicts(), "  at suspect tasks": found.verdicts(suspect=True)}
    yield f"{'verdict':26}" + "".join(f"{name:>14}" for name in VERDICTS)
    for name, counts in counted.items():
        yield f"{name:26}" + "".join(f"{counts[verdict]:>14}" for verdict in VERDICTS)
    yield f"{'errors of the user':26}{'conversations':>14}   share"
    for kind, (_, count, share) in found.kinds().items():
        name = f"{kind} (possible)" if possible(kind) else kind
        yield f"{name:26}{count:>14}   {with_limits(share):24} {USER_ERRORS[kind]}"  # type: ignore[index]
    if agent := found.agent_kinds():
        yield f"{'errors of the agent':26}{'failures':>14}"
        for kind, count in sorted(agent.items(), key=lambda pair: -pair[1]):
            yield f"{kind:26}{count:>14}   {AGENT_ERRORS[kind]}"  # type: ignore[index]
    yield from _goals(report)
    yield from _suspects(report)
    yield from _style(report)


def _style(report: UserAuditReport) -> Iterator[str]:
    if report.fingerprint:
        yield "fingerprint (means over conversations)"
    for dimension, names in DIMENSIONS.items() if report.fingerprint else ():
        yield f"  {dimension}: " + ", ".join(f"{name} {number(report.fingerprint[name], 2)}" for name in names)
    for text in report.typical:
        yield f"  typical: {plain(text[:160])}"
    if (apart := report.distance) is None:
        return
    yield f"distance from {plain(apart.reference)} (floor: two halves of the reference, middle and 95 % of halvings)"
    for key, value in {**apart.dimensions, "coverage": apart.coverage, "js": apart.js}.items():
        middle, low, high = apart.floor[key]
        yield f"  {key:10}{number(value, 2):>6}   floor {number(middle, 2)} [{number(low, 2)}, {number(high, 2)}]"
    test = apart.classifier
    limits = f"{number(test.auc, 2)} [{number(test.low, 2)}, {number(test.high, 2)}]"
    yield f"  classifier AUC {limits}, floor {number(test.floor, 2)}. {test.sentence()}"


def _goals(report: UserAuditReport) -> Iterator[str]:
    goals = [row.goal for row in report.audit.rows if row.goal is not None]
    facts, parts = sum(goal.facts for goal in goals), sum(goal.parts for goal in goals)
    if facts:
        told = sum(goal.told for goal in goals)
        again = sum(goal.asked_again for goal in goals)
        yield f"facts told: {told} of {facts} ({number(told / facts, 2)}); asked again after they were told: {again} times"
    if parts:
        settled = sum(goal.settled for goal in goals)
        yield f"parts of the goal settled: {settled} of {parts} ({number(settled / parts, 2)})"


def _suspects(report: UserAuditReport) -> Iterator[str]:
    suspects = report.audit.suspects
    if suspects:
        yield f"suspect tasks: {len(suspects)}. A failure there says little about either side."
        for task, reasons in list(suspects.items())[:SHOWN_TASKS]:
            yield f"  {plain(task)}: {plain('; '.join(reasons))}"
        if len(suspects) > SHOWN_TASKS:
            yield f"  and {len(suspects) - SHOWN_TASKS} more (--json)"
    if any("tau-bench" in row.task or "airline" in row.task for row in report.audit.rows) and not report.policy_checked:
        yield "  policy rules were not checked: tau-bench's airline is not in the folder of published data"


def _shown(interval: Interval | None) -> str:
    return "no scored conversation" if interval is None else with_limits(interval)
