"""A check that OpenEnv's own client can play our gyms, with the same results as in process.

    python -m lab.checks.openenv_check [GYM ...] [--venv .venv-openenv] [--episodes 3]

Creates an environment with openenv-core (whose packages conflict with ours), and serves each gym with ``userrl
serve-gym``. The package's ``GenericEnvClient`` plays it with the scripted demonstrator's messages. Exits with 1 if an
observation, a reward or an end differs. A gym that this machine cannot play is named and skipped.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import socket
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Any

from userrl_core.gyms import make, tasks
from userrl_core.gyms.registry import demonstrator_class, names, unavailable
from userrl_core.interact import render_call
from userrl_core.records import Task

PACKAGE = "openenv-core==0.3.0"
TURNS = 8

CLIENT = """
import asyncio, json, sys
from openenv.core import GenericEnvClient

async def play(address, scripts):
    seen = []
    async with GenericEnvClient(base_url=address) as env:
        for number, messages in enumerate(scripts):
            results = [await env.reset(data_idx=number, seed=3)]
            for message in messages:
                results.append(await env.step({"message": message}))
            seen.append([[result.observation["text"], result.reward, result.done] for result in results])
        steps = (await env.state())["step_count"]
        assert steps == len(scripts[-1]), steps
    return seen

address, scripts = json.loads(sys.stdin.read())
print(json.dumps(asyncio.run(play(address, scripts))))
"""


def main() -> int:
    """Print a line for each gym."""
    parser = argparse.ArgumentParser(description="OpenEnv's client plays our gyms.")
    parser.add_argument("gyms", nargs="*")
    parser.add_argument("--venv", type=Path, default=Path(".venv-openenv"))
    parser.add_argument("--episodes", type=int, default=3)
    arguments = parser.parse_args()
    python, wrong = installed(arguments.venv), 0
    for gym in arguments.gyms or [gym for gym in names() if gym != "agentgym"]:
        if sentence := unavailable(gym):
            print(f"{gym}: left out. {sentence}", flush=True)
            continue
        played = [asyncio.run(in_process(gym, task)) for task in list(tasks(gym, "test"))[: arguments.episodes]]
        given = over_openenv(python, gym, [messages for messages, _ in played])
        expected = [seen for _, seen in played]
        wrong += given != expected
        turns, verdict = sum(len(messages) for messages, _ in played), "the same" if given == expected else "DIFFERENT"
        print(f"{gym}: {len(played)} episodes, {turns} turns, {verdict}", flush=True)
    return int(wrong > 0)


def installed(folder: Path) -> Path:
    """Return the interpreter of an environment with the package."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", PACKAGE], check=True)
    return python


async def in_process(name: str, task: Task) -> tuple[list[str], list[list[Any]]]:
    """Return the demonstrator's messages and the replies: text, reward, done. The opening comes first."""
    gym = make(name, task)
    observation = await asyncio.to_thread(gym.reset, 3)
    guide = demonstrator_class(name)(task, random.Random(1), 0.7, gym.config)
    messages: list[str] = []
    seen: list[list[Any]] = [[observation, None, False]]
    while not gym.done and gym.turns < TURNS:
        call = guide.act(observation)
        result = await gym.step(call)
        observation = result.observation
        messages.append(render_call(call))
        seen.append([observation, result.reward, result.terminated])
    await gym.aclose()
    return messages, seen


def over_openenv(python: Path, gym: str, messages: list[list[str]]) -> list[list[list[Any]]]:
    """Send the same messages with OpenEnv's client to a server of the gym."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    command = [sys.executable, "-m", "flows.cli.main", "serve-gym", gym, "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        server.stdout.readline()  # it says that it is about to listen
        try:
            wait_for(port)
            said = json.dumps([f"http://127.0.0.1:{port}", messages])
            played = subprocess.run([python, "-c", CLIENT], input=said, stdout=subprocess.PIPE, text=True, check=True)
        finally:
            server.terminate()
    return json.loads(played.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def wait_for(port: int) -> None:
    """Wait until the port answers."""
    for _ in range(300):
        with socket.socket() as probe:
            probe.settimeout(0.2)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    sys.exit(f"Nothing answers on port {port}.")


if __name__ == "__main__":
    raise SystemExit(main())
