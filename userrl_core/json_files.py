"""JSON: text for other programs, atomically written objects with checksums, and lines that a process appends."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

from userrl_core.replaced_file import replacing, sync

_CHECKSUM = "crc"
_HALVES = re.compile("[\ud800-\udfff]")
"""Halves of characters, which UTF-8 does not encode."""


def json_text(value: object, *, indent: int | None = None, default: Callable[[Any], Any] = str) -> str:
    """Return JSON that every program reads; `portable` says how a value is written that JSON does not have.

    All JSON that leaves the program is written here: answers to ``--json``, of servers, and in files for others.
    """
    text = json.dumps(portable(value), indent=indent, ensure_ascii=False, default=lambda item: portable(default(item)))
    return _HALVES.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def portable(value: Any) -> Any:
    """Return a value in terms of JSON: null for a number that is not finite, text for a whole number beyond 64 bits,
    hexadecimal digits for bytes. A value of a type that JSON does not have stays.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, Mapping):
        return {_key(key): portable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [portable(item) for item in value]
    return value.hex() if isinstance(value, (bytes, bytearray)) else value


def _key(key: object) -> Any:
    return key if isinstance(key, (str, int, float, type(None))) else str(key)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return a JSON object, None where it is missing or unreadable."""
    try:
        value = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):  # ValueError: no JSON, or no text
        return None
    return value if isinstance(value, dict) else None


def write_json(path: Path, value: object) -> None:
    """Write a JSON file atomically; it is on disk when this returns."""
    with replacing(path) as file:
        file.write(json.dumps(value, indent=1, default=str).encode())
    sync(path.resolve().parent)


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


def append_line(path: Path, value: object) -> None:
    """Append an object as a line of JSON; it is on disk when this returns."""
    end_torn_line(path)
    with path.open("ab") as file:
        file.write(json.dumps(value).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def end_torn_line(path: Path) -> None:
    """End a last line that a killed process or a full disk tore, so that the next one starts on a new line."""
    with path.open("ab+") as file:
        if file.seek(0, os.SEEK_END) and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
            file.write(b"\n")


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
            except (ValueError, RecursionError):
                continue  # what a killed process tore; the next process began a new line after it
            if isinstance(value, dict):
                yield value
