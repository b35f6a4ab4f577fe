"""`pytest --fast` leaves out what serves or starts a process that costs seconds, wherever the test stands."""

from __future__ import annotations

import socket
import sys
import threading

import pytest

from tests.conftest import skip_what_starts


def started(*words: str) -> None:
    skip_what_starts("subprocess.Popen", (words[0], words, None, None))


@pytest.mark.parametrize(
    "program", [sys.executable, "python3.11", "/a/.venv/bin/userrl", "prefect", "chromedriver", "initdb"]
)
def test_a_test_ends_where_it_starts_one(program: str) -> None:
    with pytest.raises(pytest.skip.Exception):
        started(program, "-c", "")


def test_a_shell_a_path_and_a_thread_are_let_through() -> None:
    started("sh", "-c", "exit 3")
    started("/home/python/bin/git", "status")
    errors: list[BaseException] = []
    thread = threading.Thread(target=lambda: started(sys.executable))
    thread.start()
    thread.join()
    assert errors == []


def test_a_test_ends_where_it_takes_a_port_and_not_where_a_library_looks_for_ipv6() -> None:
    with socket.socket() as server, pytest.raises(pytest.skip.Exception):
        skip_what_starts("socket.bind", (server, ("127.0.0.1", 0)))
    skip_what_starts("socket.bind", (None, ("::1", 0)))
