"""``make run``: start server, worker and deployment, train with live progress, show the result, and stop what was started.

``python -m flows.cli.quickstart [--deployment train/equalized-r2g] [[-p] KEY=VALUE ...]``. Exit status: that of the run
(0 done, 1 failed).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.cli.invocation import again, default_deployment, deployments
from flows.cli.result import show_result
from flows.cli.server import taken_sentence
from flows.server.own_server import PORT, SERVER_SECONDS, awaited_state, server_state
from flows.server.password import write_dotenv
from flows.server.prefect_server import server_environment
from flows.server.settings import ENDS_WITH_WORKER
from flows.server.shared_server import SharedServer
from userrl.machine.home import check_writable, home, quiet_process
from userrl.machine.slots import lock
from userrl.run.run import Run
from userrl_core.errors import ConfigError, UserRLError
from userrl_core.json_files import write_json
from userrl_core.processes import RECORD, reap, spawn, stop_group
from userrl_core.settings import Settings
from userrl_core.suggest import nearest

PYTHON = Path(sys.executable).name
WORKER_SECONDS, FLOW_SECONDS = 2.0, 0.5
"""Seconds that the worker, and then the processes it left, may take to end. With the server it takes at most 10 s."""
QUEUES = ("default", "sweeps")
"""Queues that every worker of ours serves in addition to its own: trials, schedules, runs started by hand."""


@dataclass(slots=True)
class Services:
    """The processes that this command started. They are stopped in reverse order."""

    environment: dict[str, str]
    logs: Path
    queue: str = "default"
    """The work queue that only this command's worker serves."""
    started: list[tuple[subprocess.Popen[bytes], Path]] = field(default_factory=list)
    """Each process with the folder of its record."""

    def spawn(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Start a service that ends with this command. Ctrl-C reaches only this command, which stops services in order.

        Processes that the service starts carry its tag, in whatever session. They end with this command, or with the next one
        after a kill -9.
        """
        folder, tag = home() / "launch" / f"{name}-{self.queue}", secrets.token_hex(16)
        reap(folder)
        write_json(folder / RECORD, {"token": tag})
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

    def stop(self) -> None:
        """Stop the worker before the server, so that its runs can still report."""
        for process, folder in reversed(self.started):
            stop_group(process, WORKER_SECONDS)
            reap(folder, FLOW_SECONDS)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one deployment, from starting the server to printing the result."""
    parser = argparse.ArgumentParser(prog="make run", description="Train a recipe through its deployment.")
    parser.add_argument(
        "--deployment", help="default: train/horizon-fork, and train/equalized-r2g with another profile than laptop"
    )
    parser.add_argument(
        "-p",
        "--param",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a parameter of the deployment; JSON or text",
    )
    parser.add_argument("named", nargs="*", metavar="KEY=VALUE", help="the same without -p")
    arguments = parser.parse_intermixed_args(argv)
    parameters: dict[str, Any] = {}
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a script's `&` makes a process ignore it
    try:
        parameters |= dict(parse_parameter(text) for text in (*arguments.param, *arguments.named))
        deployment = arguments.deployment or default_deployment(parameters)
        if (run := check(deployment, parameters)) is not None:
            print(f"run      {run.id} is already finished: every stage is reused, and no server was started")
            show_result(run, deployment, parameters)
            return 0
        with services(deployment) as running:
            return _run(running, deployment, parameters)
    except KeyboardInterrupt:
        stopped = again(arguments.deployment or default_deployment(parameters), parameters)
        print(f"\nstopped; `{stopped}` continues from the last checkpoint")
        return 130
    except UserRLError as error:
        print(error.line, file=sys.stderr)
        return 1


def check(deployment: str, parameters: dict[str, Any]) -> Run | None:
    """Validate the request before anything is started. Return the run if it is already finished.

    Prints the estimate of a long run. Raises ConfigError or CheckpointError with one sentence.
    """
    known_deployments = deployments()
    if deployment not in known_deployments:
        raise ConfigError(
            "server.no_deployment",
            f"prefect.yaml has no deployment '{deployment}'{nearest(deployment, known_deployments)}. Add a "
            "line for it, or run another.",
        )
    flow = deployment.partition("/")[0]
    check_writable(home())
    quiet_process()
    request = request_of(deployment, parameters)
    if flow == "train":
        from userrl.run.plan import plan_run
        from userrl.stages.here import finished

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the run itself prints them
            plan = plan_run(request)
        done = finished(plan)
        if outdated := plan.outdated:
            print(f"{outdated} A new generation begins.", flush=True)
        if done is None and plan.estimate is not None:
            print(plan.estimate, flush=True)
        return done
    return None


def request_of(deployment: str, parameters: Mapping[str, Any]) -> Any:
    """Return the request of a deployment's flow; None for a flow without one. Raises ConfigError that names every fault."""
    from userrl.run import request as requests

    models: dict[str, type[Settings]] = {
        "train": requests.TrainRequest,
        "distill": requests.DistillRequest,
        "evaluate": requests.EvaluateRequest,
        "sweep": requests.SweepRequest,
    }
    flow, defaults = deployment.partition("/")[0], deployments().get(deployment, {})
    return requests.requested(models[flow], {**defaults, **parameters}, flow) if flow in models else None


@contextlib.contextmanager
def services(deployment: str) -> Iterator[Services]:
    """Provide a server, a pool with its limits, the deployment and a worker. The last command that uses the server stops it."""
    check_writable(home())
    port = int(os.environ.get("USERRL_PORT", PORT))
    environment = server_environment(port)
    os.environ.update(environment)
    logs = home() / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    running = Services(environment, logs)
    write_dotenv(environment["PREFECT_API_AUTH_STRING"], environment["PREFECT_API_URL"], home())
    with _own_queue(running), _ended_with_signals_ignored() as ending:
        ending.enter_context(SharedServer(port).in_use(lambda: _begin(running, deployment, port)))
        ending.callback(running.stop)
        yield running


def _begin(running: Services, deployment: str, port: int) -> None:
    """Start what all commands share (server, pool, queues, limits, deployments), and our worker.

    One command at a time calls this. The worker starts in parallel with the deployment, because it needs only the pool and
    the queues. Both spend seconds on imports.
    """
    # In parallel with the server, for which it waits: both take seconds to import Prefect.
    provisioning = running.begin(
        "provision", PYTHON, "-m", "flows.server.provision", "--port", str(port), running.queue, *QUEUES
    )
    try:
        _server(running, port)
        running.ended("provision", provisioning)
    finally:
        stop_group(provisioning, 0.0)
    # A sweep's trials are runs of a train deployment.
    also = ("train/equalized-r2g",) if deployment.startswith("sweep/") else ()
    deploying = running.begin("deploy", PYTHON, "-m", "flows.server.deployments", deployment, *also)
    queues = [option for queue in (running.queue, *QUEUES) for option in ("--work-queue", queue)]
    # Only the worker's flows read it.
    running.environment[ENDS_WITH_WORKER] = "1"
    worker = ("prefect", "worker", "start", "--pool", "gpu", "--type", "process", "--install-policy", "never")
    running.spawn("worker", *worker, *queues)
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


def _server(running: Services, port: int) -> None:
    state = awaited_state(port)
    if state == "ours":
        print(f"server   http://127.0.0.1:{port} (already running)", flush=True)
        return
    if state != "free":
        raise ConfigError("server.port_taken", taken_sentence(port, state))
    # The server's supervisor outlives us while another command uses the server.
    server = (sys.executable, "-m", "flows.server.prefect_server", str(port))
    supervisor = (PYTHON, "-m", "flows.server.shared_server", str(port), *server)
    process = running.begin("server", *supervisor, with_us=False)
    deadline = time.monotonic() + SERVER_SECONDS
    while server_state(port) != "ours":
        if process.poll() is not None:
            last = (running.logs / "server.log").read_text(errors="replace").strip().splitlines()[-1:]
            raise ConfigError(
                "server.not_started", f"The server ended at once ({''.join(last)}). See {running.logs / 'server.log'}."
            )
        if time.monotonic() > deadline:
            raise ConfigError(
                "server.not_started",
                f"The server did not answer within {SERVER_SECONDS} s. See {running.logs / 'server.log'}.",
            )
        time.sleep(0.25)
    print(f"server   http://127.0.0.1:{port} (`userrl server --password` prints the password of its page)", flush=True)


def _run(running: Services, deployment: str, parameters: dict[str, Any]) -> int:
    from flows.cli.watch import follow  # Prefect reads its settings when it is imported: only now are they right

    worker, log = running.started[-1][0], running.log("worker")
    return asyncio.run(follow(deployment, parameters, worker=worker, queue=running.queue, log=log))


def parse_parameter(text: str) -> tuple[str, Any]:
    """Return a parameter of ``KEY=VALUE``. The value is JSON or a text. Raises ConfigError for anything else."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError("argument.malformed", f"-p needs KEY=VALUE, such as -p seed=1, not '{text}'.")
    try:
        return key, json.loads(value)
    except (ValueError, RecursionError):  # the first also for an integer of thousands of digits
        if value[:1] in ("{", "["):
            raise ConfigError(
                "argument.malformed",
                f"The value of {key} is not valid JSON: {value}. The shell removes double quotes. Put single quotes around "
                "the value: "
                f"""make run {key}='{{"credit.gamma": 0.5}}'.""",
            ) from None
        return key, value


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


if __name__ == "__main__":
    sys.exit(main())
