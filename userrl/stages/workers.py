"""The start of a run's stages: each is a separate process, forked on a laptop from one that has imported torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from userrl.machine.home import quiet
from userrl.machine.slots import slots
from userrl_core import processes
from userrl_core.fork_server import AVAILABLE, ForkServer

MODULE = "userrl.worker.main"


class Workers:
    """The processes of one run. Forking saves a tenth of a laptop run's processor time, which imports would take."""

    def __init__(self) -> None:
        self._server: ForkServer | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._server is not None:
            self._server.close()

    def warm_up(self) -> None:
        """Start the imports. Call this in the flow's own thread: the kernel ends the server with the thread that started it."""
        if self._server is None and AVAILABLE and all(slot.gpu is None for slot in slots()):
            self._server = ForkServer(MODULE, quiet())

    def spawn(
        self,
        command: Sequence[str],
        *,
        output: Path,
        env: Mapping[str, str] | None,
        tag: str,
        keep_open: Sequence[int],
    ) -> processes.Started:
        """Fork a process, or start a new one if the fork server is gone."""
        if self._server is not None:
            try:
                return self._server.spawn(command, output=output, env=env, tag=tag, keep_open=keep_open)
            except OSError:
                pass
        return processes.spawn(command, output=output, env=env, tag=tag, keep_open=keep_open)
