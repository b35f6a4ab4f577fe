"""Judging during rollouts: every trajectory goes to the judge the moment it ends.

The judge has its own thread and event loop, because the local model's decoding blocks the caller's loop.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from types import TracebackType

from userrl_core.judging.judge import TurnJudge
from userrl_core.records import Judgement, Trajectory
from userrl_core.served.client import close_clients
from userrl_core.sink import Sink


class Alongside:
    """The judgements of one batch. ``async with``: the body plays; at its end, all judgements are complete, set and logged."""

    def __init__(self, judge: TurnJudge, sink: Sink | None) -> None:
        self._judge, self._sink = judge, sink
        self._waiting: list[tuple[Trajectory, Future[Judgement | None]]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="judge", daemon=True)

    def submit(self, trajectory: Trajectory) -> None:
        """Judge a trajectory that has just ended. Never waits."""
        future = asyncio.run_coroutine_threadsafe(self._judge.judge(trajectory), self._loop)
        self._waiting.append((trajectory, future))

    async def __aenter__(self) -> Alongside:
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for trajectory, future in self._waiting if kind is None else ():
                trajectory.judgement = await asyncio.wrap_future(future)
                if self._sink is not None:
                    self._sink.judgement(trajectory)
        finally:
            for _, future in self._waiting:
                future.cancel()
            asyncio.run_coroutine_threadsafe(close_clients(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
