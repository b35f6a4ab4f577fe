"""The report of an imported run: contents of the file, scores with their limits, pass^k, pass@k and costs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from userrl.machine.home import warehouse_dir
from userrl.reports.document import Block, Code, Document, Items, TableBlock, Text, section
from userrl.reports.report import Report
from userrl.reports.users.users_section import TITLE, audited_json, users_of
from userrl_core.errors import ConfigError
from userrl_core.number_format import number, with_limits
from warehouse import open_warehouse
from warehouse.files.runs import find_run
from warehouse.query.unscored import unscored, unscored_sentence
from warehouse.query.warehouse import Warehouse
from warehouse.upkeep.exchange.imported import NOT_STORED, imported_run

if TYPE_CHECKING:
    from analysis.measure.interval import Interval


@dataclass(frozen=True, slots=True)
class ImportedPolicy:
    """One agent of an imported run.

    gym: the data set, as the file names it. users: the models that played the user, as far as the file names them. score: the
    mean over tasks with its 95 % limits, None without scored conversations. dollars: by role, of the calls whose cost is
    in the file.
    """

    policy: str
    gym: str
    users: tuple[str, ...]
    conversations: int
    scored: int
    tasks: int
    fewest_attempts: int
    most_attempts: int
    turns: int
    score: Interval | None
    pass_hat: Mapping[int, float]
    """pass^k by k: the probability that k attempts at a task all succeed."""
    pass_at: Mapping[int, float]
    """pass@k by k: the probability that at least one of k attempts succeeds."""
    dollars: Mapping[str, float]
    unscored: Mapping[str, int]
    """Conversations without a score, by reason."""


@dataclass(frozen=True, slots=True)
class ImportedRun(Report):
    """An imported run. again: the file was imported before, and nothing was written.

    not_stored: number of parts and fields of the file, by name, that have no stored form.
    """

    run: str
    name: str
    source: str
    policies: tuple[ImportedPolicy, ...]
    again: bool = False
    not_stored: Mapping[str, int] = field(default_factory=dict)
    frame_types: ClassVar[Mapping[str, type] | None] = {
        "run": str, "policy": str, "gym": str, "conversations": int, "scored": int, "tasks": int, "turns": int, "score": float,
        "low": float, "high": float,
    }  # fmt: skip

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return one row per agent and data set."""
        return [
            {
                "run": self.run,
                "policy": item.policy,
                "gym": item.gym,
                "conversations": item.conversations,
                "scored": item.scored,
                "tasks": item.tasks,
                "turns": item.turns,
                "score": None if item.score is None else item.score.estimate,
                "low": None if item.score is None else item.score.low,
                "high": None if item.score is None else item.score.high,
            }
            for item in self.policies
        ]

    def document(self) -> Document:
        """Return what the file held, the scores with their limits, costs, and the users."""
        with open_warehouse(warehouse_dir(), run=self.run) as warehouse:
            return import_document(self, section(TITLE, users_of(warehouse, self.run)))

    def as_json(self) -> dict[str, Any]:
        """Return the scores and the audits of the run's users."""
        return {**asdict(self), "users": audited_json(self.run)}


def find_imported(text: str) -> ImportedRun | None:
    """Return the imported run with this id, name or beginning of an id; None if the text means no imported run."""
    root = warehouse_dir()
    if text == "latest" or not root.is_dir():
        return None
    try:
        row = find_run(root, text)
    except ConfigError:
        return None
    return summary(row["run_id"]) if imported_run(root, row["run_id"]) else None


def summary(run_id: str, *, again: bool = False) -> ImportedRun:
    """Return the summary of a run of the warehouse, from its stored rows."""
    with open_warehouse(warehouse_dir(), run=run_id) as warehouse:
        row = warehouse.rows("FROM runs WHERE run_id = $run", run=run_id)[0]
        sources = warehouse.rows(
            "SELECT string_agg(DISTINCT source, ', ' ORDER BY source) AS source FROM trajectories WHERE run_id = $run",
            run=run_id,
        )
        policies = tuple(_policy(warehouse, run_id, entry) for entry in warehouse.rows(_POLICIES, run=run_id))
        events = warehouse.rows(
            "SELECT fields->'counts' AS counts FROM events WHERE run_id = $run AND kind = $kind",
            run=run_id,
            kind=NOT_STORED,
        )
    not_stored = json.loads(events[0]["counts"]) if events else {}
    return ImportedRun(run_id, row["name"], sources[0]["source"] or "", policies, again, not_stored)


