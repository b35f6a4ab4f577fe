"""Our gyms behind our server, played by the client of AgentGym's servers."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import psutil
import pytest

from flows.server.front_door import FrontDoor, served
from tests.ports import free_port
from tests.userrl_core.gyms.local import LOCAL_GYMS
from userrl_core.gyms import gym_class, make, tasks
from userrl_core.gyms.registry import demonstrator_class, unavailable
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import PolicyReply, Task
from userrl_core.rollout import run_episodes
from userrl_serving.gym_server import GymServer, app_of

TINY = {"tier": "tiny"}


@contextmanager
def gym_server(name: str, split: str = "test", **more: Any) -> Iterator[tuple[GymServer, str]]:
    server, port = GymServer(name, split, **more), free_port()
    with served(FrontDoor(app_of(server)), "127.0.0.1", port):
        yield server, f"http://127.0.0.1:{port}"


def items(count: int, env: str = "textcraft") -> list[Task]:
    return [Task("agentgym", f"{env}_{n}", "train", {"env": env, "item": n}) for n in range(count)]


SLOW_GYMS = [pytest.param(name, marks=pytest.mark.slow) for name in ("sciworld", "webshop")]


@pytest.mark.parametrize("name", [*LOCAL_GYMS, *SLOW_GYMS])
async def test_over_http_every_gym_gives_the_observations_and_rewards_that_it_gives_in_process(name: str) -> None:
    if reason := unavailable(name):
        pytest.skip(reason)
    chosen = list(tasks(name, "test"))[:3]
    with gym_server(name) as (server, address):
        for number, task in enumerate(chosen):
            remote = make("agentgym", items(3, "userrl")[number], servers=(address,))
            opening = remote.reset(seed=3)
            local = make(name, task)
            assert local.reset(seed=random.Random(3).getrandbits(31)) == opening
            guide = demonstrator_class(name)(task, random.Random(1), 0.7, local.config)
            said = opening
            while not local.done and local.turns < 12:
                call = guide.act(said)
                expected = await local.step(call)
                given = await remote.step(type(call)("action", f"{call.choice}: {call.content}"))
                assert (given.observation, given.reward) == (expected.observation, expected.reward)
                assert (given.terminated, remote.score()) == (expected.terminated, local.score())
                said = expected.observation
            assert remote.succeeded == local.succeeded
            await remote.aclose()
            await local.aclose()
        assert len(server) == 0


def test_a_bug_of_a_gym_ends_its_session_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(self: Any, content: str) -> Any:
        raise KeyError("no such room")

    monkeypatch.setattr(gym_class("textcraft"), "action", broken)
    with gym_server("textcraft") as (_, address), httpx.Client(base_url=address) as http:
        session = http.post("/create", json={}).json()["id"]
        answer = http.post("/step", json={"id": session, "action": "action: look"}).json()
        assert (answer["reward"], answer["done"], answer["error"]) == (
            None,
            True,
            "not scored: KeyError: 'no such room'",
        )
        again = http.post("/step", json={"id": session, "action": "action: look"}).json()
        assert again["code"] == "gym.misused"


async def test_64_sessions_at_once_are_played_to_their_ends_and_none_is_left() -> None:
    with gym_server("textcraft", options=TINY) as (server, address):
        trajectories = await run_episodes(
            items(64), ScriptedPolicy(0.9), horizon=30, concurrency=64, gym_config={"agentgym": {"servers": [address]}}
        )
        assert [t.stop_reason for t in trajectories] == ["success"] * 64
        assert len(server) == 0
        assert 'created_total{gym="textcraft"} 64' in server.metrics()


async def test_replicas_share_the_sessions_evenly() -> None:
    with ExitStack() as stack:
        servers, addresses = zip(
            *(stack.enter_context(gym_server("textcraft", options=TINY)) for _ in range(3)), strict=True
        )
        open_gyms = [make("agentgym", task, servers=addresses) for task in items(12)]
        for gym in open_gyms:
            gym.reset(seed=0)
        assert [len(server) for server in servers] == [4, 4, 4]
        for gym in open_gyms:
            await gym.aclose()
        assert [len(server) for server in servers] == [0, 0, 0]


@pytest.mark.slow
def test_sessions_of_a_process_that_was_killed_are_closed_by_the_next_one() -> None:
    play = textwrap.dedent(
        """
        import os, sys
        from userrl_core.gyms import make
        from userrl_core.records import Task
        gyms = [make("agentgym", Task("agentgym", "t", "train", {"env": "textcraft", "item": n}), servers=(sys.argv[1],))
                for n in range(3)]
        for gym in gyms:
            gym.reset(seed=0)
        if sys.argv[2] == "die":
            os.kill(os.getpid(), 9)
        """
    )
    with gym_server("textcraft", options=TINY) as (server, address):
        first = subprocess.run([sys.executable, "-c", play, address, "die"], check=False)
        assert (first.returncode, len(server)) == (-signal.SIGKILL, 3)
        subprocess.run([sys.executable, "-c", play, address, "end"], check=True)
        assert 'closed_total{gym="textcraft"} 3' in server.metrics()


class _Killer:
    """Plays as the demonstrator, and kills and restarts the server once, before the fifth message."""

    name = "killer"

    def __init__(self, restart: Any) -> None:
        self.inner, self.restart, self.said = ScriptedPolicy(1.0), restart, 0

    def session(self, gym: Any, seed: int) -> Any:
        inner, outer = self.inner.session(gym, seed), self

        class Played:
            async def act(self, new: Any) -> PolicyReply:
                outer.said += 1
                if outer.said == 5:
                    outer.restart()
                return await inner.act(new)

        return Played()


@pytest.mark.slow
async def test_a_server_that_is_killed_and_restarted_in_mid_episode_costs_null_rewards_and_nothing_else() -> None:
    port = free_port()
    command = [sys.executable, "-m", "flows.cli.main", "serve-gym", "textcraft", "--tier", "tiny", "--port", str(port)]
    running: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ))
        client = httpx.Client(transport=httpx.HTTPTransport(retries=8), trust_env=False)
        assert client.get(f"http://127.0.0.1:{port}/health", timeout=60.0).json()["status"] == "ok"

    def restart() -> None:
        running[-1].kill()
        running[-1].wait()
        start()

    start()
    try:
        config = {"agentgym": {"servers": [f"http://127.0.0.1:{port}"]}}
        trajectories = await run_episodes(items(6), _Killer(restart), horizon=20, concurrency=2, gym_config=config)
    finally:
        for process in running:
            process.kill()
            process.wait()
    outcomes = Counter((t.stop_reason, t.admitted, t.score) for t in trajectories)
    assert 1 <= outcomes[("error", False, None)] <= 2
    assert outcomes[("success", True, 1.0)] == 6 - outcomes[("error", False, None)]
    reasons = [str(t.reject_reason) for t in trajectories if not t.admitted]
    assert all("There is no session" in reason or "did not answer" in reason for reason in reasons)


@pytest.mark.slow
async def test_hundreds_of_episodes_leave_no_session_no_thread_and_no_memory() -> None:
    """AgentGym-RL 3.2.3: what leaked there was TextCraft's recipes and sessions that nobody closed."""
    process = psutil.Process()
    with gym_server("textcraft", options=TINY) as (server, address):
        config = {"agentgym": {"servers": [address]}}

        async def play(count: int) -> None:
            for start in range(0, count, 50):
                chosen = [
                    Task("agentgym", f"t{n}", "train", {"env": "textcraft", "item": n})
                    for n in range(start, start + 50)
                ]
                done = await run_episodes(chosen, ScriptedPolicy(0.9), horizon=30, concurrency=16, gym_config=config)
                assert all(t.admitted for t in done)

        await play(100)
        gc.collect()
        memory, threads = process.memory_info().rss, threading.active_count()
        await play(300)
        gc.collect()
        assert len(server) == 0
        assert threading.active_count() <= threads + 2
        assert process.memory_info().rss <= 1.1 * memory
        assert 'created_total{gym="textcraft"} 400' in server.metrics()
