"""Process control with real processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows.machine.process import TOKEN, TrainerDied, bearers, reap, run_child
from tests.flows.alive import alive
from userrl_core.errors import TrainingError

PARENT = """
import os, pathlib, sys
from flows.machine.process import run_child
run_child([sys.executable, "-c", sys.argv[2]], folder=pathlib.Path(sys.argv[1]), grace=5)
"""
STUBBORN = """
import os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
pathlib.Path(os.environ["READY"]).write_text(str(os.getpid()))
time.sleep(600)
"""


def wait_for(condition, seconds=120.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


def python(code):
    return [sys.executable, "-c", code]


def token_of(folder: Path) -> str:
    import json

    return json.loads((folder / "child.json").read_text())["token"]


def test_a_child_that_ends_well_leaves_its_output_and_no_record(tmp_path):
    run_child(python("print('hello')"), folder=tmp_path)
    assert (tmp_path / "output.txt").read_text() == "hello\n"
    assert not (tmp_path / "child.json").exists()


def test_a_child_s_own_sentence_becomes_the_error(tmp_path):
    with pytest.raises(TrainingError, match=r"^The disk is full; free some\.$") as caught:
        run_child(python("print('error: The disk is full; free some.'); raise SystemExit(1)"), folder=tmp_path)
    assert not isinstance(caught.value, TrainerDied)


def test_a_child_that_dies_without_a_word_is_named_with_its_signal(tmp_path):
    with pytest.raises(TrainerDied, match="killed by signal 9"):
        run_child(python("import os; os.kill(os.getpid(), 9)"), folder=tmp_path)


def test_an_error_of_an_earlier_child_is_not_taken_for_this_one(tmp_path):
    with pytest.raises(TrainingError):
        run_child(python("print('error: the first'); raise SystemExit(1)"), folder=tmp_path)
    with pytest.raises(TrainerDied, match="status 3"):
        run_child(python("raise SystemExit(3)"), folder=tmp_path)


def test_an_interrupted_parent_takes_the_whole_tree_with_it(tmp_path, monkeypatch):
    monkeypatch.setenv("READY", str(tmp_path / "ready"))
    seen = []

    def tick():
        if (tmp_path / "ready").exists():
            seen.append(token_of(tmp_path))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_child(python(STUBBORN), folder=tmp_path, on_tick=tick, grace=0.2, poll=0.05)
    assert bearers(seen[0]) == []


def test_what_a_killed_parent_left_is_reaped_by_the_next_start(tmp_path, monkeypatch):
    monkeypatch.setenv("READY", str(tmp_path / "ready"))
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path), STUBBORN])
    wait_for(lambda: (tmp_path / "ready").exists())
    token = token_of(tmp_path)
    parent.kill()
    parent.wait()
    orphans = bearers(token)
    assert len(orphans) == 2  # the child ignored TERM, the grandchild left its group
    assert reap(tmp_path, grace=0.2) == 2
    assert not any(alive(process.pid) for process in orphans)
    assert reap(tmp_path) == 0


def test_a_recycled_process_id_is_never_killed(tmp_path):
    bystander = subprocess.Popen(python("import time; time.sleep(600)"), env={**os.environ, TOKEN: "another"})
    try:
        (tmp_path / "child.json").write_text(f'{{"token": "gone", "pid": {bystander.pid}}}')
        assert reap(tmp_path) == 0
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_trainer_that_catches_term_has_its_grace_to_finish(tmp_path):
    code = (
        "import pathlib, signal, sys, time\n"
        "def stop(*_):\n    pathlib.Path(sys.argv[1]).write_text('saved'); sys.exit(143)\n"
        "signal.signal(signal.SIGTERM, stop)\nprint('ready', flush=True)\ntime.sleep(600)"
    )

    def tick():
        if "ready" in (tmp_path / "output.txt").read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_child([*python(code), str(tmp_path / "saved")], folder=tmp_path, on_tick=tick, poll=0.05)
    assert (tmp_path / "saved").read_text() == "saved"


def test_a_child_dies_with_its_parent(tmp_path):
    child = (
        "import os, pathlib, sys, time\nfrom flows.machine.process import die_with_parent\ndie_with_parent()\n"
        "pathlib.Path(os.environ['READY']).write_text(str(os.getpid()))\ntime.sleep(600)"
    )
    ready = tmp_path / "ready"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path), child], env={**os.environ, "READY": str(ready)}
    )
    wait_for(lambda: ready.exists() and ready.read_text())
    pid = int(ready.read_text())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_for(lambda: not alive(pid))
