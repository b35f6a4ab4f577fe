"""A forked process of `tests.prepared` is like one that is started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

SAID = """
import json, os, sys
print("told", file=sys.stderr)
print(json.dumps([sys.argv, os.getcwd(), os.environ["OWN"], sys.stdin.read(), os.getppid(), "torch" in sys.modules]))
sys.exit(7)
"""
NESTED = """
import subprocess, sys
print(subprocess.run([sys.executable, "-c", "import sys; print('torch' in sys.modules)"], capture_output=True, text=True))
"""
pytestmark = pytest.mark.usefixtures("prepared")


def test_a_prepared_process_has_its_own_words_input_output_folder_environment_and_status(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SAID, "a", "b"]
    given = {**os.environ, "OWN": "x"}
    done = subprocess.run(command, env=given, cwd=tmp_path, input="asked", capture_output=True, text=True, check=False)
    assert json.loads(done.stdout) == [["-c", "a", "b"], str(tmp_path), "x", "asked", os.getpid(), True]
    assert (done.stderr, done.returncode) == ("told\n", 7)


def test_what_a_prepared_process_starts_is_prepared_too() -> None:
    done = subprocess.run([sys.executable, "-c", NESTED], capture_output=True, text=True, check=True)
    assert "returncode=0, stdout='True\\n', stderr=''" in done.stdout


def test_a_prepared_process_inherits_the_descriptors_it_is_given_and_is_killed_with_its_caller() -> None:
    reads, writes = os.pipe()
    program = f"import os, time; os.write({writes}, str(os.getpid()).encode()); time.sleep(600)"
    caller = f"""
import subprocess, sys, time
from userrl_core.processes import die_with_parent
process = subprocess.Popen([sys.executable, "-c", {program!r}], pass_fds=[{writes}], preexec_fn=die_with_parent)
process.wait()
"""
    with subprocess.Popen([sys.executable, "-c", caller], pass_fds=[writes], start_new_session=True) as process:
        os.close(writes)
        child = psutil.Process(int(os.read(reads, 64)))
        assert child.ppid() == process.pid
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert os.read(reads, 64) == b""  # nobody holds the other end
    os.close(reads)


def test_an_exception_ends_a_prepared_process_with_its_stack_and_status_1() -> None:
    done = subprocess.run([sys.executable, "-c", "1 / 0"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "ZeroDivisionError: division by zero")


def test_a_process_that_imports_under_another_environment_is_started_anew() -> None:
    given = {**os.environ, "HF_HOME": "/elsewhere"}
    command = [sys.executable, "-c", "import sys; print('torch' in sys.modules)"]
    assert subprocess.run(command, env=given, capture_output=True, text=True, check=True).stdout == "False\n"
