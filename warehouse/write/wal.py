"""The write-ahead journal of one process: appended by the caller, fsynced in groups, sealed into Parquet.

A line is in the page cache when `append` returns, so it survives kill -9 of the process; a background thread makes the
lines of the last 200 ms durable together and turns full segments into Parquet. Nothing is buffered in memory, and a
caller that outruns the sealing waits once eight full segments are unsealed.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from userrl_core.errors import LogError
from warehouse.files.layout import Segment, live_path, sealed_path, sync_folder, writer_dir
from warehouse.files.lock import FolderLock

SEGMENT_ROWS = 5_000
SEGMENT_BYTES = 64 * 2**20
LIVE_LINE_BYTES = 4 * 2**20
"""Longest line in a live file; longer ones are sealed at once. Readers keep two such buffers a thread and file list."""

SYNC_SECONDS = 0.2
MOST_UNSEALED = 8
KEEP_SEALED_LIVE_SECONDS = 2.0
"""How long a sealed segment's live file stays, so that queries already under way can still open it."""


_process = object()
"""Another one in a forked child; asking the kernel who we are would cost a turn's line a tenth of its time."""


def _forked() -> None:
    global _process
    _process = object()


os.register_at_fork(after_in_child=_forked)


@dataclass(slots=True)
class _Open:
    segment: Segment
    fd: int
    rows: int = 0
    size: int = 0
    dirty: bool = False


class Journal:
    """One writer's live files. Thread-safe; not usable in a forked child."""

    def __init__(self, run: Path, run_id: str, writer: int) -> None:
        self._run, self._run_id, self._writer = run, run_id, writer
        self._process = _process
        (run / "live").mkdir(parents=True, exist_ok=True)
        (run / "sealed").mkdir(parents=True, exist_ok=True)
        # Held while this process lives: whoever can take it knows that the writer is gone and may seal what it left.
        self._alive = FolderLock.take(writer_dir(run, writer))
        self._lock = threading.RLock()
        self._room = threading.Condition(self._lock)
        self._open: dict[str, _Open] = {}
        self._next: dict[str, int] = {}
        self._full: deque[_Open] = deque()
        self._sealed: deque[tuple[float, Path]] = deque()
        self._failure: str | None = None
        self._told = False
        self._closing = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"turn-log-{writer}", daemon=True)
        self._thread.start()

    def append(self, table: str, lines: bytes, rows: int = 1) -> None:
        """Write whole lines; on return they survive the death of this process. Raises LogError when they cannot."""
        with self._lock:
            if self._failure is not None or self._closing or _process is not self._process:
                self._refuse()
            if len(lines) > LIVE_LINE_BYTES:
                self._append_sealed(table, lines)
                return
            current = self._open.get(table)
            if current is None:
                current = self._begin(table)
            try:
                written = os.write(current.fd, lines)
                while written < len(lines):
                    written += os.write(current.fd, lines[written:])
            except OSError as error:
                self._fail(error, current)
            current.rows += rows
            current.size += len(lines)
            if not current.dirty:
                current.dirty = True
                self._wake.set()
            if current.rows >= SEGMENT_ROWS or current.size >= SEGMENT_BYTES:
                self._roll(table)

    def flush(self) -> None:
        """fsync everything appended so far."""
        with self._lock:
            if self._failure is not None:
                self._refuse()
            waiting = [*self._full, *self._open.values()]
            try:
                for item in waiting:
                    os.fdatasync(item.fd)
                    item.dirty = False
            except OSError as error:
                self._fail(error)

    def close(self) -> None:
        """Seal everything and let go. After a failure nothing is sealed: the live files stay for the compactor.

        Raises LogError for a failure that no call has told yet.
        """
        with self._lock:
            if self._closing:
                return
            self._closing = True
            if self._failure is None:
                for table in list(self._open):
                    self._roll(table, wait=False)
            self._wake.set()
        if _process is self._process:
            self._thread.join()
        for item in [*self._full, *self._open.values()]:
            with contextlib.suppress(OSError):
                os.close(item.fd)
        for _, path in self._sealed:
            path.unlink(missing_ok=True)
        self._alive.release()
        if self._failure is not None and not self._told:
            self._refuse()

    def _append_sealed(self, table: str, lines: bytes) -> None:
        from warehouse.files.seal import seal_lines

        number = self._next.get(table, 1)
        self._next[table] = number + 1
        segment = Segment(self._run_id, table, self._writer, number)
        try:
            seal_lines(lines, sealed_path(self._run, segment), table)
        except Exception as error:  # noqa: BLE001 (told to the caller as LogError)
            self._fail(error)

    def _begin(self, table: str) -> _Open:
        number = self._next.get(table, 1)
        segment = Segment(self._run_id, table, self._writer, number)
        try:
            fd = os.open(live_path(self._run, segment), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
            sync_folder(self._run / "live")
        except OSError as error:
            self._fail(error)
        self._next[table] = number + 1
        self._open[table] = _Open(segment, fd)
        return self._open[table]

    def _roll(self, table: str, *, wait: bool = True) -> None:
        self._full.append(self._open.pop(table))
        self._wake.set()
        while wait and len(self._full) >= MOST_UNSEALED and self._failure is None:
            self._room.wait()

    def _fail(self, error: Exception, current: _Open | None = None, *, told: bool = True) -> NoReturn:
        """Remember the failure, cut a half-written line off, and raise the one sentence."""
        if current is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(current.fd, current.size)
        self._failure = (
            f"The turn log cannot write to {self._run}: {getattr(error, 'strerror', None) or error}. "
            "Free space or fix the folder, then run the same deployment again; what was logged so far is kept."
        )
        self._told = self._told or told
        self._room.notify_all()
        raise LogError(self._failure) from error

    def _refuse(self) -> NoReturn:
        if self._failure is not None:
            self._told = True
            raise LogError(self._failure)
        if self._closing:
            raise LogError("This turn log is closed; open a new one to write more.")
        raise LogError("This turn log was opened in another process; open one of its own after a fork.")

    def _work(self) -> None:
        while True:
            self._wake.wait()
            if not self._closing:
                time.sleep(SYNC_SECONDS)
            self._wake.clear()
            try:
                self._sync()
                self._seal_full()
            except Exception as error:  # noqa: BLE001
                # Whatever it is, the caller must hear of it: a thread that died silently would leave `append` waiting.
                with self._lock, contextlib.suppress(LogError):
                    self._fail(error, told=False)
            self._drop_sealed()
            with self._lock:
                if self._closing and (not self._full or self._failure is not None):
                    return

    def _sync(self) -> None:
        with self._lock:
            dirty = [item for item in self._open.values() if item.dirty]
            for item in dirty:
                item.dirty = False
            # dup: the caller may roll and the sealing may close the descriptor while the fsync runs without the lock.
            descriptors = [os.dup(item.fd) for item in dirty]
        for fd in descriptors:
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)

    def _seal_full(self) -> None:
        from warehouse.files.seal import seal

        while True:
            with self._lock:
                if not self._full or self._failure is not None:
                    return
                item = self._full[0]
            os.fdatasync(item.fd)
            source = live_path(self._run, item.segment)
            seal(source, sealed_path(self._run, item.segment), item.segment.table)
            with self._lock:
                self._full.popleft()
                self._room.notify_all()
            os.close(item.fd)
            self._sealed.append((time.monotonic(), source))

    def _drop_sealed(self) -> None:
        while self._sealed and time.monotonic() - self._sealed[0][0] > KEEP_SEALED_LIVE_SECONDS:
            self._sealed.popleft()[1].unlink(missing_ok=True)
