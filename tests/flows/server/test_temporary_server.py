"""The temporary server of a flow that is called as a function is that process's own, whoever else takes its port."""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flows.server.own_server import takes
from flows.server.password import SERVER, made
from flows.server.temporary_server import PORTS, TRIES, meet_no_other_server
from tests.flows.server.locked_stand_in import locked_server
from tests.makers import raises
from tests.places import ROOT
from tests.ports import free_port

if TYPE_CHECKING:
    from prefect.server.api.server import SubprocessASGIServer

STAND_IN = Path(__file__).with_name("locked_stand_in.py")


@pytest.fixture
def other() -> Iterator[int]:
    """The port of another home's server, which took it just before ours."""
    port = free_port()
    with locked_server(port, made()) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield port
        server.shutdown()
        thread.join()


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[SubprocessASGIServer]:
    """A temporary server whose program starts quickly."""
    from prefect.server.api.server import SubprocessASGIServer  # takes seconds, and every worker imports this module

    secret = made()
    monkeypatch.setenv(SERVER, secret)
    for name in ("_port_range", "start"):
        monkeypatch.setattr(SubprocessASGIServer, name, getattr(SubprocessASGIServer, name))
    meet_no_other_server()

    def run(self: SubprocessASGIServer) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, str(STAND_IN), str(self.port), secret], stderr=subprocess.DEVNULL)

    monkeypatch.setattr(SubprocessASGIServer, "_run_uvicorn_command", run)
    server = SubprocessASGIServer()
    yield server
    server.stop()


def test_a_port_that_another_home_s_server_took_meanwhile_is_left(
    temporary: SubprocessASGIServer, other: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = iter([other, other, free_port()])
    monkeypatch.setattr(temporary, "find_available_port", lambda: next(chosen))
    temporary.start(30)
    assert temporary.port != other
    assert takes(temporary.address, os.environ[SERVER])
    temporary.start(30)
    assert next(chosen, "none") == "none", "a server that runs is not started again"


def test_without_a_port_of_its_own_a_flow_says_so(
    temporary: SubprocessASGIServer, other: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(temporary, "find_available_port", lambda: asked.append(other) or other)
    with raises("server.not_started"):
        temporary.start(30)
    assert len(asked) == TRIES
    assert not temporary.running


def test_ports_of_temporary_servers_are_wide_and_set_once(temporary: SubprocessASGIServer) -> None:
    kind = type(temporary)
    start = kind.__dict__["start"]
    meet_no_other_server()
    assert kind.__dict__["start"] is start
    assert kind._port_range is PORTS


def test_a_stranger_on_the_port_is_asked_once_by_all_modules_with_flows(tmp_path: Path) -> None:
    callers: queue.Queue[object] = queue.Queue()
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, caller = stranger.accept()
                    connection.close()
                    callers.put(caller)

        threading.Thread(target=answer, daemon=True).start()
        (tmp_path / "prefect.toml").write_text(f'[api]\nurl = "http://127.0.0.1:{port}/api"\n')
        environ = {
            k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")
        }  # a password changes what is asked
        environ |= {"USERRL_HOME": str(tmp_path), "USERRL_PORT": str(port), "PYTHONPATH": str(ROOT)}
        code = "import flows.train, flows.server.settings as s, os; os.environ.pop(s.URL); s.settle()"
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environ, check=True)
        with socket.create_connection(("127.0.0.1", port)) as last:  # once it was answered, all before it were
            asked = len(list(iter(callers.get, last.getsockname())))
    assert asked == 2  # whether something listens, and whether it is ours
