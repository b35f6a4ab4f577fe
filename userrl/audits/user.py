"""An audit of the users in stored conversations: their errors, and a verdict for every failure.

The audit is stored in the table ``user_features``. A conversation whose row has not changed is not written again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from analysis.users.audit import audit
from analysis.users.conversation import conversation
from analysis.users.distance import MIN_CONVERSATIONS, Distance, Users, distance
from analysis.users.features import DIMENSIONS, fingerprint, typical
from analysis.users.mixture import Mixture, mixture
from userrl.audits.acts import Acts, reader_of
from userrl.audits.chitchat import CHITCHAT
from userrl.audits.labels import added_log
from userrl.audits.user_reference import fingerprints, of_people, reference_users
from userrl.machine.home import published_data, quiet_process, warehouse_dir
from userrl.machine.notebook import Printed, Tabular
from userrl.reports.document import Block, Code, Document, Heading, TableBlock, Text
from userrl.reports.people_report import RUN as PEOPLE
from userrl.reports.users.audited import AuditedUsers, as_rows, stored_rows
from userrl.reports.users.document import users_blocks, users_json
from userrl.run.stored import stored_conversations
from userrl_core.errors import ConfigError, LogError, TaskError
from userrl_core.gyms.tau.tasks import load_domain
from userrl_core.gyms.tau.tools import Domain
from userrl_core.judging.acts import ActReader
from userrl_core.number_format import number
from userrl_core.records import Trajectory
from warehouse import open_warehouse
from warehouse.files.runs import find_run


@dataclass(frozen=True, slots=True)
class UserAuditReport(Printed, Tabular):
    """The audit of a run's users.

    written: rows that were new or had changed. not_stored: why nothing could be stored, "" if it was. distance: from the
    reference. mixture: of these users and others, nearest to the reference.
    """

    users: AuditedUsers
    written: int = 0
    not_stored: str = ""
    distance: Distance | None = None
    mixture: Mixture | None = None
    frame_types: ClassVar[Mapping[str, type] | None] = {
        "conversation": str, "task": str, "verdict": str, "side": str, "kind": str, "turn": int, "detail": str, "harmful": bool
    }  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON, with every conversation."""
        return {
            **users_json(self.users),
            "written": self.written,
            "not_stored": self.not_stored,
            "distance": None if self.distance is None else asdict(self.distance),
            "mixture": None if self.mixture is None else asdict(self.mixture),
        }

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return one row per error."""
        return [
            {"conversation": row.key, "task": row.task, "verdict": row.verdict, "side": side, "kind": finding.kind,
             "turn": finding.turn, "detail": finding.detail, "harmful": finding.harmful}
            for row in self.users.audit.rows
            for side, findings in (("user", [f for of_kind in row.user.values() for f in of_kind]), ("agent", row.agent or []))
            for finding in findings
        ]  # fmt: skip

    def __str__(self) -> str:
        return Document(f"Users of {self.users.run}", tuple(self._blocks())).text()

    def _blocks(self) -> Iterator[Block]:
        yield from users_blocks(self.users)
        if self.distance is not None:
            yield from distance_blocks(self.distance)
        if self.mixture is not None:
            yield from mixture_blocks(self.mixture)
        if self.not_stored:
            yield Text(f"This audit was not stored. {self.not_stored}", strong=True)
        else:
            query = f"from user_features where run_id = '{self.users.run}'"
            yield Text(("Every conversation: ", Code(f'userrl sql "{query}"')))


def audit_user(
    run: str,
    *,
    phase: str | None = None,
    against: str | None = None,
    mix: Sequence[str] = (),
    acts: Acts = "auto",
    judge: str | Mapping[str, Any] | None = None,
) -> UserAuditReport:
    """Report the errors of the users in a run's stored conversations, with a verdict for every failure, and store them.

    phase: train, validate, evaluate, distill or play; by default evaluate, and play for the run people. against: people,
    people:chitchat, a run or a file that can be imported, whose users are the reference of a distance. mix: further runs and
    files, to find the mixture of users that is nearest to the reference. acts: who reads the words; auto is the encoder where
    this home has it (`userrl model fetch all-minilm-l6-v2`), else patterns. judge: with acts="judge" the served model that reads
    them, a name or the options of its server; otherwise no language model is called. Raises ConfigError with one sentence.
    """
    quiet_process()
    run_id = str(find_run(warehouse_dir(), run)["run_id"])
    phase = phase or ("play" if run_id == PEOPLE else "evaluate")
    if mix and against is None:
        raise ConfigError("argument.missing", "A mixture needs a reference. Give one with --against.")
    stored = [trajectory for trajectory in stored_conversations(run_id, phase, None, lenient=True) if trajectory.turns]
    if not stored:
        raise ConfigError(
            "run.no_conversations",
            f"Run {run_id} has no finished conversation of phase {phase}. Choose another with --phase.",
        )
    run_users = fingerprints(run_id, of_people(stored) if run_id == PEOPLE else stored)
    measured, mixed = (None, None) if against is None else _distances(run_users, against, mix)
    users = _audited(run_id, phase, stored, reader_of(acts, judge))
    written, not_stored = _store(users)
    return UserAuditReport(users, written, not_stored, measured, mixed)


def _audited(run: str, phase: str, stored: Sequence[Trajectory], reader: ActReader) -> AuditedUsers:
    utterances = {str(trajectory.traj_id): conversation(trajectory).utterances() for trajectory in stored}
    middling = {
        next(key for key, texts in utterances.items() if text in texts): text
        for text in typical(list(utterances.values()))
    }
    return AuditedUsers(
        run,
        phase,
        audit(stored, policy=airline(), reader=reader),
        {key: fingerprint(texts) if texts else None for key, texts in utterances.items()},
        {key: len(texts) for key, texts in utterances.items()},
        {key: middling[key] for key in utterances if key in middling},
    )


def _store(users: AuditedUsers) -> tuple[int, str]:
    """Append the rows that are new or have changed. Return their number, and why nothing could be stored.

    Each row is complete, so a process that is killed here leaves rows that the next audit completes.
    """
    with open_warehouse(warehouse_dir(), run=users.run) as warehouse:
        earlier_rows = stored_rows(warehouse, users.run)
    rows = [row for row in as_rows(users) if earlier_rows.get(row["traj_id"]) != row]
    if not rows:
        return 0, ""
    try:
        with added_log(users.run) as log:
            log.user_features(rows)
    except LogError as error:
        return 0, str(error)
    return len(rows), ""


def _distances(user: Users, against: str, mix: Sequence[str]) -> tuple[Distance, Mixture | None]:
    """Return the distance from the reference, and the nearest mixture if there is one to look for."""
    reference, others = reference_users(against), [reference_users(name) for name in mix]
    for compared in (user, reference, *others):
        if len(compared.features) < MIN_CONVERSATIONS:
            raise ConfigError(
                "run.no_conversations",
                f"A distance needs {MIN_CONVERSATIONS} conversations with words of the user. {compared.name} has "
                f"{len(compared.features)}.",
            )
    names = [compared.name for compared in (user, *others)]
    if len(set(names)) < len(names):
        raise ConfigError("argument.malformed", "A mixture needs different users. Give each run or file once.")
    return distance(user, reference), mixture(reference, [user, *others]) if others else None


def airline() -> Domain | None:
    """Return tau-bench's airline from the folder of published data, or None if it is not there."""
    folder = published_data() / "tau-bench" / "airline"
    try:
        return load_domain("airline", str(folder)) if folder.is_dir() else None
    except TaskError:
        return None


