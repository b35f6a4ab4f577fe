"""The choice of inference for checkpoints: our own decoder or a rollout engine, and its GPUs."""

from __future__ import annotations

import os

from curricula.spec import Hardware
from userrl_core.served.model_server import VLLM_PYTHON


def engine_plays(hardware: Hardware, gpus: int) -> bool:
    """Return whether vLLM runs inference for checkpoints in a stage with this many GPUs."""
    if hardware.checkpoint_engine != "auto":
        return hardware.checkpoint_engine == "vllm"
    return gpus > 0 and hardware.engine == "vllm" and bool(hardware.python or os.environ.get(VLLM_PYTHON))


def engine_gpus(hardware: Hardware, gpus: int) -> int:
    """Return the number of GPUs of a stage that runs checkpoints: all that training has, in whole copies."""
    if not engine_plays(hardware, gpus):
        return 1
    return max(min(hardware.node_gpus, gpus) // hardware.tensor_parallel, 1) * hardware.tensor_parallel


def copies(hardware: Hardware, gpus: int) -> int:
    """Return the number of model copies on this many GPUs."""
    return max(gpus // hardware.tensor_parallel, 1)


def who_plays(hardware: Hardware) -> str:
    """Describe the inference for checkpoints on the profile's machine."""
    if not engine_plays(hardware, hardware.gpus):
        return "the local decoder"
    count = copies(hardware, engine_gpus(hardware, hardware.gpus))
    return f"vLLM, {count} {'copy' if count == 1 else 'copies'} on {hardware.tensor_parallel} GPU each"
