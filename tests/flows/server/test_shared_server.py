"""Several `make run` at once: the server is there as long as any of them is, and no longer; real processes all of them."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from flows.cli.services import Services, _server
from flows.server.own_server import server_state
from flows.server.shared_server import SharedServer
from tests.makers import raises
from tests.ports import free_port
from tests.waits import wait_for
from userrl.machine.slots import alone, held
from userrl_core.processes import is_alive

LAUNCHER = """
import subprocess, sys, time
from pathlib import Path
from flows.server.shared_server import SharedServer
from userrl.machine.slots import held

shared, told = SharedServer(1), Path(sys.argv[1])
server = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"

def begin():
    if held(shared.file("keeper")):
        print("found", flush=True)
        return
    told.unlink(missing_ok=True)
    command = [sys.executable, "-m", "flows.server.shared_server", "1", sys.executable, "-c", server, str(told)]
    subprocess.Popen(command, start_new_session=True)
    while not told.is_file() or not told.read_text():
        time.sleep(0.02)
    print("started", flush=True)

with shared.in_use(begin):
    sys.stdin.read()
print("left", flush=True)
"""
"""What `make run` does about the server, with a sleeping process in its place."""


@pytest.fixture
def launch(tmp_path, monkeypatch):
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    running = []

    def start():
        running.append(
            subprocess.Popen(
                [sys.executable, "-c", LAUNCHER, str(tmp_path / "pid")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def begun(process):
    return process.stdout.readline().strip()


def leave(process):
    process.stdin.close()
    assert process.stdout.readline() == "left\n"


def server(home):
    return int((home / "pid").read_text())


def test_the_server_outlives_the_command_that_started_it_and_ends_with_the_last(launch, tmp_path):
    first = launch()
    assert begun(first) == "started"
    second = launch()
    assert begun(second) == "found"
    pid = server(tmp_path)
    leave(first)
    assert psutil.pid_exists(pid)
    assert held(SharedServer(1).file("keeper"))
    leave(second)
    assert not held(SharedServer(1).file("keeper"))  # it waited for the end
    wait_for(lambda: not is_alive(pid))


def test_the_server_outlives_a_killed_command_and_ends_when_the_last_is_killed(launch, tmp_path):
    first = launch()
    assert begun(first) == "started"
    second = launch()
    assert begun(second) == "found"
    pid = server(tmp_path)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    third = launch()
    assert begun(third) == "found"
    leave(third)
    assert psutil.pid_exists(pid)
    os.kill(second.pid, signal.SIGKILL)
    second.wait()
    wait_for(lambda: not is_alive(pid))
    wait_for(lambda: not held(SharedServer(1).file("keeper")))  # which ends after the server
    again = launch()
    assert begun(again) == "started"
    leave(again)


def test_no_process_with_the_id_of_a_supervisor_on_another_machine_is_ended(tmp_path, monkeypatch):
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    monkeypatch.setattr("flows.server.shared_server.STOP_SECONDS", 0.05)
    keeper = SharedServer(1).file("keeper")
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        with alone(keeper, "it"):
            keeper.write_text(json.dumps({"pid": bystander.pid}))
            with SharedServer(1).in_use(lambda: None):
                pass
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_two_that_begin_together_start_one_server(launch):
    said = sorted(begun(process) for process in [launch(), launch(), launch()])
    assert said == ["found", "found", "started"]


def test_a_killed_supervisor_takes_its_server_along(launch, tmp_path):
    first = launch()
    assert begun(first) == "started"
    pid = server(tmp_path)
    supervisor = psutil.Process(pid).parent()
    assert supervisor is not None
    supervisor.kill()
    wait_for(lambda: not is_alive(pid))
    leave(first)


def test_each_command_s_worker_has_a_log_of_its_own():
    logs = Path("logs")
    assert [
        Services({}, logs, queue=queue).log("worker").name for queue in ("default", "run-0", "run-1", "run-10")
    ] == [
        "worker.log",
        "worker.log",
        "worker-1.log",
        "worker-10.log",
    ]
    assert Services({}, logs, queue="run-1").log("deploy").name == "deploy.log"


def test_a_kept_server_that_is_too_busy_to_answer_at_once_is_no_stranger(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    answers = [(503, {}), (503, {}), (401, {}), (200, {"home": str(tmp_path)})]

    class Busy(BaseHTTPRequestHandler):
        def do_GET(self):
            status, settings = answers.pop(0)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(settings).encode())

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Busy) as busy:
        port = busy.server_address[1]
        threading.Thread(target=busy.serve_forever, daemon=True).start()
        with alone(SharedServer(port).file("keeper"), "the keeper's lock"):
            _server(Services({}, tmp_path, port))
        assert answers == []
        answers.append((503, {}))
        with raises("server.port_taken"):
            _server(Services({}, tmp_path, port))
        busy.shutdown()
    assert capsys.readouterr().out == f"server   http://127.0.0.1:{port} (already running)\n"


def test_a_server_of_an_earlier_version_without_a_password_is_refused_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))

    class Open(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"home": str(tmp_path)}).encode())

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Open) as earlier:
        port = earlier.server_address[1]
        threading.Thread(target=earlier.serve_forever, daemon=True).start()
        assert server_state(port) == "open"
        with raises("server.port_taken"):
            _server(Services({}, tmp_path, port))
        earlier.shutdown()


@pytest.mark.parametrize("said", [b"220 mail.example ESMTP\r\n", b"HTTP/1.0 200 OK\r\n\r\n[]"])
def test_a_port_where_something_else_answers_is_taken(said):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        def answer():
            for _ in range(2):  # whether anybody listens, then the question
                with contextlib.suppress(OSError), other.accept()[0] as connection:
                    connection.recv(4096)
                    connection.sendall(said)

        answering = threading.Thread(target=answer)
        answering.start()
        assert server_state(port) == "taken"
        answering.join()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_commands_at_once_both_reach_their_result_and_leave_nothing(tmp_path):
    port = free_port()
    environment = {**os.environ, "USERRL_HOME": str(tmp_path), "USERRL_PORT": str(port)}
    environment.pop("PREFECT_API_URL", None)

    def command():
        return subprocess.Popen(
            [sys.executable, "-m", "flows.cli.quickstart", "--deployment", "maintain/warehouse"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    first = command()
    assert first.stdout.readline().startswith(f"server   http://127.0.0.1:{port} ")
    second = command()
    said = {process: process.communicate(timeout=1000)[0] for process in (first, second)}
    assert (first.returncode, second.returncode) == (0, 0), said
    assert "(already running)" in said[second]
    assert server_state(port) == "free"
    assert sorted(path.name for path in (tmp_path / "logs").glob("worker*")) == ["worker-1.log", "worker.log"]
