"""The simulator: one Java process for all episodes of this process, each with an interface of its own.

`scienceworld` starts a Java process per environment; at 64 episodes that is 64 of them. The interfaces of one process share
nothing: interleaved episodes end as they do alone (`test_episodes_in_one_java_process_do_not_touch_one_another`).
"""

from __future__ import annotations

import shutil
import threading
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from userrl_core.errors import ConfigError

_LOCK = threading.Lock()
_FREE: list[Any] = []
"""Interfaces whose episode is over."""


def load(task: str, variation: int, *, gold: bool = False) -> Any:
    """An interface at the beginning of a task. gold: let it work out a solution as well, which takes longer.

    Raises ConfigError where there is no Java.
    """
    with _LOCK:
        interface = _FREE.pop() if _FREE else _start()._gateway.jvm.scienceworld.runtime.pythonapi.PythonInterface()
    interface.load(task, variation, "", gold)
    return interface


def release(interface: Any) -> None:
    """Give an interface back: its next episode loads a task anew."""
    with _LOCK:
        _FREE.append(interface)


def missing() -> str:
    """What the simulator lacks on this machine, in one sentence; "" where it lacks nothing."""
    if shutil.which("java") is None:
        return "SciWorld runs in Java, and there is no java here; install one (default-jre-headless) or choose another gym."
    if find_spec("scienceworld") is None:
        return "SciWorld needs the package scienceworld; install the extra envs."
    return ""


@lru_cache(maxsize=1)
def _start() -> Any:
    if sentence := missing():
        raise ConfigError(sentence)
    from scienceworld import ScienceWorldEnv  # an extra; imported late, for the sentence above

    return ScienceWorldEnv("")


@lru_cache(maxsize=512)
def solution(task: str, variation: int) -> tuple[str, ...]:
    """The simulator's own solution of a task; not always the shortest one."""
    interface = load(task, variation, gold=True)
    try:
        return tuple(interface.getGoldActionSequence())
    finally:
        release(interface)
