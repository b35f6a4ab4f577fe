"""Scanners: a named label for each conversation or turn of a run, from a pattern, a function or a judge model.

Labels are appended to the table ``labels`` of the labelled run. A repeated scan adds new labels, and the view ``labels``
shows the newest of each labeller. A repeated scan of a judge asks only for what it has not labelled yet. Texts of conversations
are data: a pattern has a time limit, and a judge gets them quoted.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import entry_points
from typing import Any, Literal

import regex

from userrl.audits.label_judge import Progress, judge_labels, judge_name, labels_so_far
from userrl.audits.labels import (
    NO,
    YES,
    Label,
    ScannedConversation,
    ScannedTurn,
    Unit,
    label_writer,
    read_conversations,
    store_labels,
)
from userrl.machine.foreign_text import plain
from userrl.machine.home import quiet_process, warehouse_dir
from userrl.machine.notebook import Printed
from userrl.run.progress import ProgressLine
from userrl_core.errors import ConfigError, in_one_line
from userrl_core.installed.same_name import by_name, loaded, same_name
from userrl_core.records import total_price
from userrl_core.served.client import ChatServer
from userrl_core.suggest import nearest
from warehouse import open_warehouse
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


@dataclass(frozen=True, slots=True)
class ScanResult(Printed):
    """The labels of one scan. values: how many labels have each value. undecided: labels without a value, by reason.

    kept: labels that an earlier scan of the same judge had stored; they are counted in the rest as well.
    """

    run: str
    name: str
    on: Unit
    values: Mapping[str, int]
    undecided: Mapping[str, int]
    dollars: float | None
    kept: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return the counts as JSON."""
        return asdict(self)

    def __str__(self) -> str:
        counts = ", ".join(f"{plain(value)} {count:,}" for value, count in sorted(self.values.items())) or "no labels"
        lines = [f"{plain(self.name)}, labels by {self.on}: {counts}"]
        if self.kept:
            lines.append(f"  {self.kept:,} of them were stored by an earlier scan and were not judged again")
        lines += [f"  undecided ({count} times): {plain(reason)}" for reason, count in self.undecided.items()]
        if self.dollars is None:
            lines.append("  the judge's model has no known price")
        elif self.dollars:
            lines.append(f"  the judge cost ${self.dollars:.2f}")
        name = self.name.replace("'", "''")
        # Another pattern or rubric is another labeller of the same name.
        query = (
            f"select labeller, value, count(*) from labels where run_id = '{self.run}' and name = '{name}' group by all"
        )
        return "\n".join([*lines, f"all labels: userrl sql {shlex.quote(query)}"])


Scanner = Callable[[ScannedConversation, Unit], Sequence[Label]]


def scan(
    run: str = "latest",
    *,
    name: str,
    with_: Literal["pattern", "function", "judge"] = "pattern",
    on: Unit = "conversation",
    pattern: str | None = None,
    function: str | None = None,
    rubric: str | None = None,
    model: str | ChatServer = "gpt-4o",
    base_url: str | None = None,
    phase: str = "evaluate",
    progress: bool | Progress = True,
) -> ScanResult:
    """Label each conversation or turn of a run, and store the labels in the table ``labels``.

    pattern: a regular expression. function: the name of an entry point in the group ``userrl.scanners``. rubric: the question
    for a judge model, which answers yes or no. model, base_url: the judge's name and address, or its server with all settings.
    A judge's labels are stored one by one, and repeating the call asks only for the missing ones. progress: show a judge's
    progress on stderr, or call this with ``judge`` and the numbers of `ProgressLine`. Raises ConfigError with one sentence.
    """
    quiet_process()
    if not name or len(name) > 100 or not name.isprintable():
        raise ConfigError("argument.malformed", "A label set needs a name of at most 100 characters, in one line.")
    needed = {"pattern": pattern, "function": function, "judge": rubric}[with_]
    if not needed:
        option = {"pattern": "--pattern", "function": "--function", "judge": "--rubric"}[with_]
        raise ConfigError("argument.missing", f"A scan with a {with_} needs {option}.")
    root = warehouse_dir()
    run_id = find_run(root, run)["run_id"]
    done: list[Label] = []
    scanner = _by_pattern(needed) if with_ == "pattern" else _by_function(needed) if with_ == "function" else None
    with open_warehouse(root) as warehouse:
        conversations = read_conversations(warehouse, run_id, phase)
    if not conversations:
        raise ConfigError("run.no_conversations", f"Run {run_id} has no conversation of phase {phase} to label.")
    if scanner is not None:
        labels = [label for conversation in conversations for label in scanner(conversation, on)]
        store_labels(run_id, name, labels, source=with_, labeller=needed)
    else:
        judge = model if isinstance(model, ChatServer) else ChatServer(model=model, base_url=base_url)
        shown = (ProgressLine() if progress else None) if isinstance(progress, bool) else progress
        labeller = judge_name(judge.model, needed)
        with open_warehouse(root) as warehouse:
            earlier = labels_so_far(warehouse, run_id, name, labeller)
        ids = {conversation.traj_id for conversation in conversations}
        done = [label for label in earlier if label.traj_id in ids and (label.turn == 0) == (on == "conversation")]
        with label_writer(run_id, name, source=with_, labeller=labeller) as writer:
            new = judge_labels(conversations, needed, judge, on, done=done, writer=writer, progress=shown)
        labels = [*done, *new]
    return ScanResult(
        run_id,
        name,
        on,
        dict(Counter(label.value for label in labels if label.value is not None)),
        dict(Counter(label.reason for label in labels if label.value is None)),
        total_price(label.price for label in labels),
        len(done),
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
    points = by_name(entry_points(group=ENTRY_POINT))
    if name not in points:
        raise ConfigError(
            "argument.unknown_value",
            f"No installed package has a scanner '{name}'{nearest(name, points)}. Known: {', '.join(sorted(points)) or 'none'}. "
            f"A package offers one with the entry point {ENTRY_POINT}.",
        )
    if refusal := same_name("scanner", points[name]):
        raise ConfigError("scanner.bad_package", refusal)
    function = loaded(points[name][0], "scanner.bad_package")

    def scan(conversation: ScannedConversation, on: Unit) -> list[Label]:
        numbers = [turn.turn for turn in conversation.turns] if on == "turn" else [0]
        try:
            answer = function(conversation)
            values = list(answer) if on == "turn" else [answer]
            if len(values) != len(numbers):
                raise ValueError(f"{len(values)} values for {len(numbers)} turns")
        except Exception as error:  # noqa: BLE001 - a scanner's own mistake leaves the conversation undecided
            return [Label(conversation.traj_id, number, None, in_one_line(error)) for number in numbers]
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
