"""Slots and locks between real processes."""

import os
import subprocess
import sys

import pytest

from curricula import Recipe
from tests.makers import raises
from userrl.machine.home import published_data
from userrl.machine.slots import Slot, alone, lock, lock_file, slots, take, threads
from userrl.run.job import StageJob
from userrl.stages.execution import slots_for

HOLD = """
import pathlib, sys, time
from userrl.machine.slots import slots, take
with take(pathlib.Path(sys.argv[1]), 1, slots()) as (slot,):
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
        with take(tmp_path, 1, slots()) as (mine,):
            assert mine.name == "gpu-1"
            assert lock(lock_file(tmp_path, "gpu-0")) is None
    finally:
        first.kill()
        first.wait()


def test_the_same_gpu_of_another_machine_or_job_is_another_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("USERRL_SLOTS", "gpu-0")
    first, name = holder(tmp_path)
    try:
        with monkeypatch.context() as patch:
            patch.setattr("socket.gethostname", lambda: "node-2")
            with take(tmp_path, 1, slots()) as (mine,):
                assert (name, mine.name, mine.gpu) == ("gpu-0", "gpu-0", 0)
                assert lock(tmp_path / "node-2.gpu-0.lock") is None
        monkeypatch.setenv("SLURM_JOB_ID", "7")
        assert lock(lock_file(tmp_path, "gpu-0")) is None, "a job that sees all GPUs of the node may not take this one"
        monkeypatch.setenv("SLURM_JOB_GPUS", "3")
        with take(tmp_path, 1, slots()) as (mine,):
            assert mine.gpu == 0
        assert lock_file(tmp_path, "gpu-0").name.endswith(".job-7.gpu-0.lock")
        assert "job-7" not in lock_file(tmp_path, "cpu-0").name
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

    with take(tmp_path, 1, slots(), waiting=waiting, poll=0.05) as (mine,):
        assert mine.name == "gpu-0"
    assert heard == [f"gpu-0 by process {first.pid}"]


def test_several_slots_are_taken_together_or_not_at_all(tmp_path, monkeypatch):
    monkeypatch.setenv("USERRL_SLOTS", "gpu-0,gpu-1,gpu-2")
    first, name = holder(tmp_path)
    heard = []

    def waiting(who):
        heard.append(who)
        assert lock_and_free(lock_file(tmp_path, "gpu-1")), "what it could have is free while it waits"
        first.kill()
        first.wait()

    with take(tmp_path, 3, slots(), waiting=waiting, poll=0.05) as taken:
        assert [slot.gpu for slot in taken] == [0, 1, 2]
        assert not lock_and_free(lock_file(tmp_path, "gpu-2"))
    assert (name, heard) == ("gpu-0", [f"gpu-0 by process {first.pid}"])
    assert lock_and_free(lock_file(tmp_path, "gpu-2"))
    with (
        raises("hardware.too_few_gpus"),
        take(tmp_path, 4, slots()),
    ):
        pass


def lock_and_free(path):
    descriptor = lock(path)
    if descriptor is None:
        return False
    os.close(descriptor)
    return True


def test_verl_holds_all_gpus_of_its_profile_but_those_of_the_users(tmp_path, monkeypatch):
    monkeypatch.setenv("USERRL_SLOTS", ",".join(f"gpu-{n}" for n in range(8)))
    hardware = {"gpus": 4, "user_gpus": "0, 1"}

    def needed(kind, backend, **more):
        job = StageJob(
            kind=kind,
            stage="x",
            run_id="r",
            folder=tmp_path,
            warehouse=tmp_path,
            recipe=Recipe(name="x", hardware={**hardware, **more}),
            backend=backend,
        )
        count, among = slots_for(job)
        return count, [slot.gpu for slot in among]

    assert needed("rl", "verl") == (4, [2, 3, 4, 5, 6, 7])
    assert needed("evaluate", "verl") == needed("rl", "local") == (1, [2, 3, 4, 5, 6, 7])
    assert needed("evaluate", "local", python="/v/bin/python")[0] == 4, "vLLM plays the checkpoints"
    assert needed("distill", "verl", python="/v/bin/python")[0] == 1
    assert needed("rl", "verl", ray_address="auto")[0] == 1
    assert (needed("sft", "verl")[0], needed("sft", "verl", sft_gpus=6)[0]) == (4, 6)
    monkeypatch.setenv("USERRL_SLOTS", "cpu-0")
    assert needed("rl", "verl") == (1, [None])


def test_a_lock_is_kept_by_the_process_that_inherits_it(tmp_path, monkeypatch):
    monkeypatch.setenv("USERRL_SLOTS", "cpu-0")
    with take(tmp_path, 1, slots()) as (mine,):
        heir = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)"], pass_fds=(mine.descriptor,), close_fds=True
        )
    assert lock(lock_file(tmp_path, "cpu-0")) is None
    heir.kill()
    heir.wait()
    assert lock(lock_file(tmp_path, "cpu-0")) is not None


def test_a_run_that_is_being_worked_on_is_refused_in_a_sentence(tmp_path):
    path = tmp_path / "run.lock"
    with (
        alone(path, "Run a"),
        raises("run.in_use"),
        alone(path, "Run a"),
    ):
        pass


def test_visible_gpus_are_the_slots(monkeypatch):
    monkeypatch.delenv("USERRL_SLOTS", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert [slot.name for slot in slots()] == ["gpu-2", "gpu-3"]
    assert Slot("gpu-3").gpu == 3
    assert Slot("cpu-0").gpu is None


def test_cores_are_shared_out_by_the_threads_that_a_run_computes_on(monkeypatch):
    monkeypatch.delenv("USERRL_SLOTS", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    for count, expected in [(None, 2), ("1", 4), ("2", 2), ("4", 1), ("16", 1)]:
        if count is None:
            monkeypatch.delenv("USERRL_THREADS", raising=False)
        else:
            monkeypatch.setenv("USERRL_THREADS", count)
        assert [slot.name for slot in slots()] == [f"cpu-{n}" for n in range(expected)]


@pytest.mark.parametrize("names", [",", " ", "gpu-x", "cpu-0,cpu-0", "a/../../b", "cpu-0,", "gpu-0 gpu-1"])
def test_slots_that_are_no_list_of_names_are_refused(monkeypatch, names):
    monkeypatch.setenv("USERRL_SLOTS", names)
    with raises("argument.malformed", "USERRL_SLOTS must list different names such as gpu-0,gpu-1 or cpu-0"):
        slots()


@pytest.mark.parametrize("text", ["abc", "-3", "0", "1e9", "2.5", "99999999999", "²", "9" * 5000])
def test_a_number_of_threads_that_is_none_is_refused(monkeypatch, text):
    monkeypatch.setenv("USERRL_THREADS", text)
    with raises("argument.out_of_range", "USERRL_THREADS must be a whole number from 1 to 1024, not '"):
        threads()


def test_a_path_below_the_home_of_nobody_is_a_path_that_does_not_exist(monkeypatch):
    monkeypatch.setenv("USERRL_PUBLISHED_DATA", "~nobody-here/data")
    assert not published_data().exists()
