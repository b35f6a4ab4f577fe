"""Survival of a run when a process dies: each row of docs/operations.md, tried for real.

``python -m lab.checks.durability flow|worker|term|everything|server|cancel|slot ...`` from the repository's root. It starts
its own server on port 4390 with its own home, and prints actions and observations, with seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

HOME = Path(tempfile.gettempdir()) / "userrl-durability"
PORT = 4390
OUTAGE_SECONDS = int(os.environ.get("OUTAGE_SECONDS", "130"))
os.environ |= {"USERRL_HOME": str(HOME), "USERRL_PORT": str(PORT), "USERRL_THREADS": "1"}

from flows.server.own_server import server_state  # noqa: E402
from flows.server.password import CHOSEN, made  # noqa: E402  the environment comes first
from flows.server.prefect_server import server_environment  # noqa: E402

os.environ[CHOSEN] = made()  # the home is emptied below
os.environ |= server_environment(PORT)

from prefect.client.orchestration import get_client  # noqa: E402
from prefect.deployments import run_deployment  # noqa: E402
from prefect.states import Cancelling  # noqa: E402

from flows.cli.quickstart import Services, deployments  # noqa: E402
from userrl.run.run import of_flow_run  # noqa: E402
from userrl_core.json_files import read_json  # noqa: E402
from userrl_core.processes import tagged  # noqa: E402

OVERRIDES = {
    "demonstrations.episodes": 120,
    "demonstrations.top_k": 80,
    "cold_start.steps": 40,
    "algorithm.batch": 3,
    "algorithm.group": 4,
    "evaluate.every": 5,
    "evaluate.tasks": 12,
    "evaluate.validation_tasks": 8,
    "stages": [{"steps": 5, "horizon": 4, "mix": {"travel": 1}}, {"steps": 400, "horizon": 5, "mix": {"travel": 1}}],
}
BEGAN = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - BEGAN:7.1f} s  {text}", flush=True)


def wait(what: str, condition: Callable[[], Any], seconds: float = 300.0) -> Any:
    """Wait for a condition, and print how long it took."""
    began = time.monotonic()
    while not (value := condition()):
        if time.monotonic() - began > seconds:
            raise SystemExit(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.1)
    say(f"{what} ({time.monotonic() - began:.1f} s)")
    return value


class Lab:
    """A server, a worker and one long run."""

    def __init__(self) -> None:
        shutil.rmtree(HOME, ignore_errors=True)
        (HOME / "logs").mkdir(parents=True)
        self.services = Services(dict(os.environ), HOME / "logs")
        self.server = self.start_server()
        subprocess.run([sys.executable, "-m", "flows.server.provision"], check=True)
        assert "train/equalized-r2g" in deployments()
        prefect = str(Path(sys.executable).with_name("prefect"))
        command = [prefect, "deploy", "--no-prompt", "--name", "train/equalized-r2g"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        self.worker = self.start_worker()

    def start_server(self) -> subprocess.Popen[bytes]:
        process = self.services.spawn(
            "server", Path(sys.executable).name, "-m", "flows.server.prefect_server", str(PORT)
        )
        wait("server up", lambda: server_state(PORT) == "ours")
        return process

    def start_worker(self) -> subprocess.Popen[bytes]:
        return self.services.spawn("worker", "prefect", "worker", "start", "--pool", "gpu", "--type", "process")

    def run(self, **parameters: Any) -> str:
        """Start the deployment and return its flow run's id."""
        given = {"overrides": OVERRIDES, "wandb": "off", **parameters}
        started: Any = run_deployment("train/equalized-r2g", parameters=given, timeout=0, as_subflow=False)
        say(f"started flow run {started.name}")
        return str(started.id)

    def step(self, flow_run: str) -> int:
        run = of_flow_run(flow_run)
        lines = (
            (run.stage("rl-2") / "progress.jsonl").read_text().splitlines() if run and self.in_stage_two(run) else []
        )
        return int(json.loads(lines[-1])["step"]) if lines else 0

    @staticmethod
    def in_stage_two(run: Any) -> bool:
        return bool(run.status.stage == "rl-2" and (run.stage("rl-2") / "progress.jsonl").exists())

    def reach(self, flow_run: str, more: int = 12) -> None:
        """Wait until stage 2 has trained some more steps."""
        now = self.step(flow_run)
        wait(f"stage rl-2 goes on (from step {now})", lambda: self.step(flow_run) >= max(now, 5) + more, 400)
        say(f"stage rl-2 is at step {self.step(flow_run)}")

    def trainer(self, flow_run: str) -> list[psutil.Process]:
        run = of_flow_run(flow_run)
        record = read_json(run.stage("rl-2") / "child.json") if run else None
        return tagged(str(record["token"])) if record else []

    def state(self, flow_run: str) -> str:
        return asyncio.run(_state(flow_run))

    def flow_process(self, flow_run: str) -> psutil.Process:
        for process in psutil.process_iter():
            try:
                environment, command = process.environ(), process.cmdline()
            except (psutil.Error, OSError):
                continue
            if environment.get("PREFECT__FLOW_RUN_ID") == flow_run and "prefect.engine" in command:
                return process
        raise SystemExit("the flow's process is not there")

    def again(self, before: str) -> str:
        """Start the same parameters again. The run must continue after stage 1."""
        at = self.step(before)
        flow_run = self.run()
        run = of_flow_run(before)
        assert run is not None
        first = (run.stage("rl-1") / "result.json").stat().st_mtime_ns
        lines = run.stage("rl-2") / "progress.jsonl"
        size = len(lines.read_text().splitlines())
        wait("the run goes on", lambda: len(lines.read_text().splitlines()) > size)
        step = json.loads(lines.read_text().splitlines()[size])["step"]
        say(f"stage 1 was {'not ' if (run.stage('rl-1') / 'result.json').stat().st_mtime_ns == first else ''}repeated; "
            f"stage 2 was at step {at} and continues with step {step}")  # fmt: skip
        return flow_run

    def close(self) -> None:
        self.services.stop()


