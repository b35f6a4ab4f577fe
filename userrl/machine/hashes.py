"""Hashes of files and folders."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

SETTLED_NS = 1_000_000_000
"""Age of a file's last change, in nanoseconds, from which its times tell two contents apart."""


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def path_hash(path: Path, without: str = "") -> str:
    """Return the SHA-256 of a file's bytes, or of the names and hashes of all files in a folder.

    It does not depend on the folder's place. Hidden files and Python's caches do not count. A file is read once per process
    while its times and its size stay the same. without: a file of the folder that does not count either. Raises OSError for an
    unreadable file.
    """
    if path.is_file():
        return _read_once(path)
    files = (file for file in folder_files(path) if file != path / without)
    lines = (f"{_read_once(file)} {file.relative_to(path).as_posix()}\n" for file in files)
    digest = hashlib.sha256()
    for line in lines:
        digest.update(os.fsencode(line))
    return digest.hexdigest()


def folder_files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and its subfolders by name, without hidden ones and Python's caches. Links are followed."""
    visited: set[str] = set()
    for name, folders, files in os.walk(folder, followlinks=True):
        real_path = os.path.realpath(name)
        if real_path in visited:  # a link to a folder above it
            folders.clear()
            continue
        visited.add(real_path)
        folders[:] = sorted(filter(_counts, folders))
        yield from (file for filename in sorted(filter(_counts, files)) if (file := Path(name, filename)).is_file())


def _counts(name: str) -> bool:
    return not name.startswith(".") and name != "__pycache__" and not name.endswith(".pyc")


def _read_once(path: Path) -> str:
    stat = path.stat()
    if time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) < SETTLED_NS:
        return file_hash(path)
    return _hash_as_of(path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)


@lru_cache(maxsize=100_000)
def _hash_as_of(path: Path, *times: int) -> str:
    return file_hash(path)
