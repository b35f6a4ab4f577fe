"""The plan of a study with people: persons x conversations in a Latin square over tasks and agents.

A person who arrives takes a seat of the square, and has the conversations of its row. The state is in one file, which is written
before a person sees the seat. So it survives a restart, people may arrive at the same time, and a person who comes back
continues. A seat whose person was away too long goes to the next arrival when no seat is free, with its whole row. The
conversations that were held on it stay in the warehouse.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from curricula.validation import validated
from curricula.yaml_files import read, stem
from userrl_core.errors import ConfigError
from userrl_core.json_files import read_json, write_json
from userrl_core.seeding import content_hash, derive_seed
from userrl_core.settings import FolderName, Settings
from userrl_people.others import Side


class PeoplePlan(Settings):
    """A study with people, written down before the first person arrives."""

    name: FolderName
    """Name of the study."""

    gym: str
    """The gym."""

    side: Side = "user"
    """The part of the people: user or agent."""

    others: tuple[str, ...] = Field(default=("rules",), min_length=1)
    """The other sides, which are the agents if people are the users: rules, served, or run:ID for a run's checkpoint."""

    tasks: PositiveInt = 12
    """Number of tasks, drawn by the seed."""

    split: str = "test"
    """The tasks' split."""

    persons: PositiveInt = 24
    """Number of persons. Many persons with few conversations each say more about other people than the reverse."""

    conversations: PositiveInt = 2
    """Conversations of each person, on different tasks."""

    away_minutes: PositiveFloat = 60.0
    """Minutes without a sign of a person after which the seat may go to another one."""

    seed: int = 0
    """Seed of the tasks and of their order."""

    @model_validator(mode="after")
    def _tasks_suffice(self) -> PeoplePlan:
        if self.conversations > self.tasks:
            raise ConfigError(
                "people.bad_plan",
                f"A person has {self.conversations} conversations on different tasks, and there are {self.tasks} tasks. "
                "Raise tasks.",
            )
        return self

    @property
    def hash(self) -> str:
        """The hash of everything in the plan."""
        return content_hash(self.model_dump(mode="json"))[:16]

    def drawn(self, ids: Sequence[str]) -> list[str]:
        """Return the study's tasks of all the gym's task ids, in the order of the square. Raises ConfigError for too few."""
        if len(ids) < self.tasks:
            raise ConfigError(
                "people.bad_plan",
                f"Gym '{self.gym}' has {len(ids)} {self.split} tasks. Set tasks to {len(ids)} or less.",
            )
        return random.Random(derive_seed("people-plan", self.name, self.seed)).sample(sorted(ids), self.tasks)

    def cell(self, seat: int, position: int) -> tuple[int, int]:
        """Return the numbers of the task and of the other side in a seat's conversation.

        The other side alternates. The task moves on by one with every group of seats that meets all other sides, and with
        every conversation. With persons = tasks x others each pair of both is met once at each place.
        """
        others = len(self.others)
        return (seat // others + position) % self.tasks, (seat + position) % others


class Seat(BaseModel):
    """A taken seat. code: the person's code. seen: Unix seconds of the last sign. done: ids of the conversations held."""

    model_config = ConfigDict(extra="forbid")

    number: int
    code: str
    seen: float
    done: list[int] = Field(default_factory=list)
    withdrawn: bool = False


class _State(BaseModel):
    model_config = ConfigDict(extra="forbid")

    hash: str
    seats: list[Seat] = Field(default_factory=list)
    """The taken seats."""
    left: list[Seat] = Field(default_factory=list)
    """Seats of persons who were away too long or withdrew."""


@dataclass(frozen=True, slots=True)
class Next:
    """A person's next conversation: its position from 0, and the numbers of the task and the other side."""

    seat: int
    position: int
    task: int
    other: int


class Seats:
    """The seats of a plan and who has them. Thread-safe. Only one page at a time may use the file."""

    def __init__(self, plan: PeoplePlan, path: Path) -> None:
        self.plan, self._path = plan, path
        self._lock = threading.Lock()
        written = read_json(path)
        if written is None and path.exists():
            raise ConfigError("file.unreadable", f"{path} is not readable. Restore it, or give the study another name.")
        try:
            self._state = _State(hash=plan.hash) if written is None else _State.model_validate(written)
        except ValueError as error:
            raise ConfigError(
                "file.unreadable", f"{path} holds no seats. Restore it, or give the study another name."
            ) from error
        if self._state.hash != plan.hash:
            raise ConfigError(
                "people.bad_plan",
                f"Study '{plan.name}' was changed after its first person arrived. Give the changed plan another name.",
            )

    def arrive(self, now: float | None = None) -> str:
        """Give a new person a seat and return the person's code. Raises ConfigError if the study is full."""
        now = time.time() if now is None else now
        with self._lock:
            code = secrets.token_hex(4)
            self._sit(code, now)
            return code

    def held(self, code: str) -> int:
        """Return the number of conversations that a person has held on the present seat, 0 if it was given away.

        Changes nothing, so that a page may call it. Raises ConfigError for an unknown code and for a person who withdrew.
        """
        with self._lock:
            seat = self._known(code)
            return 0 if seat is None else len(seat.done)

    def next(self, code: str, now: float | None = None) -> Next | None:
        """Return the person's next conversation, None after the last. A person whose seat was given away gets another.

        Raises ConfigError for an unknown code, for a person who withdrew, and if no seat is left.
        """
        now = time.time() if now is None else now
        with self._lock:
            seat = self._known(code) or self._sit(code, now)
            seat.seen = now
            self._write()
            if (position := len(seat.done)) >= self.plan.conversations:
                return None
            return Next(seat.number, position, *self.plan.cell(seat.number, position))

    def done(self, code: str, at: Next, traj_id: int, now: float | None = None) -> None:
        """Note a held conversation. It counts for its seat only while the person has that seat and place."""
        with self._lock:
            seat = self._of(code)
            if seat is not None and (seat.number, len(seat.done)) == (at.seat, at.position):
                seat.done.append(traj_id)
                seat.seen = time.time() if now is None else now
                self._write()

    def withdraw(self, code: str) -> None:
        """Free the seat of a person who withdraws."""
        with self._lock:
            if (seat := self._of(code)) is not None:
                self._state.seats.remove(seat)
                self._state.left.append(seat.model_copy(update={"withdrawn": True}))
                self._write()

    def progress(self) -> dict[str, Any]:
        """Return the numbers of seats, persons and conversations so far."""
        with self._lock:
            seats, plan = self._state.seats, self.plan
            return {
                "persons": plan.persons,
                "arrived": len(seats) + len(self._state.left),
                "finished": sum(len(seat.done) >= plan.conversations for seat in seats),
                "left": len(self._state.left),
                "conversations": sum(len(seat.done) for seat in seats),
                "planned": plan.persons * plan.conversations,
            }

    def _of(self, code: str) -> Seat | None:
        return next((seat for seat in self._state.seats if seat.code == code), None)

    def _known(self, code: str) -> Seat | None:
        """Return a person's seat, None if it was given away. Raises ConfigError for nobody's code. The caller holds the lock."""
        seat = self._of(code)
        if seat is None and not any(
            former_seat.code == code and not former_seat.withdrawn for former_seat in self._state.left
        ):
            raise ConfigError("people.unknown_code", f"Nobody in this study has the code '{code}'.")
        return seat

    def _sit(self, code: str, now: float) -> Seat:
        """Take the first free seat, or the one whose person is away longest. The caller holds the lock."""
        occupied = {seat.number for seat in self._state.seats}
        number = next((free for free in range(self.plan.persons) if free not in occupied), None)
        if number is None:
            away = [
                seat
                for seat in self._state.seats
                if len(seat.done) < self.plan.conversations and now - seat.seen > 60 * self.plan.away_minutes
            ]
            if not away:
                raise ConfigError("people.study_full", f"All {self.plan.persons} seats of this study are taken.")
            gone = min(away, key=lambda seat: seat.seen)
            self._state.seats.remove(gone)
            self._state.left.append(gone)
            number = gone.number
        seat = Seat(number=number, code=code, seen=now)
        self._state.seats.append(seat)
        self._write()
        return seat

    def _write(self) -> None:
        write_json(self._path, self._state.model_dump())


def load_people_plan(path: str | Path) -> PeoplePlan:
    """Load a plan from its YAML file. Raises ConfigError for an unknown key and for a plan that cannot be held."""
    values = {"name": stem(Path(path)), **read(Path(path))}
    return validated(PeoplePlan, values, f"study '{values['name']}'")