_POLICIES = """
    WITH tried AS (
        SELECT policy, gym, task_id, count(*) AS attempts, sum(turns) AS turns, count(*) FILTER (admitted) AS scored,
               list(score ORDER BY attempt) FILTER (admitted AND score IS NOT NULL) AS scores,
               list(DISTINCT user_name) FILTER (user_name IS NOT NULL) AS users
        FROM trajectories WHERE run_id = $run GROUP BY ALL
    )
    SELECT policy, gym, sum(attempts)::BIGINT AS conversations, sum(scored)::BIGINT AS scored, count(*) AS tasks,
           min(attempts) AS fewest, max(attempts) AS most, sum(turns)::BIGINT AS turns,
           list(scores) FILTER (len(scores) > 0) AS scores, list_sort(list_distinct(flatten(list(users)))) AS users
    FROM tried GROUP BY policy, gym ORDER BY policy, gym"""


def _policy(warehouse: Warehouse, run_id: str, row: Mapping[str, Any]) -> ImportedPolicy:
    at_k = warehouse.rows(
        "SELECT k, pass_hat_k, pass_at_k FROM at_k(run := $run) WHERE policy = $policy AND gym = $gym ORDER BY k",
        run=run_id,
        policy=row["policy"],
        gym=row["gym"],
    )
    spent = warehouse.rows(
        """SELECT m.role, sum(m.price) AS dollars FROM model_calls m JOIN trajectories t USING (traj_id)
           WHERE t.run_id = $run AND t.policy = $policy AND t.gym = $gym AND m.price IS NOT NULL
           GROUP BY m.role ORDER BY m.role""",
        run=run_id,
        policy=row["policy"],
        gym=row["gym"],
    )
    from analysis.measure.checkpoints import mean_score  # imported here: scipy takes a quarter of the page's memory

    scores = row["scores"] or []
    return ImportedPolicy(
        row["policy"],
        row["gym"],
        tuple(user for user in row["users"] or () if user),
        row["conversations"],
        row["scored"],
        row["tasks"],
        row["fewest"],
        row["most"],
        row["turns"],
        mean_score(scores) if scores else None,
        {entry["k"]: entry["pass_hat_k"] for entry in at_k if entry["k"] <= row["most"]},
        {entry["k"]: entry["pass_at_k"] for entry in at_k if entry["k"] <= row["most"]},
        {entry["role"]: entry["dollars"] for entry in spent},
        unscored(warehouse, [(run_id, row["policy"])], row["gym"]),
    )


def import_document(run: ImportedRun, users: Iterable[Block] = ()) -> Document:
    """Return the report. users: the section on its users."""
    return Document(f"Imported run {run.run}", (*_blocks(run), *users))


def _blocks(run: ImportedRun) -> Iterator[Block]:
    yield Text(f"Conversations of another tool ({run.source}), named {run.name}.")
    if run.not_stored:
        yield Text(f"Not stored: {', '.join(f'{name} ({count:,})' for name, count in run.not_stored.items())}.")
    rows = tuple(_row(item) for item in run.policies)
    head = ("Agent", "Data", "User", "Conversations", "Scored", "Tasks", "Attempts", "Turns", "Mean score (95 %)")
    yield TableBlock(head, rows, "Limits are over tasks, with the attempts at a task kept together.")
    for item in run.policies:
        if item.unscored:
            yield Text(unscored_sentence(f"{item.policy} at {item.gym}", item.unscored, of=item.conversations))
    powers = sorted({k for item in run.policies for k in item.pass_hat if k > 1})
    if powers:
        shown_powers = [k for k in powers if k <= 8]
        yield TableBlock(
            ("Agent", "Data", "pass^1", *(f"pass^{k}" for k in shown_powers), *(f"pass@{k}" for k in shown_powers)),
            tuple(
                (
                    item.policy,
                    item.gym,
                    number(item.pass_hat.get(1)),
                    *(number(item.pass_hat.get(k)) for k in shown_powers),
                    *(number(item.pass_at.get(k)) for k in shown_powers),
                )
                for item in run.policies
            ),
            "Success is a score of 1 or more. A task counts if it has at least k scored attempts.",
        )
    spent = tuple(
        (item.policy, item.gym, role, f"{dollars:.4f}")
        for item in run.policies
        for role, dollars in item.dollars.items()
    )
    if spent:
        yield TableBlock(("Agent", "Data", "Role", "US dollars in the file"), spent)
    yield Items(
        (
            (
                "Conversations: ",
                Code(
                    f"userrl sql \"select traj_id, task_id, attempt, score from trajectories where run_id = '{run.run}'\""
                ),
            ),
            ("Compare with another import: ", Code(f"userrl compare {run.run} OTHER")),
        )
    )


def _row(item: ImportedPolicy) -> tuple[str, ...]:
    fewest, largest = item.fewest_attempts, item.most_attempts
    return (
        item.policy,
        item.gym,
        ", ".join(item.users) or "not named",
        f"{item.conversations:,}",
        f"{item.scored:,}",
        f"{item.tasks:,}",
        str(largest) if fewest == largest else f"{fewest} to {largest}",
        f"{item.turns:,}",
        "none" if item.score is None else with_limits(item.score),
    )
