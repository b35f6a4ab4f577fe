"""Detection of a Ray node that died, in the driver of a stage on several nodes.

Ray reports the effects of a node's death (lost actors) at once. It reports the death itself only after its checks of
the node failed: some 20 seconds later for a killed process, more for a host without power. The launcher and the
driver therefore wait `PATIENCE` with any other error, since the node is what the user has to start again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from userrl_core.errors import TrainingError

PATIENCE = 90.0
"""Seconds after which Ray has reported a node that died: five checks of up to 13 s each, and some reserve."""

POLL = 2.0

Nodes = Callable[[], Sequence[Mapping[str, Any]]]
"""`ray.nodes`, which lists dead nodes too."""


class NodeWatch:
    """A watch on the nodes that are alive when it is made."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._first = {node["NodeID"] for node in nodes() if node["Alive"]}

    def dead(self) -> str | None:
        """Return the host and address of a node that has died since; None while all live."""
        for node in self._nodes():
            if node["NodeID"] in self._first and not node["Alive"]:
                return f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
        return None

    def start(self) -> None:
        """End this process with an error message when a node has died. It looks in a thread of its own."""
        threading.Thread(target=self._look, daemon=True, name="userrl-node-watch").start()

    def _look(self) -> None:
        while (name := self.dead()) is None:
            time.sleep(POLL)
        print(node_died(name).line, flush=True)
        os._exit(1)  # verl may wait for ever for the actors of that node


def node_died(name: str) -> TrainingError:
    """Return the error for a node that died. name: its host and address."""
    return TrainingError(
        "process.died",
        f"Ray node {name} died. Start Ray there again ('ray start --address ...', docs/gpu.md), then start the run "
        "again: it continues from its last checkpoint.",
    )
