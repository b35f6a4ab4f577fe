"""The audit of users over many conversations: errors by kind, a verdict for every failure, and scores with and without them.

Suspect tasks are listed apart: no attempt solves them, or their gold writes break a rule of the policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from analysis.measure.checkpoints import mean_score
from analysis.measure.interval import Interval, share_interval
from analysis.users import tau
from analysis.users.conversation import Conversation, conversation
from analysis.users.findings import PATTERNS, VERDICTS, Audited, Findings, shows_certain_error, verdict
from analysis.users.games import GAMES, holds_truth
from analysis.users.patterns import PatternActs
from analysis.users.policy import broken_rules
from userrl_core.gyms.tau import airline
from userrl_core.gyms.tau.tools import Domain
from userrl_core.judging.acts import ActReader
from userrl_core.records import Task, Trajectory

UNSOLVED = "no attempt solves it"
MIN_ATTEMPTS = 2
"""Attempts at a task below which an unsolved one says nothing about the task."""


@dataclass(frozen=True, slots=True)
class UserAudit:
    """All audited conversations of a run, with their scores.

    score: mean over tasks. without: the same over the conversations without a certain error of the user, solved or not. None
    where no conversation is left. suspects: reasons by task.
    """

    rows: tuple[Audited, ...]
    score: Interval | None
    without: Interval | None
    suspects: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, rows: Iterable[Audited]) -> UserAudit:
        """Return the audit of these conversations."""
        rows = tuple(rows)
        without = _score([row for row in rows if not shows_certain_error(row.user)])
        return cls(rows, _score(rows), without, {row.task: row.suspect for row in rows if row.suspect})

    def by_sides(self) -> dict[tuple[str, str], UserAudit]:
        """Return the audit of each pair of an agent and a user, by their names."""
        sides = dict.fromkeys((row.policy, row.user_name) for row in self.rows)
        return {side: UserAudit.of(r for r in self.rows if (r.policy, r.user_name) == side) for side in sides}

    @property
    def failed(self) -> list[Audited]:
        """The failed conversations whose gym knows the truth."""
        return [row for row in self.rows if row.verdict is not None]

    @property
    def reader(self) -> str:
        """Who read the words: patterns if they read any of them, "" if no conversation's words were read."""
        readers = {row.reader for row in self.rows if row.words_read}
        return PATTERNS if PATTERNS in readers else next(iter(readers), "")

    def verdicts(self, *, suspect: bool | None = None) -> dict[str, int]:
        """Count the verdicts of failed conversations; of suspect tasks, of the others, or of all (None)."""
        chosen = [row for row in self.failed if suspect is None or bool(row.suspect) == suspect]
        return {name: sum(row.verdict == name for row in chosen) for name in VERDICTS}

    def kinds(self, *, words_read: bool | None = None) -> dict[str, tuple[int, int, Interval]]:
        """Return each kind of user error: findings, conversations with one, and their share with exact limits.

        A kind counts only the conversations that can show it. words_read: only those whose words were read, or the others.
        """
        rows = [row for row in self.rows if words_read is None or row.words_read == words_read]
        names = {kind: None for row in rows for kind in row.user}
        table = {}
        for kind in names:
            visible = [row.user[kind] for row in rows if kind in row.user]
            count = sum(bool(findings) for findings in visible)
            table[kind] = (sum(map(len, visible)), count, share_interval(count, len(visible)))
        return table

    def agent_kinds(self) -> dict[str, int]:
        """Return the number of failed conversations with each kind of agent error."""
        kinds: dict[str, int] = {}
        for row in self.failed:
            for kind in sorted({finding.kind for finding in row.agent or ()}):
                kinds[kind] = kinds.get(kind, 0) + 1
        return kinds


def audit(
    trajectories: Iterable[Trajectory], *, policy: Domain | None = None, reader: ActReader | None = None
) -> UserAudit:
    """Audit every conversation.

    policy: tau-bench's airline with its data, for the rules that gold writes may break; without it they are not checked.
    reader: of the acts of what was said; by default patterns.
    """
    conversations = [_keyed(trajectory) for trajectory in trajectories]
    suspects = _suspects(conversations, policy)
    reader = reader or PatternActs()
    acts = read_acts(conversations, reader)
    return UserAudit.of(
        replace(
            audited(conversation, acts),
            suspect=suspects.get(conversation.task.key, ()),
            rules_checked=policy is not None and has_rules(conversation.task),
            reader=reader.name,
        )
        for conversation in conversations
    )


def read_acts(conversations: Iterable[Conversation], reader: ActReader) -> tau.Acts:
    """Return the acts of what was said in conversations whose words are judged. Equal utterances are read once."""
    judged = [
        conversation
        for conversation in conversations
        if conversation.task.gym not in GAMES and tau.readable(conversation.task.payload)
    ]
    utterances = list(dict.fromkeys(utterance for conversation in judged for utterance in tau.utterances(conversation)))
    return dict(zip(utterances, reader.read(utterances), strict=True))


def audited(conversation: Conversation, acts: tau.Acts) -> Audited:
    """Return the errors of one conversation, with the verdict if it failed."""
    findings = _findings(conversation, acts)
    failed = findings is not None and not conversation.solved
    findings = findings or Findings()
    return Audited(
        conversation.key,
        conversation.task.key,
        conversation.task.gym,
        conversation.score,
        conversation.solved,
        conversation.stopped,
        findings.identifiers,
        findings.user,
        findings.agent,
        findings.goal,
        verdict(findings) if failed else None,
        policy=conversation.policy,
        user_name=conversation.user,
    )


def _findings(conversation: Conversation, acts: tau.Acts) -> Findings | None:
    if conversation.task.gym in GAMES:
        return GAMES[conversation.task.gym](conversation) if holds_truth(conversation.task) else None
    return tau.audited(conversation, acts) if tau.readable(conversation.task.payload) else None


def _keyed(trajectory: Trajectory) -> Conversation:
    return conversation(trajectory, str(trajectory.traj_id) if trajectory.traj_id is not None else "")


def _suspects(conversations: list[Conversation], policy: Domain | None) -> dict[str, tuple[str, ...]]:
    by_task: dict[str, list[Conversation]] = {}
    for attempt in conversations:
        by_task.setdefault(attempt.task.key, []).append(attempt)
    reasons = {}
    for key, attempts in by_task.items():
        task_reasons = (
            [UNSOLVED] if len(attempts) >= MIN_ATTEMPTS and not any(attempt.solved for attempt in attempts) else []
        )
        task = attempts[0].task
        if policy is not None and has_rules(task):
            try:
                task_reasons += broken_rules(policy, task.payload["actions"])
            except (KeyError, TypeError, ValueError, AttributeError):
                task_reasons.append("its gold writes cannot be read")
        if task_reasons:
            reasons[key] = tuple(task_reasons)
    return reasons


def has_rules(task: Task) -> bool:
    """Return whether a task's gold writes can be compared with the rules of tau-bench's airline."""
    payload = task.payload
    if not tau.readable(payload):
        return False
    if "domain" in payload:
        return bool(payload["domain"] == "airline")
    return {action["name"] for action in payload["actions"]} <= airline.TOOLS.keys()


def _score(rows: Iterable[Audited]) -> Interval | None:
    """Return the mean score over tasks with limits over tasks, or None without scores."""
    by_task: dict[str, list[float]] = {}
    for row in rows:
        if row.score is not None:
            by_task.setdefault(row.task, []).append(row.score)
    return mean_score(list(by_task.values())) if by_task else None
