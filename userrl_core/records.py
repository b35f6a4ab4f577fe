"""Task, Turn, Trajectory, Judgement, ModelCall: the records that gyms, policies, trainers and the warehouse exchange.

Plain data without behaviour. The warehouse's tables are these records, column by column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Any, Literal

StopReason = Literal["success", "horizon", "format", "gave_up", "length", "error"]
Phase = Literal["distill", "train", "baseline", "validate", "evaluate", "play"]
"""The purpose of a conversation. ``baseline``: a greedy one that training compares others with, and does not learn from."""
Message = dict[str, Any]
"""A chat message: ``{"role": "system" | "user" | "assistant" | "tool", "content": str}``. An additional ``audio`` is
the path of the recording of the content.
"""


class Flag(IntFlag):
    """Marks of a turn, most of them irregularities, stored as one integer."""

    NONE = 0
    FORMAT_ERROR = 1
    """The reply has no readable tool call."""
    DISALLOWED = 2
    """The call names a choice that the gym does not allow."""
    EXTRA_CALLS = 4
    """The reply has more than one call; only the first was executed."""
    LENGTH = 8
    """The reply was cut at its token limit."""
    TIMEOUT = 16
    """The gym, the user or the policy did not answer in time."""
    TURNS_LEFT = 32
    """No irregularity: before the turn the agent was shown how many turns it had left, this one included."""


@dataclass(frozen=True, slots=True)
class Task:
    """One problem of a gym.

    id: unique within the gym and never changed (a content hash for our tasks, the published id for imported ones).
    payload: JSON-serialisable; everything the gym needs, including the hidden answer. source: ``ours``,
    ``published:<where>``, or the package that creates the problem (``minigrid``). tier: difficulty tier where the gym
    has tiers, else "".
    """

    gym: str
    id: str
    split: Literal["train", "validation", "test"]
    payload: Mapping[str, Any]
    source: str = "ours"
    tier: str = ""

    @property
    def key(self) -> str:
        """Return ``gym/id``: unique across gyms."""
        return f"{self.gym}/{self.id}"


@dataclass(slots=True)
class ModelCall:
    """One call of a served model, successful or not: a row of the cost ledger.

    role: ``policy``, ``user`` or ``judge``. price: US dollars, None where the model's price is not known.
    price_source: the date and the table of the price. attempts: HTTP attempts made, 1 when the first succeeded. error:
    the last error's name when all failed, else None. estimated: some token counts are estimated from the texts, because
    no reply came or the server's count cannot be true. prompt: the messages sent to a user or judge. reply: the user's
    or judge's answer, unchanged.
    """

    role: str
    model: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    attempts: int = 1
    price: float | None = None
    error: str | None = None
    estimated: bool = False
    prompt: list[Message] | None = None
    reply: str | None = None
    price_source: str | None = None


@dataclass(slots=True)
class PolicyReply:
    """One agent message.

    text: the message as text (with a Hermes tool call in it), or the content next to the tool calls. tool_calls:
    OpenAI tool calls where the server returned them. token_ids / logprobs: sampled ids and their log-probabilities in
    nats, same length. truncated: the message was cut at its token limit.
    """

    text: str
    tool_calls: list[dict[str, Any]] | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    truncated: bool = False
    model_calls: list[ModelCall] = field(default_factory=list)


@dataclass(slots=True)
class Turn:
    """One agent message and the environment's response.

    number: from 1. thought: the text before the call. message: the agent's reply, unchanged. reward: raw reward; None
    means scoring did not run. token_ids / logprobs: the sampled tokens and their log-probabilities (nats), where the
    policy knows them; never re-tokenised. policy_seconds / env_seconds: wall time of the policy, and of gym and user
    together.
    """

    number: int
    choice: str | None
    content: str | None
    thought: str
    message: str
    observation: str
    reward: float | None
    flags: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    policy_seconds: float = 0.0
    env_seconds: float = 0.0
    token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    info: dict[str, Any] = field(default_factory=dict)
    model_calls: list[ModelCall] = field(default_factory=list)


@dataclass(slots=True)
class Judgement:
    """The verdict of a turn judge on a trajectory, with the rewards that training uses instead of the gym's (TARL 3.2).

    judge: ``rule``, a model's name, or "" for a gym whose turns are not judged. scores: -1, 0 or 1 per turn; None
    where the judge gave no usable scores. rule_scores: scores of the rule judge. category: see `rewards.judge`.
    rewards: [T], None leaves the trajectory out of training. calls: calls of the judge's model.
    """

    judge: str
    scores: list[int] | None
    rule_scores: list[int] | None
    category: str
    rewards: list[float | None]
    calls: list[ModelCall] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RolloutContext:
    """The part of a run that a rollout belongs to.

    stage: ``distill``, ``sft``, ``explore-1``, ``sft-1`` ..., ``rl-1`` ... ``rl-n``, ``evaluate``. step: global RL
    step from 1, 0 before the first. policy: the acting policy's name in reports. checkpoint: id of the acting
    checkpoint, or None.
    """

    stage: str = "play"
    step: int = 0
    phase: Phase = "play"
    policy: str = ""
    checkpoint: str | None = None


@dataclass(slots=True)
class Trajectory:
    """All turns of one conversation about one task.

    attempt: 0-based index within the group of the task. group: id of the group (one task in one step). score: the
    gym's metric for the whole trajectory; None when it is not admitted. messages: opening messages (before turn 1),
    so that the conversation can be rebuilt. traj_id: assigned by the sink, None without one. admitted: False when
    scoring did not run. Such a trajectory is never trained or averaged on, and reject_reason gives the cause.
    unfinished_calls: calls of served models in a turn that was not completed; they also count as cost. judgement: the
    verdict of a turn judge, where the recipe has one.
    """

    task: Task
    attempt: int
    horizon: int
    seed: int
    context: RolloutContext = field(default_factory=RolloutContext)
    group: str = ""
    messages: list[Message] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    stop_reason: StopReason | None = None
    score: float | None = None
    admitted: bool = True
    reject_reason: str | None = None
    user: str = "rule"
    traj_id: int | None = None
    unfinished_calls: list[ModelCall] = field(default_factory=list)
    judgement: Judgement | None = None

    @property
    def rewards(self) -> list[float | None]:
        """Return the raw turn rewards, shape [T]."""
        return [turn.reward for turn in self.turns]

    @property
    def return_sum(self) -> float | None:
        """Return the sum of raw turn rewards; None when any of them is null or the trajectory is not admitted."""
        total = 0.0
        for turn in self.turns:
            if turn.reward is None:
                return None
            total += turn.reward
        return total if self.admitted else None


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """A checkpoint's row in the warehouse: its path, the hash of its weights, and the checkpoint it continues (parent)."""

    id: str
    path: str
    stage: str
    step: int
    sha256: str
    parent: str | None = None
    score: float | None = None


def mean_score(scores: Iterable[float | None]) -> float | None:
    """Return the mean of the scores that are known; None without one."""
    scored = [score for score in scores if score is not None]
    return sum(scored) / len(scored) if scored else None


def total_price(prices: Iterable[float | None]) -> float | None:
    """Return the sum of prices in dollars; None if one of them is unknown."""
    listed = list(prices)
    return None if None in listed else sum(price for price in listed if price is not None)


def branch_of(stage: str) -> str:
    """Return the branch in a stage's name (``rl-2-a``: a), "" for a stage that all branches share."""
    match = re.fullmatch(r"rl-\d+-([a-z][a-z0-9]*)", stage)
    return match[1] if match else ""


def leads_to(stage: str, branch: str) -> bool:
    """Return whether a stage belongs to a branch or comes before the split."""
    return branch_of(stage) in ("", branch)
