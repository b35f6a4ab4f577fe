"""Settings of training: quick to import, and invalid ones are refused with what to change."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from tests.makers import raises
from userrl_core.training.config import AlgorithmConfig, ModelConfig, SftConfig
from userrl_core.training.local.threads import SETTINGS, fix_threads


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    return subprocess.run(
        [sys.executable, "-c", code], env=inherited | environment, capture_output=True, text=True, timeout=120
    )


def test_settings_jobs_and_protocols_load_no_torch() -> None:
    code = (
        "import sys, userrl_core.distill, userrl_core.training.config, userrl_core.training.jobs, "
        "userrl_core.training.protocols, userrl_core.training.local.threads\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'tokenizers')))"
    )
    assert run(code).returncode == 0


def test_quiet_threads_keeps_the_values_of_the_environment() -> None:
    code = (
        "import os; from userrl_core.training.local.threads import quiet_threads; quiet_threads()\n"
        "print(os.environ['OMP_WAIT_POLICY'], os.environ['GOMP_SPINCOUNT'])"
    )
    assert run(code).stdout.split() == ["PASSIVE", "0"]
    assert run(code, OMP_WAIT_POLICY="ACTIVE").stdout.split() == ["ACTIVE", "0"]


def test_quiet_threads_after_torch_is_refused() -> None:
    code = "import torch; from userrl_core.training.local.threads import quiet_threads; quiet_threads()"
    assert "ConfigError: quiet_threads() was called too late" in run(code).stderr


def test_zero_threads_are_refused() -> None:
    with raises("argument.out_of_range"):
        fix_threads(0)


@pytest.mark.parametrize(
    ("settings", "values"),
    [
        (ModelConfig, {"heads": 4, "kv_heads": 3}),
        (ModelConfig, {"head_dim": 7}),
        (ModelConfig, {"vocab_size": 100}),
        (SftConfig, {"batch": 0}),
        (SftConfig, {"rate": 1.0}),
        (AlgorithmConfig, {"temperature": 0.0}),
        (AlgorithmConfig, {"top_p": 0.0}),
        (AlgorithmConfig, {"entropy_mask": 1.5}),
        (AlgorithmConfig, {"dual_clip": 0.5}),
        (AlgorithmConfig, {"name": "trpo"}),
        (AlgorithmConfig, {"lr": -1.0}),
    ],
)
def test_invalid_values_are_refused(settings: Any, values: dict[str, Any]) -> None:
    (name,) = values if len(values) == 1 else ("kv_heads",)
    with pytest.raises(ValueError, match=name):
        settings(**values)
