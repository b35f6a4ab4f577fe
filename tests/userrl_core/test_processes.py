"""Supervision of real processes: what ends, what is found again, and what never outlives its parent."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.makers import raises
from tests.waits import wait_for
from userrl_core.processes import (
    RECORD,
    TAGS,
    ProcessDied,
    is_alive,
    last_words,
    living,
    reap,
    run,
    spawn,
    start,
    stop_group,
    tagged,
)

PARENT = """
import os, pathlib, sys
from userrl_core.processes import run
run([sys.executable, "-c", sys.argv[2]], pathlib.Path(sys.argv[1]), name="it", grace=5)
"""
STUBBORN = """
import os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
pathlib.Path(os.environ["READY"]).write_text(str(os.getpid()))
time.sleep(600)
"""


def python(code):
    return [sys.executable, "-c", code]


def token_of(folder: Path) -> str:
    return str(json.loads((folder / RECORD).read_text())["token"])


def test_a_child_that_ends_well_leaves_its_output_and_no_record(tmp_path):
    run(python("print('hello')"), tmp_path, name="it")
    assert (tmp_path / "output.txt").read_text() == "hello\n"
    assert not (tmp_path / RECORD).exists()


def test_a_child_s_own_sentence_becomes_the_error(tmp_path):
    with raises("log.cannot_write") as caught:
        run(python("print('error: The disk is full. [log.cannot_write]'); raise SystemExit(1)"), tmp_path, name="it")
    assert str(caught.value) == "The disk is full."
    assert not isinstance(caught.value, ProcessDied)


def test_a_child_that_dies_without_a_word_is_named_with_its_signal(tmp_path):
    with raises("process.died", "signal 9"):
        run(python("import os; os.kill(os.getpid(), 9)"), tmp_path, name="it")


def test_an_error_of_an_earlier_child_is_not_taken_for_this_one(tmp_path):
    with raises("process.failed"):
        run(python("print('error: the first'); raise SystemExit(1)"), tmp_path, name="it")
    with raises("process.died", "status 3"):
        run(python("raise SystemExit(3)"), tmp_path, name="it")


def test_an_interrupted_parent_takes_the_whole_tree_with_it(tmp_path, monkeypatch):
    monkeypatch.setenv("READY", str(tmp_path / "ready"))
    seen = []

    def tick():
        if (tmp_path / "ready").exists():
            seen.append(token_of(tmp_path))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(python(STUBBORN), tmp_path, name="it", on_tick=tick, grace=0.2, poll=0.05)
    assert tagged(seen[0]) == []


def test_what_a_killed_parent_left_is_reaped_by_the_next_start(tmp_path, monkeypatch):
    monkeypatch.setenv("READY", str(tmp_path / "ready"))
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path), STUBBORN])
    wait_for(lambda: (tmp_path / "ready").exists())
    token = token_of(tmp_path)
    parent.kill()
    parent.wait()
    orphans = tagged(token)
    assert len(orphans) == 2  # the child ignored TERM, the grandchild left its group
    assert reap(tmp_path, grace=0.2) == 2
    assert not any(is_alive(process.pid) for process in orphans)
    assert reap(tmp_path) == 0


def test_a_recycled_process_id_is_never_killed(tmp_path):
    bystander = subprocess.Popen(python("import time; time.sleep(600)"), env={**os.environ, TAGS: "another"})
    try:
        (tmp_path / RECORD).write_text(f'{{"token": "gone", "pid": {bystander.pid}}}')
        assert reap(tmp_path) == 0
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_copy_of_a_folder_does_not_end_the_child_of_the_original_and_a_moved_folder_does(tmp_path):
    original, copy = tmp_path / "original", tmp_path / "copy"
    child = start(python("import time; time.sleep(600)"), original)
    try:
        shutil.copytree(original, copy)
        assert (living(copy), reap(copy), living(original)) == (False, 0, True)
        original.rename(tmp_path / "moved")
        assert (reap(tmp_path / "moved"), is_alive(child.process.pid)) == (1, False)
    finally:
        stop_group(child.process, 0)


def test_the_record_of_an_earlier_version_which_names_no_folder_is_reaped(tmp_path):
    child = start(python("import time; time.sleep(600)"), tmp_path)
    try:
        (tmp_path / RECORD).write_text(f'{{"token": "{token_of(tmp_path)}"}}')
        assert (living(tmp_path), reap(tmp_path)) == (True, 1)
    finally:
        stop_group(child.process, 0)


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
        run([*python(code), str(tmp_path / "saved")], tmp_path, name="it", on_tick=tick, grace=20, poll=0.05)
    assert (tmp_path / "saved").read_text() == "saved"


def test_a_child_dies_with_its_parent(tmp_path):
    child = (
        "import os, pathlib, sys, time\nfrom userrl_core.processes import die_with_parent\ndie_with_parent()\n"
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
    wait_for(lambda: not is_alive(pid))


@pytest.mark.parametrize("term", ["signal.SIG_DFL", "signal.SIG_IGN"])
def test_a_process_that_watches_its_parent_ends_after_it_even_if_it_ignores_term(tmp_path, term):
    child = (
        "import os, pathlib, signal, time\nfrom userrl_core.processes import end_with_parent\n"
        f"signal.signal(signal.SIGTERM, {term})\nend_with_parent(poll=0.02, grace=0.1)\n"
        "pathlib.Path(os.environ['READY']).write_text(str(os.getpid()))\ntime.sleep(600)"
    )
    ready = tmp_path / "ready"
    parent = subprocess.Popen(
        [sys.executable, "-c", "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])", child],
        env={**os.environ, "READY": str(ready)},
    )
    wait_for(lambda: ready.exists() and ready.read_text())
    pid = int(ready.read_text())
    parent.kill()
    parent.wait()
    wait_for(lambda: not is_alive(pid))


def test_a_failed_command_ends_in_its_last_words_and_leaves_nothing(tmp_path):
    child = "import subprocess,sys; subprocess.Popen([sys.executable,'-c','import time; time.sleep(600)'],start_new_session=True)"
    seen = []

    def tick():
        seen.append(token_of(tmp_path))

    with raises("process.died", "status 3") as raised:
        run(python(f"{child}; print('the last line'); sys.exit(3)"), tmp_path, name="it", on_tick=tick, poll=0.05)
    assert "the last line" in str(raised.value)
    assert tagged(seen[0]) == []
    code = "import sys; sys.stderr.write('[pid=3] ValueError: seven is no seed\\nbye\\n'); sys.exit(1)"
    with raises("process.died", "it ended with status 1. ValueError: seven is no seed (output: "):
        run(python(code), tmp_path, name="it")


def test_a_silent_child_is_stopped(tmp_path):
    with raises("process.stalled", "it wrote no output for 0.2 s", "is empty"):
        run(python("import time; time.sleep(600)"), tmp_path, name="it", stall=0.2, poll=0.05)


def test_a_child_of_a_tagged_process_carries_both_tags_and_its_scratch_folder_goes_with_it(tmp_path, monkeypatch):
    monkeypatch.setenv(TAGS, "outer")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    inner = []

    def tick():
        inner[:] = inner or [token_of(tmp_path)]
        assert {p.pid for p in tagged("outer")} >= {p.pid for p in tagged(inner[0])} != set()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(python("import time; time.sleep(600)"), tmp_path, name="it", on_tick=tick, scratch=scratch, poll=0.05)
    assert tagged(inner[0]) == tagged("outer") == []
    assert not scratch.exists()


def test_a_tag_is_matched_whole(tmp_path):
    process = spawn(python("import time; time.sleep(600)"), output=tmp_path / "log", tag="trial-1-attempt10")
    try:
        assert tagged("trial-1-attempt1") == []
        assert [found.pid for found in tagged("trial-1-attempt10")] == [process.pid]
    finally:
        process.kill()
        process.wait()


def test_words_of_an_earlier_child_are_not_its_last_ones(tmp_path):
    output = tmp_path / "output.txt"
    output.write_text("RuntimeError: of old\nnew one\n")
    assert last_words(output, began=len("RuntimeError: of old\n")) == f"Output: {output}.\nIts last lines:\nnew one"
