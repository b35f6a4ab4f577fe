"""The journal file of a study, one operation a line. Each line has a checksum, so that damage is named and never read.

The file stays Optuna's: other programs read the lines, which have one more key. Lines without a checksum (of an earlier version or
of another program) are taken as they are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

from userrl_core.errors import ConfigError
from userrl_core.json_files import unchanged, with_checksum

DAMAGE = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""Errors of Optuna about an operation that it cannot apply."""


def open_journal(path: Path) -> JournalStorage:
    """Open a study's journal, or begin it. Raises ConfigError if a line is damaged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    backend = _Journal(path)
    if _is_cut(path):
        backend.mend()
    try:
        return JournalStorage(backend)
    except DAMAGE as error:
        raise _damaged(path, backend.line) from error


class _Journal(JournalFileBackend):
    def __init__(self, path: Path) -> None:
        # The symlink lock, Optuna's default, is left behind by kill -9; an O_EXCL lock with a grace period is taken over.
        super().__init__(str(path), lock_obj=JournalFileOpenLock(str(path)))
        self.path, self.line = path, 0
        self._starts = [0]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append operations with their checksums, each on a line of its own. They are on disk when this returns."""
        text = "".join(json.dumps(with_checksum(log), separators=(",", ":")) + "\n" for log in logs)
        with self._alone(), self.path.open("rb+") as file:
            _end_last_line(file, self._starts[-1])
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """Yield the operations from a line on. A last line without an end was cut off by a kill, or is being written."""
        with self.path.open("rb") as file:
            file.seek(self._starts[log_number_from])
            for self.line, line in enumerate(file, log_number_from + 1):
                if not line.endswith(b"\n"):
                    return
                if len(self._starts) == self.line:
                    self._starts.append(self._starts[-1] + len(line))
                yield self._operation(line)

    def _operation(self, line: bytes) -> dict[str, Any]:
        try:
            operation = json.loads(line)
        except ValueError as error:
            raise _damaged(self.path, self.line) from error
        if not isinstance(operation, dict) or unchanged(operation) is False:
            raise _damaged(self.path, self.line)
        return operation

    def mend(self) -> None:
        """Remove or end a last line without an end, once no other process writes it."""
        with self._alone(), self.path.open("rb+") as file:
            _end_last_line(file, 0)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()


def _is_cut(path: Path) -> bool:
    """Return whether the last line of a file has no end."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        return file.read() not in (b"", b"\n")


def _end_last_line(file: BinaryIO, start: int) -> None:
    """Remove a last line that a kill cut off, and give a whole one its end: the next would be written into it.

    start: the offset of a line. The file is left at its end.
    """
    file.seek(start)
    rest = file.read()
    if last := rest[rest.rfind(b"\n") + 1 :]:
        length = _whole_length(last)
        file.seek(start + len(rest) - len(last) + length)
        file.truncate()
        file.write(b"\n" if length else b"")


def _whole_length(line: bytes) -> int:
    """Return the length of the operation at the beginning of a line; 0 if it is cut off."""
    try:
        operation, end = json.JSONDecoder().raw_decode(line.decode())
    except ValueError:
        return 0
    return len(line.decode()[:end].encode()) if isinstance(operation, dict) and unchanged(operation) is not False else 0


def _damaged(path: Path, line: int) -> ConfigError:
    return ConfigError(
        "sweep.damaged_journal",
        f"Line {line} of {path} is damaged, so this study cannot be read. Restore the file from a copy, or begin the next edition "
        'of the sweep with `--fresh`. The trials\' runs are unharmed: `userrl sql "select * from trials"` lists them.',
    )