async def _state(flow_run: str) -> str:
    async with get_client() as client:
        found = await client.read_flow_run(flow_run)  # type: ignore[arg-type]
        return found.state.name if found.state else "none"


async def _cancel(flow_run: str) -> None:
    async with get_client() as client:
        await client.set_flow_run_state(flow_run, Cancelling())  # type: ignore[arg-type]


def flow(lab: Lab) -> None:
    """Kill -9 the flow's process."""
    one = lab.run()
    lab.reach(one)
    trainer = lab.trainer(one)
    lab.flow_process(one).kill()
    say("kill -9 flow process")
    wait("trainer is gone", lambda: not lab.trainer(one) or not any(p.is_running() for p in trainer))
    wait("flow run is Crashed", lambda: lab.state(one) == "Crashed")
    two = lab.again(one)
    cancel_now(lab, two)


def worker(lab: Lab) -> None:
    """Kill -9 the worker. The flow continues without it."""
    one = lab.run()
    lab.reach(one)
    os.kill(lab.worker.pid, signal.SIGKILL)
    lab.worker.wait()
    say("kill -9 worker")
    lab.reach(one)
    say(f"flow run is {lab.state(one)}")
    run = of_flow_run(one)
    assert run is not None
    userrl = str(Path(sys.executable).with_name("userrl"))
    told = subprocess.run([userrl, "runs", "stop", run.id], check=True, capture_output=True, text=True).stdout.strip()
    say(f"userrl runs stop (a cancel needs the worker that started the run): {told}")
    wait("trainer is gone", lambda: not lab.trainer(one))
    wait("flow run is Failed", lambda: lab.state(one) == "Failed")


def term(lab: Lab) -> None:
    """Send SIGTERM to the worker. It stops its flows."""
    one = lab.run()
    lab.reach(one)
    lab.worker.terminate()
    say("SIGTERM worker")
    wait("worker is gone", lambda: lab.worker.poll() is not None)
    wait("trainer is gone", lambda: not lab.trainer(one))
    say(f"flow run is {lab.state(one)}")
    lab.worker = lab.start_worker()
    wait(
        "flow run is Crashed or Cancelled by itself", lambda: lab.state(one) in ("Crashed", "Cancelled", "Failed"), 300
    )
    cancel_now(lab, lab.again(one))


def everything(lab: Lab) -> None:
    """Kill -9 server, worker, flow and trainer."""
    one = lab.run()
    lab.reach(one)
    for process in [lab.flow_process(one), *lab.trainer(one)]:
        process.kill()
    for service in (lab.worker, lab.server):
        os.killpg(service.pid, signal.SIGKILL)
        service.wait()
    say("kill -9 everything")
    lab.server = lab.start_server()
    lab.worker = lab.start_worker()
    say(f"flow run is {lab.state(one)}")
    two = lab.again(one)
    wait("the dead flow run is Crashed by the automation", lambda: lab.state(one) == "Crashed", 300)
    cancel_now(lab, two)


def server(lab: Lab) -> None:
    """Stop the server for a while."""
    one = lab.run()
    lab.reach(one)
    os.killpg(lab.server.pid, signal.SIGKILL)
    lab.server.wait()
    say(f"kill -9 server; away for {OUTAGE_SECONDS} s")
    time.sleep(OUTAGE_SECONDS)
    lab.server = lab.start_server()
    lab.reach(one)
    say(f"flow run is {lab.state(one)}")


def cancel(lab: Lab) -> None:
    """Cancel with `prefect flow-run cancel`."""
    one = lab.run()
    lab.reach(one)
    cancel_now(lab, one)
    run = of_flow_run(one)
    assert run is not None
    kept = sorted(path.name for path in (run.stage("rl-2") / "checkpoints").glob("step-*"))
    say(f"checkpoints that are left: {', '.join(kept)}")
    cancel_now(lab, lab.again(one))


def slot(lab: Lab) -> None:
    """Let two trainings ask for one slot."""
    os.environ["USERRL_SLOTS"] = "cpu-0"
    one = lab.run()
    lab.reach(one)
    two = lab.run(seed=7)
    wait("the second run is there", lambda: of_flow_run(two) is not None)
    time.sleep(10)
    second = of_flow_run(two)
    assert second is not None
    say(f"second run: {second.status['stage']}, trainer started: {(second.stage('distill') / 'output.txt').exists()}")
    cancel_now(lab, one)
    wait("the second run has the slot", lambda: (second.stage("distill") / "output.txt").exists())
    cancel_now(lab, two)


def cancel_now(lab: Lab, flow_run: str) -> None:
    asyncio.run(_cancel(flow_run))
    say("cancel")
    wait("trainer is gone", lambda: not lab.trainer(flow_run))
    wait("flow run is Cancelled", lambda: lab.state(flow_run) == "Cancelled")


SCENES = {f.__name__: f for f in (flow, worker, term, everything, server, cancel, slot)}


def main() -> None:
    for name in sys.argv[1:] or SCENES:
        print(f"\n== {name}: {SCENES[name].__doc__}")
        lab = Lab()
        try:
            SCENES[name](lab)
        finally:
            lab.close()


if __name__ == "__main__":
    main()
