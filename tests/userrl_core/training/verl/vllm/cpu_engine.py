"""What verl's own vLLM rollout needs on a CPU beside `tests.userrl_core.training.verl.cpu`, and how to kill it at its work.

Loaded by verl in every process through VERL_USE_EXTERNAL_MODULES. A file ``sync`` or ``rollout`` in the folder $USERRL_TEST_KILL
makes the process that computes for the engine kill itself the next time it takes new weights, or speaks; the file is renamed then.
While a file ``stale`` is there, the engine takes no new weights and says nothing of it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from functools import wraps
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import tests.userrl_core.training.verl.cpu  # noqa: F401  the platform

_close = shared_memory.SharedMemory.close


def _close_quietly(self: shared_memory.SharedMemory) -> None:
    """On a CPU a tensor still looks into the memory when verl lets go of it."""
    with contextlib.suppress(BufferError):
        _close(self)


shared_memory.SharedMemory.close = _close_quietly  # type: ignore[method-assign]


def _mortal(moment: str, work: Callable[..., Any]) -> Callable[..., Any]:
    """The same work; where it is asked for, the process dies instead."""

    @wraps(work)
    def wrapped(*arguments: Any, **keywords: Any) -> Any:
        asked = Path(os.environ.get("USERRL_TEST_KILL", "/nowhere")) / moment
        if asked.exists():
            asked.rename(asked.with_suffix(".died"))
            os.kill(os.getpid(), signal.SIGKILL)
        return work(*arguments, **keywords)

    return wrapped


def _unless_stale(load: Callable[..., Any]) -> Callable[..., Any]:
    """The same; while there is a file ``stale``, weights arrive and are not taken."""

    @wraps(load)
    def wrapped(*arguments: Any, **keywords: Any) -> Any:
        if not (Path(os.environ.get("USERRL_TEST_KILL", "/nowhere")) / "stale").exists():
            return load(*arguments, **keywords)
        return None

    return wrapped


def _patch_vllm() -> None:
    import torch
    import vllm.model_executor.layers.utils as layers
    from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension as Extension
    from vllm.v1.worker.cpu_worker import CPUWorker

    def plain(layer: Any, remove_weight: bool) -> None:
        """Weights packed for oneDNN would not see the ones that training sends."""
        layer.cpu_linear = torch.nn.functional.linear

    layers.dispatch_cpu_unquantized_gemm = plain
    Extension.update_weights_from_ipc = _mortal("sync", Extension.update_weights_from_ipc)
    Extension._update_weights = _unless_stale(Extension._update_weights)
    CPUWorker.execute_model = _mortal("rollout", CPUWorker.execute_model)


if os.environ.get("VERL_PLATFORM") == "cpu":
    _patch_vllm()