MEASURES = {"D1": "D1 style", "D2": "D2 disclosure", "D3": "D3 clarification", "D4": "D4 reaction to errors"}


def distance_blocks(distance: Distance) -> Iterator[Block]:
    """Yield the distance with its floor."""
    yield Heading(f"Distance from {distance.reference}")
    users, reference = distance.conversations
    yield Text(
        f"{users} conversations of {distance.user}, {reference} of the reference. Floor: the same number between two halves of the "
        "reference, middle and 95 % of 200 halvings. Below the floor, a user differs."
    )
    if distance.reference == CHITCHAT:
        yield Text(
            "These people chat and want nothing done: a reference for style (D1, D3, D4), and none for telling a goal (D2)."
        )
    overall = {MEASURES[key]: (key, value) for key, value in distance.dimensions.items()}
    overall |= {"coverage": ("coverage", distance.coverage), "Jensen-Shannon, bits": ("js", distance.js)}
    yield TableBlock(
        ("measure", "distance", "floor"),
        tuple((name, number(value, 2), _floor(distance, key)) for name, (key, value) in overall.items()),
        "D1 to D4 are means of Dice, 1 for equal means. Coverage is 1 for equal users. For Jensen-Shannon 0 is equal, and a "
        "user above the floor differs. All are at equal numbers of conversations.",
    )
    yield TableBlock(
        ("dimension", "feature", distance.user, "reference", "Dice", "floor"),
        tuple(
            (dimension, name.replace("_", " "), *(number(mean, 2) for mean in distance.means[name]),
             number(distance.dice[name], 2), _floor(distance, name))
            for dimension, names in DIMENSIONS.items()
            for name in names
        ),
    )  # fmt: skip
    test = distance.classifier
    limits = f"{number(test.auc, 2)} [{number(test.low, 2)}, {number(test.high, 2)}]"
    yield Text(
        f"Classifier, on tasks it was not trained on: AUC {limits}, floor {number(test.floor, 2)} (the largest of ten halvings). "
        f"{test.sentence()}"
    )


def _floor(distance: Distance, key: str) -> str:
    middle, low, high = distance.floor[key]
    return f"{number(middle, 2)} [{number(low, 2)}, {number(high, 2)}]"


def mixture_blocks(mixture: Mixture) -> Iterator[Block]:
    """Yield the mixture of users that is nearest to the reference."""
    yield Heading(f"Mixture nearest to {mixture.reference}")
    yield TableBlock(
        ("user", "weight", "Jensen-Shannon alone, bits"),
        tuple(
            (name, f"{number(weight, 2)} [{number(low, 2)}, {number(high, 2)}]", number(mixture.alone[name], 2))
            for name, (weight, low, high) in mixture.weights.items()
        ),
        f"The mixture is at {number(mixture.js, 2)} bits. Its weights are fitted to this reference, with 95 % limits from all "
        "conversations resampled. Train with users in these shares to be near the reference.",
    )
