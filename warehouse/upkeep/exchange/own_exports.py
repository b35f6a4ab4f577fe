"""Files that `conversations` wrote, read back into a warehouse.

Scores, rewards, token ids and credits are the same, under the same run id; trajectories get new ids. A file is read
conversation by conversation. Either all of its runs are stored, or none.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from userrl_core.chats.stream import items, value_of
from userrl_core.chats.values import NO_VALUE, BrokenFile, broken, count, mapping, sequence
from userrl_core.errors import ConfigError
from userrl_core.user_path import open_file
from warehouse import schema
from warehouse.files.encode import fitting
from warehouse.files.layout import claim, run_dir, run_folders
from warehouse.files.runs import IMPORTED, read_run, register_copy
from warehouse.upkeep.exchange.conversations import RUN_COLUMNS, ExportedConversation
from warehouse.upkeep.exchange.imported import FIELD_OF, NOT_STORED
from warehouse.upkeep.exchange.staging import staging
from warehouse.write.turn_log import PLACE, TurnLog
from warehouse.write.wal import SEGMENT_ROWS

OWN = ("traj_id", "run_id", "incarnation", "writer", "seq", "logged_at")
"""Columns that a row gets anew."""
LINE = ("messages", "score", "userrl")
COLUMNS = (*LINE, "run_id", "gym", "task_id", "policy", "rewards", "__index_level_0__")
"""The fields of a line and the columns of a Parquet file. Those besides ``userrl`` repeat it for other tools, and the last
one is the index that pandas adds.
"""
ORIGIN = "imported-from"
"""The file of a run's folder with the hash of the imported file."""
AT_ONCE = 64
"""Conversations of a Parquet file that are read at once."""

LocatedConversation = tuple[str, ExportedConversation]
"""A conversation with its place in the file."""


def read_conversations(path: Path) -> Iterator[LocatedConversation]:
    """Yield the conversations of a file of `write_messages` or `write_parquet`. Raises ConfigError for any other file."""
    try:
        with open_file(path) as file:
            packed = file.read(4) == b"PAR1"
        empty = True
        for where, value in _packed(path) if packed else items(path):
            empty = False
            yield where, _conversation(where, value)
    except OSError as error:
        raise ConfigError("file.unreadable", f"{path} cannot be read: {error.strerror or error}.") from error
    if empty:
        broken(str(path), "the file has no conversation")


