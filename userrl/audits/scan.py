"""Scanners: a named label for each conversation or turn of a run, from a pattern, a function or a judge model.

Labels are appended to the table ``labels`` of the labelled run. A repeated scan adds new labels, and the view ``labels``
shows the newest of each labeller. Texts of conversations are data: a pattern has a time limit, and a judge gets them quoted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import entry_points
from typing import Any, Literal

import regex
from pydantic import BaseModel, Field

from userrl.machine.foreign_text import plain
from userrl.machine.home import warehouse_dir
from userrl_core.errors import ConfigError, UserRLError
from userrl_core.measure.labels import LabelAgreement, LabelPair, label_agreement
from userrl_core.number_format import with_limits
from userrl_core.records import ModelCall
from userrl_core.served.client import ChatServer, client_for, close_clients
from userrl_core.served.quoting import DATA_RULE, quote
from userrl_core.suggest import nearest
from warehouse import TurnLog, Warehouse, open_warehouse
from warehouse.files.runs import find_run

ENTRY_POINT = "userrl.scanners"
"""Group of the entry points whose functions label a conversation."""
MAX_PATTERN = 1000
"""Longest pattern, in characters."""
MAX_TEXT = 100_000
"""Characters of a text that a pattern searches."""
SECONDS = 0.5
"""Longest search in one text."""
MAX_LATE = 10
"""Searches over their time limit after which a scan is refused."""
YES, NO = "yes", "no"

Kind = Literal["pattern", "function", "judge"]
Unit = Literal["conversation", "turn"]


@dataclass(frozen=True, slots=True)
class ScannedTurn:
    """One turn as a scanner sees it. observation: the answer of the user or the environment."""

    turn: int
    message: str
    observation: str
    reward: float | None


@dataclass(frozen=True, slots=True)
class ScannedConversation:
    """One conversation as a scanner sees it."""

    traj_id: int
    gym: str
    task_id: str
    policy: str
    score: float | None
    stop_reason: str | None
    turns: tuple[ScannedTurn, ...]


@dataclass(frozen=True, slots=True)
class Label:
    """A label. turn: 0 for the whole conversation. value: None if it could not be decided; reason says why."""

    traj_id: int
    turn: int
    value: str | None
    reason: str = ""
    price: float | None = 0.0


@dataclass(frozen=True, slots=True)
class ScanResult:
    """The labels of one scan. values: how many labels have each value. undecided: labels without a value, by reason."""

    run: str
    name: str
    on: Unit
    values: Mapping[str, int]
    undecided: Mapping[str, int]
    dollars: float | None

    def as_json(self) -> dict[str, Any]:
        """Return the counts as JSON."""
        return asdict(self)

    def __str__(self) -> str:
        counts = ", ".join(f"{plain(value)} {count:,}" for value, count in sorted(self.values.items())) or "no labels"
        lines = [f"{plain(self.name)}, labels by {self.on}: {counts}"]
        lines += [f"  undecided ({count} times): {plain(reason)}" for reason, count in self.undecided.items()]
        if self.dollars is None:
            lines.append("  the judge's model has no known price")
        elif self.dollars:
            lines.append(f"  the judge cost ${self.dollars:.2f}")
        query = f"select value, count(*) from labels where run_id = '{self.run}' and name = '{self.name}' group by 1"
        return "\n".join([*lines, f'all labels: userrl sql "{query}"'])


Scanner = Callable[[ScannedConversation, Unit], Sequence[Label]]


def scan_run(
    run: str,
    *,
    name: str,
    with_: Kind,
    on: Unit = "conversation",
    pattern: str | None = None,
    function: str | None = None,
    rubric: str | None = None,
    server: ChatServer | None = None,
    phase: str = "evaluate",
) -> ScanResult:
    """Label the conversations of a run and store the labels. Raises ConfigError with one sentence."""
    if not name or len(name) > 100:
        raise ConfigError("argument.malformed", "A label set needs a name of at most 100 characters.")
    needed = {"pattern": pattern, "function": function, "judge": rubric}[with_]
    if not needed:
        option = {"pattern": "--pattern", "function": "--function", "judge": "--rubric"}[with_]
        raise ConfigError("argument.missing", f"A scan with a {with_} needs {option}.")
    root = warehouse_dir()
    run_id = find_run(root, run)["run_id"]
    scanner = _by_pattern(needed) if with_ == "pattern" else _by_function(needed) if with_ == "function" else None
    with open_warehouse(root) as warehouse:
        conversations = read_conversations(warehouse, run_id, phase)
    if not conversations:
        raise ConfigError("run.no_conversations", f"Run {run_id} has no conversation of phase {phase} to label.")
    if scanner is not None:
        labels = [label for conversation in conversations for label in scanner(conversation, on)]
        labeller = needed
    else:
        judge = server or ChatServer()
        labels, labeller = asyncio.run(_by_judge(conversations, needed, judge, on)), judge.model
    store_labels(run_id, name, labels, source=with_, labeller=labeller)
    prices = [label.price for label in labels]
    return ScanResult(
        run_id,
        name,
        on,
        dict(Counter(label.value for label in labels if label.value is not None)),
        dict(Counter(label.reason for label in labels if label.value is None)),
        None if None in prices else sum(price for price in prices if price is not None),
    )


def read_conversations(warehouse: Warehouse, run_id: str, phase: str) -> list[ScannedConversation]:
    """Return a run's conversations of a phase with their turns, in the order of their ids."""
    turns: dict[int, list[ScannedTurn]] = {}
    text = """SELECT traj_id, turn, coalesce(message, ''), coalesce(observation, ''), reward FROM turns
              WHERE run_id = $run AND phase = $phase ORDER BY traj_id, turn"""
    for traj_id, *turn in warehouse.sql(text, run=run_id, phase=phase).fetchall():
        turns.setdefault(traj_id, []).append(ScannedTurn(*turn))
    text = """SELECT traj_id, gym, task_id, policy, score, stop_reason FROM trajectories
              WHERE run_id = $run AND phase = $phase ORDER BY traj_id"""
    rows = warehouse.sql(text, run=run_id, phase=phase).fetchall()
    return [
        ScannedConversation(traj_id, gym, task_id, policy, score, stop, tuple(turns.get(traj_id, ())))
        for traj_id, gym, task_id, policy, score, stop in rows
    ]


