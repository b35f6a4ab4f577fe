"""Trials as child processes of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.space import load_space
from userrl.run.request import TrainRequest
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