def _packed(path: Path) -> Iterator[tuple[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if "userrl" not in names:
                broken(
                    str(path), "userrl did not write this Parquet file. Save its rows as JSON lines, and import those"
                )
            _only(COLUMNS, dict.fromkeys(names, True), str(path), "the file")
            read = [name for name in LINE if name in names]
            for batch in file.iter_batches(AT_ONCE, columns=read):
                for row in batch.to_pylist():
                    number += 1
                    where = f"{path}, row {number}"
                    yield where, {**row, "userrl": value_of(row["userrl"].encode(), where)}
    except BrokenFile:
        raise
    except (pa.ArrowException, OSError, ValueError, AttributeError, IndexError) as error:
        broken(
            f"{path}, after row {number}", f"it contains no conversations that userrl wrote ({type(error).__name__})"
        )


def _conversation(where: str, value: Mapping[str, Any]) -> ExportedConversation:
    parts = mapping(value.get("userrl"), where, "userrl")
    _only(LINE, value, where, "the line")
    _only([field.name for field in fields(ExportedConversation)], parts, where, "userrl")
    run, trajectory = (mapping(parts.get(name), where, name) for name in ("run", "trajectory"))
    turns, calls = (
        [mapping(row, where, f"a row of {name}") for row in sequence(parts.get(name), where, name)]
        for name in ("turns", "calls")
    )
    texts = [run.get("run_id"), *(trajectory.get(name) for name in ("gym", "task_id", "phase"))]
    if not all(isinstance(text, str) for text in texts) or not isinstance(trajectory.get("admitted"), bool):
        broken(where, "it is not a conversation that userrl wrote")
    if [turn.get("turn") for turn in turns] != list(range(1, len(turns) + 1)):
        broken(where, "its turns are not numbered from 1")
    task, file = (mapping(parts.get(name) or {}, where, name) for name in ("task", "file"))
    for table, name, rows in (
        ("runs", "the run", [run]),
        ("trajectories", "the trajectory", [trajectory]),
        ("turns", "a turn", turns),
        ("model_calls", "a model call", calls),
        ("tasks", "the task", [task]),
    ):
        for row in rows:
            _only(schema.types(table), row, where, name)
    for name, rows in (("a turn", turns), ("a model call", calls)):
        for row in rows:
            for column in ("run_id", "traj_id", *PLACE):
                if row.get(column) not in (None, trajectory.get(column)):
                    broken(where, f"{column} of {name} is not its trajectory's")
    conversation = ExportedConversation(run, trajectory, turns, calls, task, _about_file(where, file))
    if "score" in value and value["score"] != trajectory.get("score"):
        broken(where, "its score is not the score in userrl.trajectory, which is stored. Change both")
    if not _is_chat_of(value.get("messages"), conversation):
        broken(where, "its messages are not those in userrl, which are stored. Change both")
    return conversation


def _only(known: Collection[str], values: Mapping[str, Any], where: str, name: str) -> None:
    """Raise BrokenFile for a field with a value that is not read."""
    if unknown := next((key for key, value in values.items() if key not in known and value not in NO_VALUE), None):
        broken(where, f"{name} has the field '{unknown}', which no export of userrl has. Remove it")


def _about_file(where: str, file: Mapping[str, Any]) -> Mapping[str, Any]:
    _only(FIELD_OF, file, where, "userrl.file")
    for kind, values in file.items():
        for key, value in mapping(values, where, kind).items():
            if kind == NOT_STORED and count(value, where, f"{kind}.{key}", maximum=2**63 - 1) is None:
                broken(where, f"{kind}.{key} is not a number")
    return file


def _is_chat_of(messages: Any, conversation: ExportedConversation) -> bool:
    """Return whether messages are the chat of the rows, or are not given.

    Earlier exports have a message of the user after every reply, also an empty one, and some have no turns left.
    """
    if messages is None:
        return True
    try:
        chats = [conversation.messages]
        for turns_left in (True, False):
            chat = conversation.opening
            for turn in conversation.turns:
                observation = conversation.shown(turn) if turns_left else turn["observation"]
                chat.append({"role": "assistant", "content": turn["message"] or ""})
                chat.append({"role": "user", "content": observation or ""})
            chats.append(chat)
        written = [(message["role"], message["content"]) for message in messages]
        return written in [[(message["role"], message["content"]) for message in chat] for chat in chats]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return False


def bring_in(root: Path, items: Iterable[LocatedConversation], *, digest: str = "") -> dict[str, int]:
    """Store conversations as runs of this warehouse, under their own run ids. Return the number of conversations per run.

    digest: hash of the file. A run that came from the same file is left as it is. Raises ConfigError for a run that exists
    already and came from elsewhere, and for a broken conversation; then nothing is stored.
    """
    counts: Counter[str] = Counter()
    with staging(root) as staging_folder:
        arrivals = _Arrivals(root, staging_folder, digest)
        try:
            for where, item in items:
                arrivals.add(where, item)
                counts[item.run["run_id"]] += 1
        finally:
            arrivals.close()
    return dict(counts)


def already(root: Path, digest: str) -> set[str]:
    """Return the runs of this warehouse that came from the file with this hash."""
    folders = [folder for folder in run_folders(root) if (folder / ORIGIN).is_file()]
    return {folder.name.removeprefix("run=") for folder in folders if (folder / ORIGIN).read_text() == digest}


@dataclass(slots=True)
class _Arrivals:
    """The runs of one file, written into a staging folder. One run's log is open at a time."""

    root: Path
    staging_folder: Path
    digest: str
    run: str = ""
    log: TurnLog | None = None

    def add(self, where: str, item: ExportedConversation) -> None:
        """Write a conversation, unless its run came from the same file before."""
        if (run := str(item.run["run_id"])) != self.run:
            self.close()
            self.run = run
            self.log = self._opened(where, item.run)
        if self.log is not None:
            _write(self.log, where, item)

    def close(self) -> None:
        """Close the log of the present run."""
        if self.log is not None:
            self.log.close()
            self.log = None

    def _opened(self, where: str, run: Mapping[str, Any]) -> TurnLog | None:
        target = run_dir(self.root, self.run)
        if (target / "run.json").exists():
            origin = target / ORIGIN
            if self.digest and origin.is_file() and origin.read_text() == self.digest:
                return None
            raise ConfigError(
                "import.run_exists", f"Run {self.run} is already in this warehouse. Nothing was imported."
            )
        folder = self.staging_folder / target.name
        row = read_run(folder)
        if row is None:
            types = {name: kind for name, kind in schema.types("runs").items() if name in RUN_COLUMNS}
            # Kind imported, or the newest copy of another home's run would be `latest` here.
            row = register_copy(self.root, folder, self.run, {**_fitted(types, run, where, "run"), "kind": IMPORTED})
            (folder / ORIGIN).write_text(self.digest)
        return TurnLog(folder, row, claim(folder / "incarnations"), claim(folder / "writers"), SEGMENT_ROWS)


def _write(log: TurnLog, where: str, item: ExportedConversation) -> None:
    trajectory = _row("trajectories", item.trajectory, where, "trajectory")
    turns = [_row("turns", turn, where, "turn", PLACE) for turn in item.turns]
    for number, turn in enumerate(turns, 1):
        if below := next((token for token in turn["token_ids"] or () if (token or 0) < 0), None):
            broken(where, f"turn {number} has the token id {below}, which no vocabulary has")
    calls = [_row("model_calls", call, where, "model call") for call in item.calls]
    credited = [(turn.pop("shaped"), turn.pop("advantage")) for turn in turns]
    try:
        payload = json.loads(item.task.get("payload") or "{}")
    except (TypeError, ValueError, RecursionError):
        broken(where, "its task is not JSON")
    for kind, values in item.file.items():
        log.event(kind, **{FIELD_OF[kind]: values})
    traj_id = log.imported(trajectory, turns, calls, mapping(payload, where, "the task"))
    if credited and all(shaped is not None and value is not None for shaped, value in credited):
        shaped, advantages = zip(*credited, strict=True)
        log.credits(traj_id, shaped, advantages)


def _row(table: str, values: Mapping[str, Any], where: str, name: str, without: tuple[str, ...] = ()) -> dict[str, Any]:
    types = {column: kind for column, kind in schema.types(table).items() if column not in (*OWN, *without)}
    return _fitted(types, values, where, name)


def _fitted(types: Mapping[str, str], values: Mapping[str, Any], where: str, name: str) -> dict[str, Any]:
    row, misfits = fitting(types, values)
    if misfits:
        column = next((name for name in types if values.get(name) is not None and row[name] != values[name]), "a value")
        broken(where, f"{column} of a {name} does not fit its column")
    for column, value in row.items():
        if isinstance(value, float) and not math.isfinite(value):
            broken(where, f"{column} of a {name} is not a finite number")
    return row