def store_labels(run_id: str, name: str, labels: Sequence[Label], *, source: str, labeller: str) -> None:
    """Append labels to the run. It begins no new attempt of the run."""
    root = warehouse_dir()
    with open_warehouse(root, run=run_id) as warehouse:
        newest = warehouse.sql("SELECT max(incarnation) FROM trajectories_all WHERE run_id = $run", run=run_id)
        incarnation = newest.fetchall()[0][0]
    with TurnLog.open(root, run_id, join=incarnation) as log:
        log.labels(
            {
                "traj_id": label.traj_id,
                "turn": label.turn,
                "name": name,
                "value": label.value,
                "source": source,
                "labeller": labeller,
                "reason": label.reason or None,
                "price": label.price,
            }
            for label in labels
        )


def _by_pattern(pattern: str) -> Scanner:
    """Return a scanner that says yes where the pattern is found in the agent's message or in the answer."""
    if len(pattern) > MAX_PATTERN:
        raise ConfigError("argument.malformed", f"A pattern has at most {MAX_PATTERN} characters.")
    try:
        compiled = regex.compile(pattern)
    except regex.error as error:
        raise ConfigError("argument.malformed", f"The pattern {pattern!r} is not valid: {error}.") from None
    late = 0

    def found(turn: ScannedTurn) -> tuple[str | None, str]:
        nonlocal late
        for text in (turn.message, turn.observation):
            try:
                match = compiled.search(text[:MAX_TEXT], timeout=SECONDS)
            except TimeoutError:
                late += 1
                if late >= MAX_LATE:
                    raise ConfigError(
                        "argument.malformed",
                        f"The pattern {pattern!r} took more than {SECONDS:g} s in {late} texts. Write it without nested "
                        "repetitions such as (a+)+.",
                    ) from None
                return None, f"the search took more than {SECONDS:g} s"
            if match is not None:
                return YES, match[0][:200]
        return NO, ""

    def scan(conversation: ScannedConversation, on: Unit) -> list[Label]:
        labels = [Label(conversation.traj_id, turn.turn, *found(turn)) for turn in conversation.turns]
        if on == "turn":
            return labels
        chosen = next((label for label in labels if label.value == YES), None)
        chosen = chosen or next((label for label in labels if label.value is None), None)
        value, reason = (NO, "") if chosen is None else (chosen.value, chosen.reason)
        return [Label(conversation.traj_id, 0, value, reason)]

    return scan


def _by_function(name: str) -> Scanner:
    """Return the scanner of an installed function ``label(conversation) -> value``; with turns, one value a turn.

    A value is a text, True or False (yes, no), or None for undecided.
    """
    points = {point.name: point for point in entry_points(group=ENTRY_POINT)}
    if name not in points:
        raise ConfigError(
            "argument.unknown_value",
            f"No installed package has a scanner '{name}'{nearest(name, points)}. Known: {', '.join(sorted(points)) or 'none'}. "
            f"A package offers one with the entry point {ENTRY_POINT}.",
        )
    function = points[name].load()

    def scan(conversation: ScannedConversation, on: Unit) -> list[Label]:
        numbers = [turn.turn for turn in conversation.turns] if on == "turn" else [0]
        try:
            given = function(conversation)
            values = list(given) if on == "turn" else [given]
            if len(values) != len(numbers):
                raise ValueError(f"{len(values)} values for {len(numbers)} turns")
        except Exception as error:  # noqa: BLE001 - a scanner's own mistake leaves the conversation undecided
            reason = f"{type(error).__name__}: {error}"[:200]
            return [Label(conversation.traj_id, number, None, reason) for number in numbers]
        return [
            Label(conversation.traj_id, number, _word(value), "" if value is not None else "the function returned None")
            for number, value in zip(numbers, values, strict=True)
        ]

    return scan


