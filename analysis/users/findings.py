"""The kinds of errors that an audit finds, and the result of an audit of one conversation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

UserError = Literal[
    "ungrounded", "leaked", "coached", "stopped early", "never stopped", "gave in", "unanswered", "untold"
]
AgentError = Literal[
    "wrong argument",
    "missing",
    "extra",
    "claimed",
    "not told",
    "handed over",
    "wrong answer",
    "unfinished",
    "no answer",
]
Verdict = Literal["user", "agent", "both", "neither seen"]
VERDICTS: tuple[Verdict, ...] = ("user", "agent", "both", "neither seen")

USER_ERRORS: Mapping[UserError, str] = {
    "ungrounded": "said a fact that neither its instruction nor the agent had given",
    "leaked": "said a gold answer, id or tool name that it could not know",
    "coached": "told the agent which tool or rule to use",
    "stopped early": "ended the conversation at a question or an announcement of the agent",
    "never stopped": "took leave twice and did not end the conversation",
    "gave in": "agreed to the wrong write that was made, or made another choice in it than its goal has",
    "unanswered": "was asked for a fact that it has, and did not tell it",
    "untold": "ended the conversation without mentioning a part of its goal, although the agent had left it the word",
}
"""The meaning of each error of a user."""

AGENT_ERRORS: Mapping[AgentError, str] = {
    "wrong argument": "made a gold write with other arguments",
    "missing": "did not make a gold write",
    "extra": "made a write that gold does not have",
    "claimed": "said that a write was done and did not make it",
    "not told": "did not tell a required output",
    "handed over": "handed the user over to a person, and gold does not",
    "wrong answer": "gave a wrong answer",
    "unfinished": "used up its turns",
    "no answer": "gave no answer",
}
"""The meaning of each error of an agent."""

BY_WORDS: frozenset[UserError] = frozenset(
    {"coached", "stopped early", "never stopped", "gave in", "unanswered", "untold"}
)
"""Kinds that words show, alone or with the fact that the conversation ended or went on. The others follow from the task's facts."""

LABELLED: Mapping[str, tuple[int, int]] = {"unanswered": (8, 8), "gave in": (6, 10), "stopped early": (2, 5)}
"""Kinds recognised by words: how many findings readers confirmed, and how many they read, on conversations that no rule was
changed by (data/users/README.md). Six of the eight of "unanswered" are the labels by which this kind first counted.
"""
MIN_PRECISION = 0.7
"""Share of the labelled findings that must be right for a kind to be certain."""
PATTERNS = "patterns"
"""The reader of words of a home without the encoder."""

CAN_FAIL: frozenset[UserError] = frozenset(
    {"ungrounded", "stopped early", "never stopped", "gave in", "unanswered", "untold"}
)
"""Kinds that can make a conversation fail. Leaks and coaching can only help the agent."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One error. turn: where it occurred. detail: the words, fact or call. harmful: it can explain a failure."""

    kind: str
    turn: int
    detail: str
    harmful: bool = True


@dataclass(frozen=True, slots=True)
class Goal:
    """How much of the goal came across.

    facts, told: facts that the user holds, and those that it said. asked_again: facts that the agent asked for after they were
    told. parts, settled: parts of the goal, and those that the agent settled.
    """

    facts: int
    told: int
    asked_again: int
    parts: int
    settled: int


@dataclass(frozen=True, slots=True)
class Audited:
    """The errors of one conversation.

    user: errors of the user by kind. A kind that the gym's truth cannot show is absent; [] means that none was found.
    agent: errors of the agent. None: the gym knows no reference for the agent. identifiers: number of identifiers that the
    user said. verdict: None for a solved conversation. suspect: why the task is suspect. rules_checked: gold was compared with
    the policy's rules. policy, user_name: names of both sides. reader: who read the words, patterns or encoder.
    """

    key: str
    task: str
    gym: str
    score: float | None
    solved: bool
    stopped: bool
    identifiers: int
    user: Mapping[str, list[Finding]]
    agent: list[Finding] | None
    goal: Goal | None
    verdict: Verdict | None = None
    suspect: tuple[str, ...] = ()
    rules_checked: bool = False
    policy: str = ""
    user_name: str = ""
    reader: str = PATTERNS

    @property
    def words_read(self) -> bool:
        """Whether words were read. In games the task's facts alone show errors."""
        return "coached" in self.user

    @property
    def known(self) -> bool:
        """Whether the task holds the truth that an audit needs."""
        return self.agent is not None or bool(self.user)


@dataclass(slots=True)
class Findings:
    """The errors that a gym's audit collects about a conversation."""

    user: dict[str, list[Finding]] = field(default_factory=dict)
    agent: list[Finding] | None = None
    goal: Goal | None = None
    identifiers: int = 0

    def checked(self, *kinds: UserError) -> None:
        """Declare kinds as visible in this conversation."""
        for kind in kinds:
            self.user.setdefault(kind, [])

    def add(self, kind: UserError, turn: int, detail: str, *, harmful: bool | None = None) -> None:
        """Add an error of the user."""
        fatal = kind in CAN_FAIL if harmful is None else harmful
        self.user.setdefault(kind, []).append(Finding(kind, turn, detail[:200], fatal))

    def blame(self, kind: AgentError, turn: int, detail: str, *, harmful: bool = True) -> None:
        """Add an error of the agent."""
        self.agent = [*(self.agent or []), Finding(kind, turn, detail[:200], harmful)]


def verdict(findings: Findings) -> Verdict:
    """Return whose harmful errors a failed conversation shows. Errors of the user count if they are certain."""
    agent = any(finding.harmful for finding in findings.agent or ())
    if shows_certain_error(findings.user):
        return "both" if agent else "user"
    return "agent" if agent else "neither seen"


def shows_certain_error(user: Mapping[str, Iterable[Finding]]) -> bool:
    """Return whether errors of the user, by kind, hold one that can explain a failure and is not only possible."""
    return any(finding.harmful for kind, findings in user.items() if not possible(kind) for finding in findings)


def possible(kind: str) -> bool:
    """Return whether a kind is only possible: recognised by words, and readers' labels do not confirm it."""
    right, labelled = LABELLED.get(kind, (0, 0))
    return kind in BY_WORDS and (not labelled or right / labelled < MIN_PRECISION)
