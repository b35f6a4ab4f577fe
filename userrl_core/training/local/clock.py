"""What the steps of a stage took, where that decides anything: when a stage ends, or a gate opens.

A step's seconds are written down before anything is decided by them. A start after a kill plays some steps again; they took what
was written, so that it comes to the decisions of the start before it, and the stage ends where that one ended it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from userrl_core.json_files import GrowingLines

CPU, GPU = "seconds/cpu/sum", "seconds/gpu/sum"


class StepClock:
    """Seconds per step of one stage. A line per step in ``clock.jsonl`` of the stage's folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "clock.jsonl"
        self._taken = {int(line["step"]): line for line in GrowingLines(self._path)} if self._path.exists() else {}

    def taken(self, step: int, cpu: float, gpu: float) -> dict[str, float]:
        """What a step took: as measured the first time, whatever it took now. As metrics."""
        line = self._taken.get(step)
        if line is None:
            line = self._taken[step] = {"step": step, "cpu": cpu, "gpu": gpu}
            with self._path.open("a") as file:
                file.write(json.dumps(line) + "\n")
                file.flush()
                os.fsync(file.fileno())
        return {CPU: float(line["cpu"]), GPU: float(line["gpu"])}

    def used(self, kind: str, first: int, last: int) -> float:
        """Seconds of steps first to last."""
        return sum(float(line[kind]) for step, line in self._taken.items() if first <= step <= last)