def _word(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return YES if value else NO
    return str(value)[:200]


class JudgedLabel(BaseModel):
    """The judge's reply."""

    reason: str = Field(default="", max_length=2000)
    """Why, in a sentence or two."""

    label: Literal["yes", "no"]
    """Whether the rubric applies."""


_RULES = """You label conversations between a user and an agent by one rubric.

Answer yes if the rubric applies to {what}, else no. First give the reason, then the label.

# Rubric
{rubric}

{rule}"""


async def _by_judge(
    conversations: Sequence[ScannedConversation], rubric: str, server: ChatServer, on: Unit
) -> list[Label]:
    async def label(conversation: ScannedConversation, turn: int) -> Label:
        what = "the conversation" if turn == 0 else f"turn {turn} of the conversation"
        shown = "\n\n".join(
            f"[Turn {each.turn}]\nAgent: {quote(each.message)}\nWhat came back: {quote(each.observation)}"
            for each in conversation.turns
            if turn == 0 or each.turn <= turn
        )
        messages = [
            {"role": "system", "content": _RULES.format(what=what, rubric=rubric, rule=DATA_RULE)},
            {"role": "user", "content": f"{shown}\n\nDoes the rubric apply to {what}?"},
        ]
        calls: list[ModelCall] = []
        try:
            answer = await client_for(server).complete(messages, role="judge", ledger=calls, schema=JudgedLabel)
        except UserRLError as error:
            return Label(conversation.traj_id, turn, None, str(error)[:200], _spent(calls))
        judged = JudgedLabel.model_validate(answer.parsed, from_attributes=True)
        return Label(conversation.traj_id, turn, judged.label, judged.reason, _spent(calls))

    try:
        return await asyncio.gather(
            *(
                label(conversation, number)
                for conversation in conversations
                for number in ([turn.turn for turn in conversation.turns] if on == "turn" else [0])
            )
        )
    finally:
        await close_clients()


def _spent(calls: Sequence[ModelCall]) -> float | None:
    prices = [call.price for call in calls]
    return None if None in prices else sum(price for price in prices if price is not None)


@dataclass(frozen=True, slots=True)
class CheckedLabels:
    """The agreement of each labeller of a label set with the labels of persons."""

    run: str
    name: str
    by_labeller: Mapping[str, LabelAgreement]

    def as_json(self) -> dict[str, Any]:
        """Return the agreement as JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"{plain(self.name)}: labels compared with a person's, 95 % limits over tasks"]
        for labeller, found in self.by_labeller.items():
            lines += [
                f"{plain(labeller)}: {found.pairs} labels of {found.tasks} tasks",
                f"  agreement    {with_limits(found.agreement)}",
                f"  sensitivity  {with_limits(found.sensitivity)}  (for {plain(found.positive)})",
                f"  specificity  {with_limits(found.specificity)}",
                f"  kappa        {with_limits(found.kappa)}",
            ]
        return "\n".join(lines)


def check_labels(run: str, name: str, positive: str = YES) -> CheckedLabels:
    """Compare a label set with the labels that persons gave on the page. Raises ConfigError if there is nothing to compare."""
    root = warehouse_dir()
    run_id = find_run(root, run)["run_id"]
    text = """SELECT l.source || ' ' || l.labeller, t.gym || '/' || t.task_id, l.value, p.value
              FROM labels l JOIN labels p USING (traj_id, turn, name) JOIN trajectories t ON t.traj_id = l.traj_id
              WHERE l.run_id = $run AND name = $name AND l.source <> 'person' AND p.source = 'person'
                AND l.value IS NOT NULL AND p.value IS NOT NULL ORDER BY ALL"""
    with open_warehouse(root) as warehouse:
        pairs: dict[str, list[LabelPair]] = {}
        for labeller, *values in warehouse.sql(text, run=run_id, name=name).fetchall():
            pairs.setdefault(labeller, []).append(LabelPair(*values))
        known = [
            row["name"] for row in warehouse.rows("SELECT DISTINCT name FROM labels WHERE run_id = $run", run=run_id)
        ]
    if not pairs:
        hint = "" if name in known else f"{nearest(name, known)}; its label sets: {', '.join(sorted(known)) or 'none'}"
        raise ConfigError(
            "labels.nothing_to_compare",
            f"Run {run_id} has no turn or conversation that both a scanner and a person labelled '{name}'{hint}. "
            "Label some on the page (userrl view).",
        )
    return CheckedLabels(run_id, name, {who: label_agreement(own, positive) for who, own in pairs.items()})
