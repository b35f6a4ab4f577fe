"""Detection of a dead rollout engine, by its last output.

vLLM's engine is a separate process below a Ray actor. If it dies while it takes new weights, verl waits silently for
its answer. The engine itself reports its death in the stage's output, in the words below (vLLM 0.24 and Ray 2.60).
"""

from __future__ import annotations

import re
import time
from pathlib import Path

GRACE = 10.0
"""Seconds that verl has, after the engine's last output, to end by itself with a better error message."""

DIED = re.compile(
    r"EngineCore (?:failed to start|encountered (?:a fatal error|an issue))"
    r"|EngineDeadError"
    r"|Engine core initialization failed"
    r"|engine core exited unexpectedly"
    r"|(?:Engine core proc(?:ess)?|Worker proc) \S+ died unexpectedly"
    r"|ActorDiedError.*(?:Server|Engine)"
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class EngineWatch:
    """A reader of new output of a stage; it remembers since when the engine is dead."""

    def __init__(self, output: Path, *, grace: float = GRACE) -> None:
        """Skip the file's present content, which belongs to an earlier start."""
        self._output = output
        self._at = output.stat().st_size if output.exists() else 0
        self._grace = grace
        self._died: tuple[float, str] | None = None

    def dead(self) -> str | None:
        """Return the line that reported the death, once the grace is over; None while the engine lives."""
        for line in self._new_lines():
            if self._died is None and DIED.search(line):
                self._died = time.monotonic(), _COLOURS.sub("", line).strip()
        if self._died is None or time.monotonic() - self._died[0] < self._grace:
            return None
        return self._died[1]

    def _new_lines(self) -> list[str]:
        try:
            if self._output.stat().st_size <= self._at:
                return []
            with self._output.open("rb") as file:
                file.seek(self._at)
                added = file.read()
        except FileNotFoundError:
            return []
        end = added.rfind(b"\n") + 1
        self._at += end
        return added[:end].decode(errors="replace").splitlines()
