"""The write-ahead log of one process: appended by the caller, fsynced in groups, sealed into Parquet.

A line is in the page cache when `append` returns, so it survives kill -9 of the process. A background thread makes
the lines of the last 200 ms durable together and turns full segments into Parquet. Nothing is buffered in memory. A
caller that is faster than the sealing waits once eight full segments are unsealed.
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
from userrl_core.replaced_file import sync
from warehouse.files.layout import LIVE_LINE_BYTES, Segment, live_path, sealed_path, writer_dir
from warehouse.files.lock import FolderLock
from warehouse.files.seal import seal

SEGMENT_ROWS = 5_000
SEGMENT_BYTES = 64 * 2**20
SYNC_SECONDS = 0.2
MAX_UNSEALED = 8
KEEP_SEALED_LIVE_SECONDS = 2.0
"""Seconds that a sealed segment's live file stays, so that running queries can still open it."""


_process = object()
"""Replaced in a forked child. Asking the kernel for the process id would add a tenth to the time of a turn's line."""


def _forked() -> None:
    global _process
    _process = object()


os.register_at_fork(after_in_child=_forked)


@dataclass(slots=True)
class _LiveFile:
    segment: Segment
    fd: int
    rows: int = 0
    size: int = 0
    dirty: bool = False


class WriteAheadLog:
    """One writer's live files. Thread-safe; not usable in a forked child."""

    def __init__(self, run: Path, run_id: str, writer: int, segment_rows: int = SEGMENT_ROWS) -> None:
        self._run, self._run_id, self._writer = run, run_id, writer
        self._segment_rows = segment_rows
        self._process = _process
        (run / "live").mkdir(parents=True, exist_ok=True)
        (run / "sealed").mkdir(parents=True, exist_ok=True)
        # Held while this process lives: whoever can take it knows that the writer is gone and may seal what it left.
        self._liveness = FolderLock.take(writer_dir(run, writer))
        self._lock = threading.RLock()
        self._room = threading.Condition(self._lock)
        self._open: dict[str, _LiveFile] = {}
        self._next: dict[str, int] = {}
        self._full: deque[_LiveFile] = deque()
        self._sealed: deque[tuple[float, Path]] = deque()
        self._failure: str | None = None
        self._reported = False
        self._closing = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"turn-log-{writer}", daemon=True)
        self._thread.start()

    def append(self, table: str, lines: bytes, rows: int = 1) -> None:
        """Write whole lines; on return they survive the death of this process. Raises LogError when they cannot be written."""
        with self._lock:
            if self._failure is not None or self._closing or _process is not self._process:
                self._refuse()
            if len(lines) > LIVE_LINE_BYTES:
                self._append_sealed(table, lines)
                return
            live = self._open.get(table) or self._begin(table)
            try:
                bytes_written = os.write(live.fd, lines)
                # A signal or a nearly full disk may cut a write short.
                while bytes_written < len(lines):
                    bytes_written += os.write(live.fd, lines[bytes_written:])
            except OSError as error:
                self._fail(error, live)
            live.rows += rows
            live.size += len(lines)
            if not live.dirty:
                live.dirty = True
                self._wake.set()
            if live.rows >= self._segment_rows or live.size >= SEGMENT_BYTES:
                self._roll(table)

    def flush(self) -> None:
        """Fsync everything appended so far."""
        with self._lock:
            if self._failure is not None:
                self._refuse()
            try:
                for live in (*self._full, *self._open.values()):
                    os.fdatasync(live.fd)
                    live.dirty = False
            except OSError as error:
                self._fail(error)

    def close(self) -> None:
        """Seal everything and release. After a failure nothing is sealed: the live files stay for the compactor.

        Raises LogError for a failure that no call has reported yet.
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
        for live in (*self._full, *self._open.values()):
            with contextlib.suppress(OSError):
                os.close(live.fd)
        for _, path in self._sealed:
            path.unlink(missing_ok=True)
        self._liveness.release()
        if self._failure is not None and not self._reported:
            self._refuse()

    def _segment(self, table: str) -> Segment:
        number = self._next.get(table, 1)
        self._next[table] = number + 1
        return Segment(self._run_id, table, self._writer, number)

    def _append_sealed(self, table: str, lines: bytes) -> None:
        # After all earlier rows: an export takes what follows a writer's last exported row.
        while self._failure is None and (table in self._open or self._full):
            if table in self._open:
                self._roll(table, wait=False)
            self._room.wait()
        if self._failure is not None:
            self._refuse()
        try:
            seal(lines, sealed_path(self._run, self._segment(table)), table)
        except Exception as error:  # noqa: BLE001 (raised to the caller as LogError)
            self._fail(error)

    def _begin(self, table: str) -> _LiveFile:
        segment = self._segment(table)
        try:
            fd = os.open(live_path(self._run, segment), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
            # The folder too, or a loss of power could take the new file's name.
            sync(self._run / "live")
        except OSError as error:
            self._fail(error)
        self._open[table] = _LiveFile(segment, fd)
        return self._open[table]

    def _roll(self, table: str, *, wait: bool = True) -> None:
        self._full.append(self._open.pop(table))
        self._wake.set()
        # A caller that is faster than the sealing waits here.
        while wait and len(self._full) >= MAX_UNSEALED and self._failure is None:
            self._room.wait()

    def _fail(self, error: Exception, live: _LiveFile | None = None, *, reported: bool = True) -> NoReturn:
        """Remember the failure, remove an incomplete line, and raise one sentence."""
        if live is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(live.fd, live.size)
        self._failure = (
            f"The turn log cannot write to {self._run}: {getattr(error, 'strerror', None) or error}. "
            "Free space or correct the folder, then run the same deployment again. What was logged so far is kept."
        )
        self._reported = self._reported or reported
        self._room.notify_all()
        raise LogError("log.cannot_write", self._failure) from error

    def _refuse(self) -> NoReturn:
        if self._failure is not None:
            self._reported = True
            raise LogError("log.cannot_write", self._failure)
        if self._closing:
            raise LogError("log.misused", "This turn log is closed. Open a new one to write more.")
        raise LogError("log.misused", "This turn log was opened in another process. After a fork, open a new one.")

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
                # Whatever it is, the caller must learn of it: a thread that died silently would leave `append` waiting.
                with self._lock, contextlib.suppress(LogError):
                    self._fail(error, reported=False)
            self._drop_sealed()
            with self._lock:
                if self._closing and (not self._full or self._failure is not None):
                    return

    def _sync(self) -> None:
        with self._lock:
            dirty = [live for live in self._open.values() if live.dirty]
            # Before the fsync, so that a line written during it marks its file again.
            for live in dirty:
                live.dirty = False
            # dup: the caller may roll and the sealing may close the descriptor while the fsync runs without the lock.
            descriptors = [os.dup(live.fd) for live in dirty]
        for fd in descriptors:
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)

    def _seal_full(self) -> None:
        while True:
            with self._lock:
                if not self._full or self._failure is not None:
                    return
                # It stays in the queue until it is sealed, where `flush` and `close` find it.
                live = self._full[0]
            os.fdatasync(live.fd)
            source = live_path(self._run, live.segment)
            seal(source.read_bytes(), sealed_path(self._run, live.segment), live.segment.table)
            with self._lock:
                self._full.popleft()
                self._room.notify_all()
            os.close(live.fd)
            self._sealed.append((time.monotonic(), source))

    def _drop_sealed(self) -> None:
        while self._sealed and time.monotonic() - self._sealed[0][0] > KEEP_SEALED_LIVE_SECONDS:
            self._sealed.popleft()[1].unlink(missing_ok=True)
