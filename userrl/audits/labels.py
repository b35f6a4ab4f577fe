"""Conversations as scanners see them, and labels in the table ``labels``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from userrl.machine.home import warehouse_dir
from warehouse import TurnLog, Warehouse, open_warehouse

YES, NO = "yes", "no"
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


@dataclass(frozen=True, slots=True)
class LabelWriter:
    """Appends the labels of one labeller to a label set. A label is durable when ``write`` returns."""

    log: TurnLog
    name: str
    source: str
    labeller: str

    def write(self, labels: Sequence[Label]) -> None:
        """Append labels."""
        self.log.labels(
            {
                "traj_id": label.traj_id,
                "turn": label.turn,
                "name": self.name,
                "value": label.value,
                "source": self.source,
                "labeller": self.labeller,
                "reason": label.reason or None,
                "price": label.price,
            }
            for label in labels
        )


def added_log(run_id: str) -> TurnLog:
    """Open the log of a stored run for additions. They begin no new attempt of the run."""
    with open_warehouse(warehouse_dir(), run=run_id) as warehouse:
        newest = warehouse.sql("SELECT max(incarnation) FROM trajectories_all WHERE run_id = $run", run=run_id)
        return TurnLog.open(warehouse_dir(), run_id, join=newest.fetchall()[0][0])


@contextmanager
def label_writer(run_id: str, name: str, *, source: str, labeller: str) -> Iterator[LabelWriter]:
    """Open the log of a run for labels."""
    with added_log(run_id) as log:
        yield LabelWriter(log, name, source, labeller)


def store_labels(run_id: str, name: str, labels: Sequence[Label], *, source: str, labeller: str) -> None:
    """Append labels to the run."""
    with label_writer(run_id, name, source=source, labeller=labeller) as writer:
        writer.write(labels)
