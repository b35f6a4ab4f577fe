"""Trials as child processes of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.space import load_space
from userrl.run.request import TrainRequest
from userrl.run.run import RunDescription, claim
from userrl.trials.processes import ProcessLauncher


def test_a_repeated_label_finds_the_process_of_its_own_home_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trial_that_waits.py").write_text("import time; time.sleep(600)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("userrl.trials.processes.TRIAL", "trial_that_waits")

    def launched(home: str) -> tuple[ProcessLauncher, str]:
        monkeypatch.setenv("USERRL_HOME", str(tmp_path / home))
        launcher = ProcessLauncher(load_space("gamma"))
        request = TrainRequest(recipe="equalized-r2g")
        return launcher, launcher.launch(request, "run", label="tiny-r2g-s101-start-1", display_name="r2g").handle

    trials = [launched(home) for home in ("a", "a", "b")]
    first, again, other = [handle for _, handle in trials]
    for launcher, handle in trials:
        launcher.cancel(handle)
    assert first == again != other


def test_a_trial_that_a_person_stopped_is_cancelled_and_one_that_ended_without_a_result_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    run = claim("trial-s0", RunDescription(name="trial"), fresh=False, flow_run=None)
    launcher, handle = ProcessLauncher(load_space("gamma")), f"0:0.0:{run.id}"
    run.set_status("stopped")  # by the TERM of a machine that shuts down
    assert launcher.status(handle) == "failed"
    run.ask_to_stop()
    assert launcher.status(handle) == "cancelled"
    run.set_status("completed")
    assert launcher.status(handle) == "completed"
