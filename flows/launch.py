"""``make run``: server, worker, deployments, one training run with live progress, the result; then stops what it started.

``python -m flows.launch [--deployment train/equalized-r2g] [-p KEY=VALUE ...]``. Exit status: the run's (0 done, 1 failed).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import URLError

import yaml

from flows.home import home, quiet
from flows.process import die_with_parent
from userrl_core.errors import ConfigError, UserRLError
from userrl_core.nearest import nearest

SERVER_SECONDS = 120
PORT = 4311


@dataclass(slots=True)
class Services:
    """What this command started, stopped in reverse order."""

    environment: dict[str, str]
    logs: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def spawn(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """A service in its own session, so that Ctrl-C reaches us alone and we stop it in order."""
        with (self.logs / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(Path(sys.executable).with_name(command[0])), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,
                preexec_fn=_die_with_us,
            )
        self.started.append(process)
        return process

    def stop(self) -> None:
        """The worker before the server, so that its runs can still report."""
        for process in reversed(self.started):
            _stop(process)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one deployment from nothing to its result."""
    parser = argparse.ArgumentParser(prog="make run", description="Train a recipe through its deployment.")
    parser.add_argument("--deployment", default="train/equalized-r2g")
    parser.add_argument(
        "-p", "--param", action="append", default=[], metavar="KEY=VALUE", help="a parameter; JSON or text"
    )
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a script's `&` made us ignore it
    try:
        parameters = dict(_parameter(text) for text in arguments.param)
        with services(arguments.deployment, lambda: check(arguments.deployment, parameters)) as running:
            return _run(running, arguments.deployment, parameters)
    except KeyboardInterrupt:
        print("\nstopped; `make run` continues from the last checkpoint")
        return 130
    except UserRLError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def check(deployment: str, parameters: dict[str, Any]) -> None:
    """Refuse what cannot work before anything is started. Raises ConfigError or CheckpointError in one sentence."""
    known_deployments = deployments()
    if deployment not in known_deployments:
        raise ConfigError(
            f"prefect.yaml has no deployment '{deployment}'{nearest(deployment, known_deployments)}; "
            "add a line for it, or run another."
        )
    flow, _, name = deployment.partition("/")
    if flow != "train":
        return
    from flows.plan import make_plan
    from flows.train import train

    known = inspect.signature(train.fn).parameters
    for key in parameters:
        if key not in known:
            raise ConfigError(f"train has no parameter '{key}'{nearest(key, known)}; it has {', '.join(known)}.")
    accepted = inspect.signature(make_plan).parameters
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the run itself says them
        make_plan(**{"recipe": name} | {key: value for key, value in parameters.items() if key in accepted})


def deployments() -> list[str]:
    """``flow/name`` of everything in prefect.yaml."""
    rows = yaml.safe_load(Path("prefect.yaml").read_text())["deployments"]
    return [f"{row['entrypoint'].rpartition(':')[2]}/{row['name']}" for row in rows]


@contextlib.contextmanager
def services(deployment: str, before: Callable[[], None] = lambda: None) -> Iterator[Services]:
    """A server, a pool with its limits, the deployment and a worker; stopped at the end unless they were there before.

    before: called when the environment is settled and nothing is started yet.
    """
    port = int(os.environ.get("USERRL_PORT", PORT))
    url = f"http://127.0.0.1:{port}/api"
    environment = quiet() | {
        "PREFECT_HOME": str(home()),
        "PREFECT_API_URL": url,
        "PREFECT_SERVER_API_PORT": str(port),
        "USERRL_HOME": str(home()),
        "PWD": str(Path.cwd()),
    }
    os.environ.update(environment)
    before()
    logs = home() / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    running = Services(environment, logs)
    try:
        _server(running, port, url)
        _once(running, "provision", sys.executable, "-m", "flows.provision")
        _once(
            running,
            "deploy",
            str(Path(sys.executable).with_name("prefect")),
            "deploy",
            "--no-prompt",
            "--name",
            deployment,
            # A sweep's trials are runs of a train deployment.
            *(("--name", "train/equalized-r2g") if deployment.startswith("sweep/") else ()),
        )
        running.spawn(
            "worker", "prefect", "worker", "start", "--pool", "gpu", "--type", "process", "--install-policy", "never"
        )
        yield running
    finally:
        with _undisturbed():
            running.stop()


def _server(running: Services, port: int, url: str) -> None:
    state = server_state(port)
    if state == "ours":
        print(f"server   http://127.0.0.1:{port} (was running)", flush=True)
        return
    if state == "taken":
        raise ConfigError(
            f"Port {port} on 127.0.0.1 is taken by another program; stop it, or choose a free one with USERRL_PORT=4312."
        )
    process = running.spawn("server", "prefect", "server", "start")
    deadline = time.monotonic() + SERVER_SECONDS
    while server_state(port) != "ours":
        if process.poll() is not None:
            last = (running.logs / "server.log").read_text(errors="replace").strip().splitlines()[-1:]
            raise ConfigError(f"The server ended at once ({''.join(last)}); see {running.logs / 'server.log'}.")
        if time.monotonic() > deadline:
            raise ConfigError(
                f"The server did not answer within {SERVER_SECONDS} s; see {running.logs / 'server.log'}."
            )
        time.sleep(0.25)
    print(f"server   http://127.0.0.1:{port}", flush=True)


def server_state(port: int) -> str:
    """``free``, ``ours`` (a healthy Prefect server with this home) or ``taken``."""
    with socket.socket() as probe:
        probe.settimeout(2.0)
        if probe.connect_ex(("127.0.0.1", port)) != 0:
            return "free"
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{port}/api/admin/settings", timeout=5) as answer:
            settings = json.load(answer)
        # A relative home is that of a server started by hand in this folder.
        theirs = Path(str(settings["home"])).expanduser()
        return "ours" if theirs.resolve() == home() else "taken"
    except (URLError, OSError, ValueError, KeyError):
        return "taken"


def _once(running: Services, name: str, *command: str) -> None:
    log = running.logs / f"{name}.log"
    with log.open("wb") as file:
        done = subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=running.environment,
            check=False,
        )
    if done.returncode:
        last = log.read_text(errors="replace").strip().splitlines()[-1:]
        raise ConfigError(f"`{name}` failed ({''.join(last)}); see {log}.")


def _run(running: Services, deployment: str, parameters: dict[str, Any]) -> int:
    from flows.live import follow  # Prefect reads its settings when it is imported: only now are they right

    return asyncio.run(follow(deployment, parameters, worker=running.started[-1], logs=running.logs))


def _parameter(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError(f"-p takes KEY=VALUE, such as -p seed=1; got '{text}'.")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, value


def _stop(process: subprocess.Popen[bytes]) -> None:
    for number, seconds in ((signal.SIGTERM, 15.0), (signal.SIGKILL, 5.0)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # what the leader left in its group


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """A second Ctrl-C must not leave half of the services behind."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _die_with_us() -> None:
    """In the child: default signals again (make and shells may have ignored SIGINT), and an end when we are killed."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with_parent()


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
