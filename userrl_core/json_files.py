"""JSON on disk: atomically written objects, their checksums, and lines that another process still writes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import get_ident
from typing import Any
from zlib import crc32

_CHECKSUM = "crc"


def read_json(path: Path) -> dict[str, Any] | None:
    """Return a JSON object, None where it is missing or unreadable."""
    try:
        value = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: no JSON, or no text
        return None
    return value if isinstance(value, dict) else None


def write_json(path: Path, value: object) -> None:
    """Write a JSON file atomically; it is on disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.{get_ident()}.tmp")
    with partial.open("w") as file:
        json.dump(value, file, indent=1, default=str)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def with_checksum(value: Mapping[str, Any]) -> dict[str, Any]:
    """Add the checksum of the object's values, as JSON stores them, under one more key."""
    plain: dict[str, Any] = json.loads(json.dumps(value, default=str))
    return plain | {_CHECKSUM: _checksum(plain)}


def unchanged(value: Mapping[str, Any]) -> bool | None:
    """Return True if an object still has the values that were written; None without a checksum."""
    if _CHECKSUM not in value:
        return None
    return bool(value[_CHECKSUM] == _checksum({key: item for key, item in value.items() if key != _CHECKSUM}))


def _checksum(plain: Mapping[str, Any]) -> str:
    return f"{crc32(json.dumps(plain, sort_keys=True).encode()):08x}"


class GrowingLines:
    """A JSON-lines file that another process appends to. Each iteration yields the new objects once; an incomplete
    last line waits for its end.
    """

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        """Open the file, which need not exist yet. from_end: skip its present content."""
        self.path = path
        self._at = path.stat().st_size if from_end and path.exists() else 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        try:
            with self.path.open("rb") as file:
                file.seek(self._at)
                text = file.read()
        except FileNotFoundError:
            return
        end = text.rfind(b"\n") + 1
        self._at += end
        for line in text[:end].splitlines():
            try:
                value = json.loads(line)
            except json.JSONDecodeError:
                continue  # what a killed process tore; the next process began a new line after it
            if isinstance(value, dict):
                yield value
