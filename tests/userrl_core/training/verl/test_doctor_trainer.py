"""``userrl doctor --trainer`` asks the trainer's own interpreter, with verl, Ray and a model on disk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.userrl_core.training.verl.rig import make_model
from userrl.run.readiness import CHECKS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ASKED = {"model.path": "Qwen/Qwen3-8B", "hardware.device": "cpu", "hardware.engine": "transformers"}


def doctor(*arguments: str, **changes: str) -> tuple[int, dict[str, tuple[bool, str]]]:
    command = [sys.executable, "-m", "flows.cli.main", "doctor", "--trainer", "--json", *arguments]
    for key, value in changes.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.stderr or done.returncode == 0, done.stderr
    return done.returncode, {row["what"]: (row["ok"], row["said"]) for row in json.loads(done.stdout)}


def test_it_imports_verl_loads_our_plugin_in_a_ray_worker_and_reads_the_models_template(tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": "hello"}], "tools": []}
    model = str(make_model(tmp_path / "model", [chat]))
    url = {"hardware.user_url": "http://127.0.0.1:9/v1"}
    status, found = doctor(**{**ASKED, "model.path": model, **url})
    assert found["verl"] == (True, "0.9.1")
    assert found["plugin in a Ray worker"] == (True, "registered in a Ray worker")
    assert found["attention"] == (True, "sdpa, as on every CPU")
    assert found["chat template"] == (True, f"{model} keeps what came before, token by token")
    answered, said = found["user server"]
    assert not answered
    assert "does not answer" in said
    assert status == 1, "a user that is down stops a run"
    missing = found.keys() - {what for what, (ok, _) in found.items() if ok}
    assert missing == {"user server", "preflight: data, keys and served models"}
    assert [what for what in found if what.startswith("preflight: ")] == [f"preflight: {check}" for check in CHECKS]


def test_what_is_missing_comes_with_what_to_do_next() -> None:
    status, found = doctor(**{"hardware.python": "/no/such/python"})
    assert status == 1
    assert found["trainer's interpreter"] == (
        False,
        "/no/such/python cannot be started (No such file or directory); correct hardware.python",
    )
    assert "its address is not known; set hardware.user_gpus" in found["user server"][1]
    assert "keep_checkpoints" in found["disk for checkpoints"][1] or found["disk for checkpoints"][0]
