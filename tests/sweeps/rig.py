"""A Prefect server with workers in a home of its own, killable at any moment."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml

from flows.server.password import CLIENT, locked, password
from tests.migrated import migrate
from tests.places import ROOT
from tests.ports import free_port as free_port
from tests.waits import wait_for

REPOSITORY = ROOT

SMALL: dict[str, Any] = {
    "demonstrations.episodes": 60,
    "demonstrations.top_k": 40,
    "cold_start.steps": 10,
    "algorithm.batch": 2,
    "algorithm.group": 4,
    "evaluate.every": 2,
    "evaluate.tasks": 4,
    "evaluate.validation_tasks": 4,
    "stages": [{"steps": 4, "horizon": 4, "mix": {"travel": 1}}],
}
"""A training of a few seconds: one stage of four steps."""

TINY = SMALL | {"demonstrations.episodes": 20, "demonstrations.top_k": 12, "cold_start.steps": 2}
"""The same for a test of what is around a training."""


def small_space(folder: Path, name: str = "tiny", **fields: Any) -> Path:
    """A space file of four gammas over a training of a few seconds."""
    values: dict[str, Any] = {
        "name": name,
        "source": "ours",
        "recipe": "equalized-r2g",
        "overrides": SMALL,
        "parameters": {"gamma": {"key": "credit.gamma", "options": [0.6, 0.7, 0.8, 0.9]}},
        "sampler": {"name": "grid"},
        "budget": {"trials": 4},
        "pruning": {"enabled": False},
        "confirm": {"top": 1, "seeds": [101]},
        **fields,
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


class Machine:
    """Everything that runs carries the home in its environment, so that all of it can be found and killed."""

    def __init__(self, home: Path, slots: str = "cpu-0,cpu-1", **environment: str) -> None:
        self.home = home
        self.port = free_port()
        self.logs = home / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        migrate(home / "prefect")
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("PREFECT_")},
            "USERRL_HOME": str(home),
            "USERRL_SLOTS": slots,
            "USERRL_THREADS": "1",
            "PREFECT_HOME": str(home / "prefect"),
            "PREFECT_API_URL": self.url,
            "PREFECT_SERVER_API_PORT": str(self.port),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "DO_NOT_TRACK": "1",
            "PWD": str(REPOSITORY),
            **locked(password(home)),
            **environment,
        }

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api"

    @property
    def login(self) -> tuple[str, str]:
        name, _, secret = self.environment[CLIENT].partition(":")
        return name, secret

    def server(self) -> None:
        self.spawn("server", sys.executable, "-m", "flows.server.prefect_server", str(self.port))
        wait_for(self.healthy, 300, "the server's answer")

    def healthy(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=2.0, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    def provision(self, *deployments: str) -> None:
        self.once(sys.executable, "-m", "flows.server.provision")
        names = [part for name in deployments for part in ("--name", name)]
        self.once("prefect", "deploy", "--no-prompt", *names)

    def worker(self, name: str, *options: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        command = ("prefect", "worker", "start", "--pool", "gpu", "--type", "process", "--install-policy", "never")
        return self.spawn(name, *command, "--name", name, *options, environment=environment)

    def run(self, deployment: str, **parameters: Any) -> str:
        """The id of a new flow run."""
        flow, _, name = deployment.partition("/")
        found = self.post(f"deployments/name/{flow}/{name}", method="GET")
        # With a key of its own, a request that is sent again asks for the same flow run.
        body = {"parameters": parameters, "state": {"type": "SCHEDULED"}, "idempotency_key": uuid.uuid4().hex}
        return str(self.post(f"deployments/{found['id']}/create_flow_run", body)["id"])

    def state(self, flow_run: str) -> str:
        return str(self.post(f"flow_runs/{flow_run}", method="GET")["state"]["type"])

    def logged(self, flow_run: str) -> str:
        """What a flow run said, for a failed test."""
        wanted = {"logs": {"flow_run_id": {"any_": [flow_run]}}, "sort": "TIMESTAMP_ASC", "limit": 200}
        return "\n".join(str(line["message"]) for line in self.post("logs/filter", wanted))

    def flow_runs(self, **filters: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.post("flow_runs/filter", {"limit": 200, **filters})
        return found

    def post(self, path: str, body: Mapping[str, Any] | None = None, method: str = "POST") -> Any:
        for _ in range(30):  # SQLite answers 503 while it is busy; Prefect's own client asks again too
            with contextlib.suppress(httpx.TransportError):
                with httpx.Client(base_url=self.url, timeout=60.0, trust_env=False, auth=self.login) as client:
                    csrf = client.get("csrf-token", params={"client": "rig"})
                    headers = {"Prefect-Csrf-Client": "rig", "Prefect-Csrf-Token": csrf.json().get("token", "")}
                    answer = client.request(method, path, json=body, headers=headers)
                if answer.status_code != 503:
                    answer.raise_for_status()
                    return answer.json() if answer.content else None
            time.sleep(1.0)
        raise AssertionError(f"the server does not take {method} {path}: {self.said()}")

    def spawn(self, name: str, *command: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        with (self.logs / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                self.found(command),
                cwd=REPOSITORY,
                env={**self.environment, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_default_signals,
            )

    def once(self, *command: str) -> str:
        done = subprocess.run(
            self.found(command),
            cwd=REPOSITORY,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    @staticmethod
    def found(command: tuple[str, ...]) -> list[str]:
        program = Path(sys.executable).parent / command[0]
        return [str(program) if program.exists() else command[0], *command[1:]]

    def processes(self) -> list[psutil.Process]:
        """Those that live: what ended a moment ago, or only waits to be buried, is none."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                ours = process.pid != os.getpid() and process.environ().get("USERRL_HOME") == str(self.home)
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def trainers(self) -> list[psutil.Process]:
        """Those that work at a stage, not what they are forked from."""
        found = []
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                forks = "--fork-server" in process.cmdline()
                parent = process.parent()
                forked = forks and parent is not None and "--fork-server" in parent.cmdline()
                if "userrl.worker.main" in process.cmdline() and forked == forks:
                    found.append(process)
        return found

    def kill_everything(self) -> int:
        """SIGKILL to server, workers, flows and trainers, until none is left."""
        count = 0
        while alive := self.processes():
            for process in alive:
                with contextlib.suppress(psutil.Error):
                    process.kill()
                    count += 1
            psutil.wait_procs(alive, timeout=5.0)
        return count

    def said(self) -> str:
        """The ends of all logs, for a failed test."""
        return "\n".join(f"== {p.name}\n{p.read_text(errors='replace')[-3000:]}" for p in sorted(self.logs.iterdir()))


def results(home: Path) -> dict[str, int]:
    """When each stage's result was written, by its path."""
    return {str(path): path.stat().st_mtime_ns for path in home.glob("runs/*/stages/*/result.json")}


def run_status(home: Path, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((home / "runs" / run_id / "status.json").read_text())
    return found


def _default_signals() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
