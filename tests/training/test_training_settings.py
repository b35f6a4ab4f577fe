"""Settings of training: light to import, and wrong ones are refused with what to change."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from userrl_core.errors import ConfigError
from userrl_core.training.config import AlgorithmConfig, ModelConfig, SftConfig
from userrl_core.training.local.threads import SETTINGS, fix_threads


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    return subprocess.run(
        [sys.executable, "-c", code], env=kept | environment, capture_output=True, text=True, timeout=120
    )


def test_settings_jobs_and_protocols_load_no_torch() -> None:
    code = (
        "import sys, userrl_core.distill, userrl_core.training.config, userrl_core.training.jobs, "
        "userrl_core.training.protocols, userrl_core.training.local.threads\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'tokenizers')))"
    )
    assert run(code).returncode == 0


def test_quiet_threads_keeps_what_the_environment_says() -> None:
    code = (
        "import os; from userrl_core.training.local.threads import quiet_threads; quiet_threads()\n"
        "print(os.environ['OMP_WAIT_POLICY'], os.environ['GOMP_SPINCOUNT'])"
    )
    assert run(code).stdout.split() == ["PASSIVE", "0"]
    assert run(code, OMP_WAIT_POLICY="ACTIVE").stdout.split() == ["ACTIVE", "0"]


def test_quiet_threads_after_torch_is_refused() -> None:
    code = "import torch; from userrl_core.training.local.threads import quiet_threads; quiet_threads()"
    assert "ConfigError: quiet_threads() comes too late" in run(code).stderr


def test_no_thread_is_too_few() -> None:
    with pytest.raises(ConfigError, match="at least one thread"):
        fix_threads(0)


@pytest.mark.parametrize(
    ("kind", "wrong"),
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
def test_values_that_cannot_work_are_refused(kind: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        kind(**wrong)


@pytest.mark.parametrize("kind", [ModelConfig, SftConfig, AlgorithmConfig])
def test_every_field_says_what_it_is(kind: Any) -> None:
    assert [name for name, field in kind.model_fields.items() if not field.description] == []
