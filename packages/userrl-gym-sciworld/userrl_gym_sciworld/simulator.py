"""The simulator: one Java process for all episodes of this process, with a separate interface for each.

`scienceworld` starts one Java process per environment, which would be 64 for 64 episodes. The interfaces of one process share
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
    """Return an interface at the beginning of a task. gold: also compute a solution, which takes longer.

    Raises ConfigError without Java.
    """
    with _LOCK:
        interface = _FREE.pop() if _FREE else _start()._gateway.jvm.scienceworld.runtime.pythonapi.PythonInterface()
    interface.load(task, variation, "", gold)
    return interface


def release(interface: Any) -> None:
    """Give an interface back. Its next episode loads its task again."""
    with _LOCK:
        _FREE.append(interface)


def missing() -> str:
    """Return the simulator's missing requirement on this machine, in one sentence; "" if it can run."""
    if shutil.which("java") is None:
        return "SciWorld runs in Java, and there is no java here; install one (default-jre-headless) or choose another gym."
    if find_spec("scienceworld") is None:
        return "SciWorld needs the package scienceworld; install the extra envs."
    return ""


@lru_cache(maxsize=1)
def _start() -> Any:
    if sentence := missing():
        raise ConfigError("gym.not_installed", sentence)
    from scienceworld import ScienceWorldEnv  # an extra; imported late, for the sentence above

    return ScienceWorldEnv("")


@lru_cache(maxsize=512)
def solution(task: str, variation: int) -> tuple[str, ...]:
    """Return the simulator's own solution of a task, which is not always the shortest one."""
    interface = load(task, variation, gold=True)
    try:
        return tuple(interface.getGoldActionSequence())
    finally:
        release(interface)
