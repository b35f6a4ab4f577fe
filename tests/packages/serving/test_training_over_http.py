"""Training on a gym server that is killed and restarted in the middle: what was in play is null, and training goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.ports import free_port
from tests.userrl.run.test_laptop_recipes import SMALL, whole
from userrl.run.request import TrainRequest
from warehouse import open_warehouse

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

RECIPE = """
name: elsewhere
extends: fixed-textcraft
source: ours
gyms:
  agentgym: {{tasks: {{env: textcraft, count: 400}}, config: {{servers: ["http://127.0.0.1:{port}"], timeout: 10.0}}}}
stages:
  - {{steps: 6, horizon: 4, mix: {{agentgym: 1}}}}
schedule: null
evaluate: {{gyms: [agentgym], horizon: 4}}
allow_short_horizon: true
"""


LONG = {
    "cold_start.steps": 200,
    "demonstrations.episodes": 200,
    "demonstrations.top_k": 100,
    "model.max_context": 640,
    "cold_start.cutoff": 640,
    "algorithm.max_prompt_tokens": 320,
    "algorithm.max_response_tokens": 300,
    "algorithm.max_tokens": 48,
}
"""Of a server's whole openings and commands, and of an agent that has learnt to act: what it does is then on the way to the
server at most times."""


class Server:
    """Our gym server in a process of its own, on one port."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def health(self) -> str:
        return f"http://127.0.0.1:{self.port}/health"

    def start(self) -> None:
        arguments = ["serve-gym", "textcraft", "--tier", "tiny", "--split", "train", "--port", str(self.port)]
        self.process = subprocess.Popen([sys.executable, "-m", "flows.cli.main", *arguments], stdout=subprocess.DEVNULL)
        client = httpx.Client(transport=httpx.HTTPTransport(retries=10), trust_env=False)
        assert client.get(self.health, timeout=60.0).status_code == 200

    def kill(self) -> None:
        if self.process is not None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server(free_port())
    running.start()
    yield running
    running.kill()


def test_training_goes_on_when_its_gym_server_is_killed_and_restarted(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERRL_THREADS", "1")
    path = tmp_path / "elsewhere.yaml"
    path.write_text(RECIPE.format(port=server.port))
    stop = threading.Event()

    def kill_once_training_has_begun() -> None:
        stages = tmp_path / "home" / "runs"
        while not stop.wait(0.05):
            begun = [path for path in stages.glob("*/stages/rl-1/progress.jsonl") if path.stat().st_size]
            if begun and httpx.get(server.health).json()["sessions"]:
                server.kill()
                server.start()
                return

    killer = threading.Thread(target=kill_once_training_has_begun)
    killer.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            report = whole(TrainRequest(recipe=str(path), overrides=SMALL | LONG, wandb="off"))
    finally:
        stop.set()
        killer.join()
    assert report.last is not None
    assert report.last.step == 6
    with open_warehouse(tmp_path / "home" / "warehouse") as warehouse:
        ((lost, kept),) = warehouse.sql(
            """select count(*) filter (not admitted and score is null), count(*) filter (admitted)
               from trajectories where phase = 'train'"""
        ).fetchall()
    assert lost > 0
    assert kept > 0
