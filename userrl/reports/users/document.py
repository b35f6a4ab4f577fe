"""The blocks of an audit of users, for the command, the run's report and its page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from analysis.measure.interval import Interval, corrected_share, share_interval
from analysis.users.audit import UserAudit
from analysis.users.error import MATERIAL, KindError, error_of
from analysis.users.features import DIMENSIONS
from analysis.users.findings import AGENT_ERRORS, USER_ERRORS, VERDICTS, possible
from userrl.reports.document import Block, Code, Items, Line, TableBlock, Text
from userrl.reports.users.audited import AuditedUsers
from userrl_core.number_format import number, with_limits

READERS = {
    "": "No words were read, since no task has an instruction that they could be compared with.",
    "patterns": "Words were read by patterns, which miss many: `userrl model fetch all-minilm-l6-v2` fetches the encoder.",
    "encoder": "Words were read by the encoder all-MiniLM-L6-v2. No language model was called.",
}
SHOWN_TASKS = 12
"""Suspect tasks that the text lists; the JSON has all."""


def users_blocks(users: AuditedUsers) -> Iterator[Block]:
    """Yield the audit of one phase."""
    audit = users.audit
    yield Text(
        f"{len(audit.rows)} conversations of phase {users.phase}, {len(audit.failed)} failed ones with a verdict. "
        + READERS.get(audit.reader, f"Words were read by the served model {audit.reader}.")
    )
    if users.unknown:
        yield Text(f"{users.unknown} are of gyms whose tasks do not hold the truth, so their errors cannot be seen.")
    if users.later:
        reader = f" --acts {audit.reader}" if audit.reader in READERS else f" --acts judge --judge {audit.reader}"
        again = f"userrl audit user {users.run} --phase {users.phase}{reader if audit.reader else ''}"
        yield Text(
            (f"{users.later} conversations ended after the audit. Audit them too: ", Code(again), "."), strong=True
        )
    yield _scores(audit)
    if audit.suspects:
        at = audit.verdicts(suspect=True)
        counts = ", ".join(f"{name} {at[name]}" for name in VERDICTS)
        yield Text(f"Of these verdicts, at suspect tasks: {counts}. A failure there says little about either side.")
    yield from _errors(audit)
    yield from _suspects(audit)
    yield from _style(users)


def _scores(total_audit: UserAudit) -> TableBlock:
    sides = total_audit.by_sides()
    rows = [(agent or "unknown", user or "unknown", audit) for (agent, user), audit in sides.items()]
    if len(rows) > 1:
        rows.append(("all", "all", total_audit))
    return TableBlock(
        (
            "agent",
            "user",
            "conversations",
            "score",
            "score without user errors",
            *(f"failures: {name}" for name in VERDICTS),
        ),
        tuple(
            (
                agent,
                user,
                str(len(audit.rows)),
                _limits(audit.score),
                _limits(audit.without),
                *(str(audit.verdicts()[name]) for name in VERDICTS),
            )
            for agent, user, audit in rows
        ),
        "Scores are means over tasks with 95 % limits. The score without user errors leaves out conversations in which the user "
        "made a certain error, solved or not. The last four columns count failed conversations by whose error they show. "
        "Training keeps all conversations; choosing them by this audit would bias it.",
    )


def _errors(audit: UserAudit) -> Iterator[Block]:
    if any(row.user for row in audit.rows):
        yield TableBlock(
            ("error of the user", "conversations", "share", "finds", "false alarms", "share, corrected", "meaning"),
            tuple(_kinds(audit)),
            "Shares are of the conversations whose gym can show the error, with exact 95 % limits. A possible kind is recognised "
            "by words, and readers' labels do not confirm it. It moves neither a verdict nor the score without user errors. "
            f"What the audit finds of planted errors, and its alarms in honest conversations that resemble them, were counted once "
            f"on words that it was not fitted to, at a {MATERIAL}. The corrected share takes both into account. Other users may be "
            "harder. In games errors follow from the task's facts, and the audit's own error was not measured there.",
        )
    if agent := audit.agent_kinds():
        yield TableBlock(
            ("error of the agent", "failures", "meaning"),
            tuple(
                (kind, str(count), AGENT_ERRORS[kind])  # type: ignore[index]
                for kind, count in sorted(agent.items(), key=lambda pair: -pair[1])
            ),
        )
    if goals := tuple(_goals(audit)):
        yield Items(goals)


def _kinds(audit: UserAudit) -> Iterator[tuple[Line, ...]]:
    """Yield a row for each kind, and two where both conversations and games can show it."""
    by_words, by_facts = audit.kinds(words_read=True), audit.kinds(words_read=False)
    for kind, meaning in USER_ERRORS.items():
        name = f"{kind} (possible)" if possible(kind) else kind
        for kinds, error in ((by_words, error_of(kind, audit.reader)), (by_facts, None)):
            if kind in kinds:
                _, count, share = kinds[kind]
                where = (
                    ""
                    if kind not in by_words or kind not in by_facts
                    else f" in {_gyms(audit, kind, kinds is by_words)}"
                )
                yield name + where, str(count), with_limits(share), *_own_error(error, count, share), meaning


def _gyms(audit: UserAudit, kind: str, words_read: bool) -> str:
    return ", ".join(sorted({row.gym for row in audit.rows if kind in row.user and row.words_read == words_read}))


def _own_error(error: KindError | None, count: int, share: Interval) -> tuple[Line, Line, Line]:
    if error is None:
        return "not measured", "not measured", "not measured"
    corrected = corrected_share(count, share.units, error.hits, error.false_alarms)
    return (
        with_limits(share_interval(*error.hits)),
        with_limits(share_interval(*error.false_alarms)),
        "cannot be told" if corrected is None else with_limits(corrected),
    )


def _goals(audit: UserAudit) -> Iterator[str]:
    goals = [row.goal for row in audit.rows if row.goal is not None]
    facts, parts = sum(goal.facts for goal in goals), sum(goal.parts for goal in goals)
    if facts:
        told_count, again = sum(goal.told for goal in goals), sum(goal.asked_again for goal in goals)
        yield (
            f"Facts that the user told: {told_count} of {facts} ({number(told_count / facts, 2)}). The agent asked {again} times "
            "for a fact that was told already."
        )
    if parts:
        settled = sum(goal.settled for goal in goals)
        yield f"Parts of the goal that the agent settled: {settled} of {parts} ({number(settled / parts, 2)})."


def _suspects(audit: UserAudit) -> Iterator[Block]:
    suspects = audit.suspects
    if suspects:
        yield Text(f"Suspect tasks: {len(suspects)}.")
        items = [f"{task}: {'; '.join(reasons)}" for task, reasons in list(suspects.items())[:SHOWN_TASKS]]
        if len(suspects) > SHOWN_TASKS:
            items.append(f"and {len(suspects) - SHOWN_TASKS} more (userrl audit user --json)")
        yield Items(tuple(items))
    if any(row.gym in ("tau-bench", "airline") for row in audit.rows) and not any(r.rules_checked for r in audit.rows):
        yield Text("Policy rules were not checked: tau-bench's airline is not in the folder of published data.")


def _style(users: AuditedUsers) -> Iterator[Block]:
    fingerprint = users.fingerprint()
    if not fingerprint:
        yield Text("The users said nothing, so they have no fingerprint.")
        return
    yield TableBlock(
        ("dimension", "fingerprint", *fingerprint),
        tuple(
            (dimension, name.replace("_", " "), *(with_limits(by_name[name]) for by_name in fingerprint.values()))
            for dimension, names in DIMENSIONS.items()
            for name in names
        ),
        "Style (D1), disclosure (D2), clarification (D3), reaction to errors (D4): means over a task's attempts, then over tasks, "
        "with 95 % limits. Words are counted; all others but cv and front loading are shares or numbers per utterance.",
    )
    yield Items(tuple(f"Typical: {text[:200]}" for text in users.typical.values()))


def _limits(interval: Interval | None) -> Line:
    return "none scored" if interval is None else with_limits(interval)


def users_json(users: AuditedUsers, *, conversations: bool = True) -> dict[str, Any]:
    """Return the audit for programs. conversations: with every conversation and its errors."""
    from dataclasses import asdict

    total_audit = users.audit
    values: dict[str, Any] = {
        "run": users.run,
        "phase": users.phase,
        "conversations": len(total_audit.rows),
        "words_read_by": total_audit.reader,
        "unknown": users.unknown,
        "later": users.later,
        "score": _numbers(total_audit.score),
        "score_without_user_errors": _numbers(total_audit.without),
        "by_sides": [
            {"agent": agent, "user": user, "conversations": len(audit.rows), "score": _numbers(audit.score),
             "score_without_user_errors": _numbers(audit.without), "verdicts": audit.verdicts()}
            for (agent, user), audit in total_audit.by_sides().items()
        ],
        "verdicts": total_audit.verdicts(),
        "verdicts_at_suspect_tasks": total_audit.verdicts(suspect=True),
        "user_errors": {
            kind: {"found": count, "conversations": having, "share": _numbers(share), "possible": possible(kind),
                   "measured": _measured(total_audit, kind)}
            for kind, (count, having, share) in total_audit.kinds().items()
        },
        "agent_errors": total_audit.agent_kinds(),
        "suspect_tasks": {task: list(reasons) for task, reasons in total_audit.suspects.items()},
        "fingerprint": {
            gym: {name: _numbers(mean) for name, mean in by_name.items()}
            for gym, by_name in users.fingerprint().items()
        },
        "typical_utterances": list(users.typical.values()),
    }  # fmt: skip
    if conversations:
        values["by_conversation"] = [asdict(row) for row in total_audit.rows]
    return values


def _numbers(interval: Interval | None) -> dict[str, float | None] | None:
    return None if interval is None else interval.as_json()


def _measured(audit: UserAudit, kind: str) -> dict[str, Any] | None:
    """Return the audit's own error at a kind, on which material it was counted, and the gyms that it is for."""
    from dataclasses import asdict

    gyms = _gyms(audit, kind, words_read=True)
    error = error_of(kind, audit.reader) if gyms else None
    return None if error is None else {**asdict(error), "on": MATERIAL, "for": gyms}
