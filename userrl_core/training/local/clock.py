"""The seconds of a stage's steps, where they decide when the stage ends or a gate opens.

A step's seconds are written down before any decision uses them. A restart after a kill repeats some steps. It uses
the seconds written the first time, so it makes the same decisions and the stage ends at the same step.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from userrl_core.json_files import GrowingLines

CPU, GPU = "seconds/cpu/sum", "seconds/gpu/sum"


class StepClock:
    """Seconds per step of one stage, one line per step in ``clock.jsonl`` of the stage's folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "clock.jsonl"
        self._taken = {int(line["step"]): line for line in GrowingLines(self._path)} if self._path.exists() else {}

    def taken(self, step: int, cpu: float, gpu: float) -> dict[str, float]:
        """Return a step's seconds as metrics. A repeated step keeps the seconds measured the first time."""
        line = self._taken.get(step)
        if line is None:
            line = self._taken[step] = {"step": step, "cpu": cpu, "gpu": gpu}
            with self._path.open("a") as file:
                file.write(json.dumps(line) + "\n")
                file.flush()
                os.fsync(file.fileno())
        return {CPU: float(line["cpu"]), GPU: float(line["gpu"])}

    def used(self, kind: str, first: int, last: int) -> float:
        """Return the seconds of steps first to last."""
        return sum(float(line[kind]) for step, line in self._taken.items() if first <= step <= last)
