"""Forked workers: each with its own tag, output, status and death."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.makers import raises
from tests.waits import wait_for
from userrl_core import processes
from userrl_core.fork_server import AVAILABLE, Fork, ForkServer

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="forks are for Linux")


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    opened = ForkServer("tests.userrl_core.forked_worker", {})
    yield opened
    opened.close()


def fork(server: ForkServer, folder: Path, word: str, tag: str = "a" * 32) -> Fork:
    return server.spawn(["worker", word], output=folder / "output.txt", env={"EXTRA": "more"}, tag=tag)


def test_a_fork_has_its_own_output_environment_and_status(server: ForkServer, tmp_path: Path) -> None:
    first, second = fork(server, tmp_path, "0"), fork(server, tmp_path, "3")
    assert (first.wait(60), second.wait(60)) == (0, 3)
    said = (tmp_path / "output.txt").read_text().splitlines()
    assert sorted(said) == sorted(f"said by {child.pid} with more" for child in (first, second))


def test_what_nobody_catches_ends_in_a_traceback_and_status_1(server: ForkServer, tmp_path: Path) -> None:
    assert fork(server, tmp_path, "raise").wait(60) == 1
    assert (tmp_path / "output.txt").read_text().splitlines()[-1] == "ValueError: as asked"


def test_a_fork_is_found_by_its_own_tag_and_killed_alone(server: ForkServer, tmp_path: Path) -> None:
    one, other = fork(server, tmp_path, "wait", "b" * 32), fork(server, tmp_path, "wait", "c" * 32)
    wait_for(lambda: len((tmp_path / "output.txt").read_text().splitlines()) == 2)
    assert [process.pid for process in processes.tagged("b" * 32)] == [one.pid]
    assert os.getpgid(one.pid) == one.pid != os.getpgid(other.pid)
    os.kill(one.pid, signal.SIGKILL)
    assert one.wait(60) == -signal.SIGKILL
    assert [process.pid for process in processes.tagged("c" * 32)] == [other.pid]
    processes.stop_group(other, 0.0)
    assert processes.tagged("c" * 32) == []


def test_a_run_by_fork_ends_as_a_run_by_process_does(server: ForkServer, tmp_path: Path) -> None:
    with raises("process.died", "status 5"):
        processes.run(["worker", "5"], tmp_path, name="The worker", by=server.spawn)
    assert not (tmp_path / processes.RECORD).exists()


def test_forks_end_with_a_killed_server_and_later_ones_are_refused(tmp_path: Path) -> None:
    server = ForkServer("tests.userrl_core.forked_worker", {})
    child = fork(server, tmp_path, "wait")
    wait_for(lambda: (tmp_path / "output.txt").read_text() != "")
    parent = psutil.Process(child.pid).ppid()
    os.kill(parent, signal.SIGKILL)
    assert child.wait(60) == -signal.SIGKILL
    wait_for(lambda: not processes.is_alive(child.pid))
    with pytest.raises(OSError):
        fork(server, tmp_path, "0")
    server.close()
