"""A check that AgentGym's own clients can play our gyms through ``userrl serve-gym``, with the same results as in process.

    python -m lab.checks.agentgym_clients CHECKOUT [ENV ...] [--episodes 3] [--record FOLDER]

CHECKOUT is a copy of github.com/WooooDyy/AgentGym at 3ef9235; its package is imported from there. Each episode of
textcraft, babyai, sciworld and searchqa is a scripted demonstrator's, in a model's format, with one unreadable message.
Exits with 1 if a state, a reward or an end differs. ``--record`` writes each environment's requests and answers to
FOLDER/ENV.txt; ``tests/packages/serving/test_agentgym_clients.py`` sends them again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from lab.checks.served_gym import served_gym
from userrl_core.gyms import make, tasks
from userrl_core.gyms.registry import demonstrator_class, unavailable
from userrl_core.interact import InteractCall
from userrl_core.records import Task
from userrl_serving.agentgym import InPoints, unread

CLIENTS = {
    "textcraft": "TextCraftEnvClient",
    "babyai": "BabyAIEnvClient",
    "sciworld": "SciworldEnvClient",
    "searchqa": "SearchQAEnvClient",
}
TURNS = 12
UNREAD = "Let me think about it."
"""A message without an action."""

CLIENT = """
import json, sys
import requests
import agentenv.envs

address, kind, scripts = json.loads(sys.stdin.read())
exchanges = []
plain = requests.Session.request

def request(self, method, url, **more):
    answer = plain(self, method, url, **more)
    exchanges.append([method.upper(), url.removeprefix(address), more.get("json"), answer.text, answer.status_code])
    return answer

requests.Session.request = request
seen = []
client = None
for number, messages in enumerate(scripts):
    client = getattr(agentenv.envs, kind)(env_server_base=address, data_len=len(scripts))
    client.reset(number)
    states = [[client.observe(), None, False]]
    for message in messages:
        out = client.step(message)
        states.append([out.state, out.reward, out.done])
    seen.append(states)
    assert client.close() is True
print(json.dumps([seen, exchanges]))
"""


def main() -> int:
    """Print a line for each environment."""
    parser = argparse.ArgumentParser(description="AgentGym's own clients play our gyms.")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("envs", nargs="*", choices=[[], *CLIENTS], metavar="ENV")
    parser.add_argument("--episodes", type=int, default=3)
    parser.add_argument("--record", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    wrong = 0
    for env in arguments.envs or CLIENTS:
        if sentence := unavailable(env):
            print(f"{env}: left out. {sentence}", flush=True)
            continue
        chosen = list(tasks(env, "test"))[: arguments.episodes]
        played = [asyncio.run(in_process(env, task)) for task in chosen]
        client_states, exchanges = by_client(arguments.checkout, env, [messages for messages, _ in played])
        same = comparable(env, client_states) == comparable(env, [states for _, states in played])
        wrong += not same
        if arguments.record:
            recorded = "".join(f"# {task.id}\n" for task in chosen) + recording(exchanges)
            (arguments.record / f"{env}.txt").write_text(recorded, encoding="utf-8")
        turns = sum(len(messages) for messages, _ in played)
        ends = ", ".join(f"{states[-1][1]:g}" for states in client_states)
        print(
            f"{env}: {len(played)} episodes, {turns} turns, last rewards {ends}: {'the same' if same else 'DIFFERENT'}"
        )
    return int(wrong > 0)


async def in_process(env: str, task: Task) -> tuple[list[str], list[list[Any]]]:
    """Return the demonstrator's messages and the client's expected states: text, reward, done. The opening comes first."""
    gym = make(env, task)
    observation = await asyncio.to_thread(gym.reset)
    guide = demonstrator_class(env)(task, random.Random(1), 0.8, gym.config)
    messages = [UNREAD]
    states: list[list[Any]] = [[observation, None, False], [await to_unread(env, gym), 0.0, False]]
    while not gym.done and gym.turns < TURNS:
        call = guide.act(observation)
        result = await gym.step(call)
        observation = result.observation
        messages.append(message(env, call))
        client_text = (
            f"<information>{observation}</information>"
            if env == "searchqa" and call.choice == "search"
            else observation
        )
        states.append([client_text, reward(env, gym, result.reward), result.terminated])
    await gym.aclose()
    return messages, states


async def to_unread(env: str, gym: Any) -> str:
    """Return the state after a message without an action. A client does not send it, and searchqa's server asks no gym."""
    if env == "searchqa":
        return unread(gym.choices())
    return str((await gym.step(InteractCall("action", ""))).observation)


def message(env: str, call: InteractCall) -> str:
    """Format a call as the client's own instructions require."""
    if env == "searchqa":
        return f"<think>What do I know?</think>\n<{call.choice}>{call.content}</{call.choice}>"
    return f"Thought:\nOne step further.\n\nAction:\n{call.content}"


def reward(env: str, gym: Any, reward: float | None) -> float | None:
    """Return the client's reward of a turn: the score so far for babyai, in points for sciworld."""
    if isinstance(gym, InPoints):
        return gym.points
    return gym.score() if env == "babyai" else reward


def comparable(env: str, episodes: list[list[list[Any]]]) -> Any:
    """Return the comparable part of the states. For sciworld only the words, because its simulator changes the order
    of lists.
    """
    if env != "sciworld":
        return episodes
    return [[[sorted(re.findall(r"\w+", text)), *more] for text, *more in states] for states in episodes]


def by_client(checkout: Path, env: str, messages: list[list[str]]) -> tuple[Any, list[list[Any]]]:
    """Return the states of AgentGym's client for these messages, and its requests with their answers."""
    with served_gym(env) as address:
        moves = json.dumps([address, CLIENTS[env], messages])
        paths = os.environ | {"PYTHONPATH": str(checkout.resolve() / "agentenv")}
        done = subprocess.run(
            [sys.executable, "-c", CLIENT], input=moves, stdout=subprocess.PIPE, text=True, check=True, env=paths
        )
    states, exchanges = json.loads(done.stdout.splitlines()[-1])
    return states, exchanges


def recording(exchanges: list[list[Any]]) -> str:
    """Return requests and answers as lines, with sessions numbered from 1."""
    sessions: dict[str, str] = {}
    lines = []
    for method, path, body, text, status in exchanges:
        if path == "/create":
            created = json.loads(text)
            sessions[str(created["id"] if isinstance(created, dict) else created)] = str(len(sessions) + 1)
        lines += [f"> {method} {path} {'' if body is None else json.dumps(body)}".rstrip(), f"{text} [{status}]"]
    recorded = "\n".join(lines) + "\n"
    for number, name in sessions.items():
        recorded = recorded.replace(number, name)
    return recorded


if __name__ == "__main__":
    raise SystemExit(main())
