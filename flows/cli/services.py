"""The server, work pool, worker and deployments that a command starts, and stops in order when it ends.

`make run` has them for one deployment and `userrl up` for all. `userrl server` has the server and its pool alone.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from flows.server.own_server import PORT, SERVER_SECONDS, awaited_state, default_port, server_state
from flows.server.password import CLIENT, listens, password_file, write_dotenv
from flows.server.prefect_server import check_names, server_environment
from flows.server.settings import ENDS_WITH_WORKER
from flows.server.shared_server import SharedServer
from userrl.machine.home import check_writable, home
from userrl.machine.slots import lock
from userrl_core.errors import ConfigError, TrainingError
from userrl_core.json_files import read_json
from userrl_core.processes import RECORD, reap, spawn, stop_group, tagged, write_record

PYTHON = Path(sys.executable).name
WORKER_SECONDS, FLOW_SECONDS = 2.0, 0.5
"""Seconds that the worker, and then the processes it left, may take to end. With the server it takes at most 10 s."""
AGAIN = "Start the command again; a run that is started again continues from its last checkpoint."
QUEUES = ("default", "sweeps")
"""Queues that every worker of ours serves in addition to its own: trials, schedules, runs started by hand."""


@dataclass(slots=True)
class Services:
    """The processes that this command started. They are stopped in reverse order."""

    environment: dict[str, str]
    logs: Path
    port: int = PORT
    queue: str = "default"
    """The work queue that only this command's worker serves."""
    started: list[tuple[subprocess.Popen[bytes], Path]] = field(default_factory=list)
    """Each process with the folder of its record."""

    @property
    def url(self) -> str:
        """Return the address of the server, without a path."""
        return self.environment.get("PREFECT_API_URL", f"http://127.0.0.1:{self.port}/api").removesuffix("/api")

    def spawn(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Start a service that ends with this command. Ctrl-C reaches only this command, which stops services in order.

        Processes that the service starts carry its tag, in whatever session. They end with this command, or with the next one
        after a kill -9.
        """
        folder, tag = home() / "launch" / f"{name}-{self.queue}", secrets.token_hex(16)
        reap(folder)
        write_record(folder, tag)
        self.started.append((self.begin(name, *command, tag=tag), folder))
        return self.started[-1][0]

    def begin(self, name: str, *command: str, with_us: bool = True, tag: str | None = None) -> subprocess.Popen[bytes]:
        """Start a program of this environment with a new log. with_us: it is ended when this process dies."""
        program, log = Path(sys.executable).with_name(command[0]), self.log(name)
        log.unlink(missing_ok=True)
        return spawn([str(program), *command[1:]], output=log, env=self.environment, tag=tag, with_parent=with_us)

    def ended(self, name: str, process: subprocess.Popen[bytes]) -> None:
        """Wait for a program. Raises ConfigError with its last line if it failed."""
        if process.wait():
            last = self.log(name).read_text(errors="replace").strip().splitlines()[-1:]
            raise ConfigError("server.not_started", f"`{name}` failed ({''.join(last)}). See {self.log(name)}.")

    def log(self, name: str) -> Path:
        """Return the log file of a service. Each of several commands has its own worker, and so its own worker log."""
        number = self.queue.rpartition("-")[2]
        return self.logs / (
            f"worker-{number}.log" if name == "worker" and number.strip("0").isdigit() else f"{name}.log"
        )

    def check(self) -> None:
        """Raise TrainingError with one sentence if the worker or the server has ended."""
        for process, _ in self.started:
            if process.poll() is not None:
                raise TrainingError(
                    "process.died", f"The worker ended with status {process.returncode} ({self.log('worker')}). {AGAIN}"
                )
        if not listens(self.url):
            raise TrainingError("process.died", f"The server ended ({self.log('server')}). {AGAIN}")

    def processes(self) -> list[psutil.Process]:
        """Return the living processes of the worker: its flow runs and their trainers."""
        records = [read_json(folder / RECORD) or {} for _, folder in self.started]
        return [process for record in records for process in tagged(str(record.get("token")))]

    def stop(self) -> None:
        """Stop the worker before the server, so that its runs can still report."""
        for process, folder in reversed(self.started):
            stop_group(process, WORKER_SECONDS)
            reap(folder, FLOW_SECONDS)


@contextlib.contextmanager
def services(
    deployments: Sequence[str] | None,
    *,
    port: int | None = None,
    host: str = "127.0.0.1",
    names: Sequence[str] = (),
) -> Iterator[Services]:
    """Provide a server, a pool with its limits, deployments and a worker. The last command that uses the server stops it.

    deployments: names such as train/equalized-r2g; an empty sequence registers all of prefect.yaml. With None there are no
    deployments and no worker.
    host, names: the address the server listens on, and further host names that it accepts.
    """
    check_writable(home())
    port = port or default_port()
    check_names(host, names)
    environment = server_environment(port, host)
    os.environ.update(environment)
    logs = home() / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    running = Services(environment, logs, port)
    write_dotenv(environment["PREFECT_API_AUTH_STRING"], environment["PREFECT_API_URL"], home())
    with _own_queue(running), _ended_with_signals_ignored() as ending:

        def begin() -> None:
            _begin(running, deployments, (host, *names))

        ending.enter_context(SharedServer(port).in_use(begin))
        ending.callback(running.stop)
        yield running


def _begin(running: Services, deployments: Sequence[str] | None, address: Sequence[str]) -> None:
    """Start what all commands share (server, pool, queues, limits, deployments), and our worker.

    One command at a time calls this. The worker starts in parallel with the deployments, because it needs only the pool and
    the queues. Both spend seconds on imports.
    """
    # In parallel with the server, for which it waits: both take seconds to import Prefect.
    queues = QUEUES if deployments is None else (running.queue, *QUEUES)
    provisioning = running.begin("provision", PYTHON, "-m", "flows.server.provision", "--wait", *queues)
    try:
        _server(running, address)
        running.ended("provision", provisioning)
    finally:
        stop_group(provisioning, 0.0)
    if deployments is None:
        return
    deploying = running.begin("deploy", PYTHON, "-m", "flows.server.deployments", *deployments)
    # Only the worker's flows read it.
    running.environment[ENDS_WITH_WORKER] = "1"
    options = [option for queue in queues for option in ("--work-queue", queue)]
    start = ("prefect", "worker", "start", "--pool", "gpu", "--type", "process", "--install-policy", "never")
    running.spawn("worker", *start, *options)
    try:
        running.ended("deploy", deploying)
    except BaseException:
        running.stop()  # before the server, which the last command that uses it stops
        raise


@contextlib.contextmanager
def _own_queue(running: Services) -> Iterator[None]:
    """Take the first of ``run-0``, ``run-1``, ... that no other command uses. A run must not die with another
    command's worker.
    """
    folder = home() / "launch"
    folder.mkdir(parents=True, exist_ok=True)
    number, descriptor = 0, lock(folder / "run-0.lock")
    while descriptor is None:
        number += 1
        descriptor = lock(folder / f"run-{number}.lock")
    running.queue = f"run-{number}"
    try:
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _ended_with_signals_ignored() -> Iterator[contextlib.ExitStack]:
    """Provide a stack that closes with signals ignored, so that a second Ctrl-C does not leave it half closed."""
    with contextlib.ExitStack() as stack:
        try:
            yield stack
        finally:
            with _signals_ignored():
                stack.close()


def _server(running: Services, address: Sequence[str] = ("127.0.0.1",)) -> None:
    """Find the server of this home or start one. address: the host it listens on, and further names that it accepts."""
    port, log = running.port, running.log("server")
    state = awaited_state(port)
    if state == "ours":
        print(f"server   {running.url} (already running)", flush=True)
        return
    if state != "free":
        raise ConfigError("server.port_taken", taken_sentence(port, state))
    # The server's supervisor outlives us while another command uses the server.
    server = (sys.executable, "-m", "flows.server.prefect_server", str(port), *address)
    supervisor = (PYTHON, "-m", "flows.server.shared_server", str(port), *server)
    process = running.begin("server", *supervisor, with_us=False)
    deadline = time.monotonic() + SERVER_SECONDS
    while server_state(port, urlsplit(running.url).hostname or address[0]) != "ours":
        if process.poll() is not None:
            last = log.read_text(errors="replace").strip().splitlines()[-1:]
            raise ConfigError("server.not_started", f"The server ended at once ({''.join(last)}). See {log}.")
        if time.monotonic() > deadline:
            raise ConfigError("server.not_started", f"The server did not answer within {SERVER_SECONDS} s. See {log}.")
        time.sleep(0.25)
    print(f"server   {running.url} (`userrl server --password` prints the password of its page)", flush=True)


def show_server(running: Services) -> None:
    """Print the address of the server and its password."""
    # Only its owner reads a terminal; in a file or a log others could read the password.
    secret = running.environment[CLIENT] if sys.stdout.isatty() else f"in {password_file(home())}"
    print(f"password {secret} (the web page asks for it once; commands in this folder know it)", flush=True)


def taken_sentence(port: int, state: str) -> str:
    """Return the sentence that says why no server can start at a port."""
    if state == "ours":
        return f"The server of this home already runs at http://127.0.0.1:{port}. Stop it first, or use it."
    if state == "open":
        return (
            f"The Prefect server on port {port} was started without a password, by an earlier version or by hand. Stop it "
            "and its workers (Ctrl-C in their terminals), then start again."
        )
    return f"Port {port} on 127.0.0.1 is used by another program. Stop it, or choose a free port with USERRL_PORT=4313."


def stop_on_signals() -> None:
    """Let SIGTERM and Ctrl-C raise KeyboardInterrupt, also in a process that a script started with `&`."""
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def _signals_ignored() -> Iterator[None]:
    """Ignore signals, so that a second Ctrl-C does not leave services running."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt
