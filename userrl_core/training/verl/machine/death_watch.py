"""Signs that a stage can never end: a failed agent loop, a dead rollout worker, a dead rollout engine.

On several nodes, each of them may be an effect of a node's death, which the driver reports later (`node_watch`).
"""

from __future__ import annotations

import time
from pathlib import Path

from userrl_core.errors import TrainingError
from userrl_core.processes import last_words
from userrl_core.training.verl.machine.engine_watch import EngineWatch
from userrl_core.training.verl.machine.heartbeat import HeartbeatWatch


class DeathWatch:
    """A watch on one start of a stage."""

    def __init__(self, folder: Path, heartbeats: Path, *, patience: float = 0.0) -> None:
        """folder: the stage's. patience: seconds in which the driver may end with a better error message."""
        self._fatal = folder / "fatal"
        self._output = folder / "output.txt"
        self._workers = HeartbeatWatch(heartbeats)
        self._engine = EngineWatch(self._output)
        self._patience = patience
        self._since: float | None = None

    def failed(self) -> bool:
        """Return True once an agent loop has failed. Steps that verl reports after that lack conversations."""
        return self._fatal.exists()

    def check(self, over: bool, *, final: bool = False) -> None:
        """Raise TrainingError for a sign that is older than the patience.

        over: the last step is finished; at the end of a stage its processes go one by one. final: the driver has ended.
        """
        cause = self._cause(over)
        if cause is None:
            return
        self._since = self._since or time.monotonic()
        if final or time.monotonic() - self._since >= self._patience:
            words = f"{cause} {last_words(self._output)}"
            if self.failed():
                raise TrainingError("process.failed", words)
            raise TrainingError("process.died", words)

    def _cause(self, over: bool) -> str | None:
        if self.failed():
            return f"A rollout worker failed: {self._fatal.read_text().splitlines()[0]}."
        if over:
            return None
        if dead := self._workers.dead():
            return f"Rollout worker {dead[0]} died while verl waited for it."
        if (last := self._engine.dead()) is not None:
            return f"The rollout engine died while verl waited for it: {last[:300]}."
        return None
