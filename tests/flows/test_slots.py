"""Slots and locks between real processes."""

import subprocess
import sys

import pytest

from flows.slots import Slot, alone, lock, slots, take
from userrl_core.errors import ConfigError

HOLD = """
import pathlib, sys, time
from flows.slots import take
with take(pathlib.Path(sys.argv[1])) as slot:
    print(slot.name, flush=True)
    time.sleep(600)
"""


def holder(folder):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_two_trainings_never_share_a_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("USERRL_SLOTS", "gpu-0,gpu-1")
    first, name = holder(tmp_path)
    try:
        assert name == "gpu-0"
        with take(tmp_path) as mine:
            assert mine.name == "gpu-1"
            assert lock(tmp_path / "gpu-0.lock") is None
    finally:
        first.kill()
        first.wait()


def test_a_killed_holder_frees_its_slot_and_waiting_says_who_held_it(tmp_path, monkeypatch):
    monkeypatch.setenv("USERRL_SLOTS", "gpu-0")
    first, _ = holder(tmp_path)
    heard = []

    def waiting(who):
        heard.append(who)
        first.kill()
        first.wait()

    with take(tmp_path, waiting=waiting, poll=0.05) as mine:
        assert mine.name == "gpu-0"
    assert heard == [f"gpu-0 by process {first.pid}"]


def test_a_lock_is_kept_by_the_process_that_inherits_it(tmp_path, monkeypatch):
    monkeypatch.setenv("USERRL_SLOTS", "cpu-0")
    with take(tmp_path) as mine:
        heir = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)"], pass_fds=(mine.descriptor,), close_fds=True
        )
    assert lock(tmp_path / "cpu-0.lock") is None
    heir.kill()
    heir.wait()
    assert lock(tmp_path / "cpu-0.lock") is not None


def test_a_run_that_is_being_worked_on_is_refused_in_a_sentence(tmp_path):
    path = tmp_path / "run.lock"
    with (
        alone(path, "Run a"),
        pytest.raises(ConfigError, match=r"Run a is being worked on by process \d+"),
        alone(path, "Run a"),
    ):
        pass


def test_visible_gpus_are_the_slots(monkeypatch):
    monkeypatch.delenv("USERRL_SLOTS", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert [slot.name for slot in slots()] == ["gpu-2", "gpu-3"]
    assert Slot("gpu-3").gpu == 3
    assert Slot("cpu-0").gpu is None
