"""A file of JSON lines that another process still writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class GrowingLines:
    """Iterating gives the objects that were added since the last time, each once; a torn last line waits for its end."""

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        """from_end: what the file holds already is passed over. The file need not exist yet."""
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
