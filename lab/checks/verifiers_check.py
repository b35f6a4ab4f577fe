"""A check that the gym `verifiers` gives the scores of verifiers' own evaluation for the same replies.

    python -m lab.checks.verifiers_check [--venv .venv-verifiers] [--tasks 20] [--package 'verifiers==0.3.1'] [--record]

Creates an environment with verifiers (whose packages conflict with ours). Random replies are played in the gym on the
environments that the tests play. verifiers' `evaluate` then gets the same replies from a client that repeats them. Exits with
1 if a reward, a stop condition or the number of turns differs. --record writes both into data/environments/verifiers.csv.
With ``--only guess_number --model smollm2-135m --base-url http://127.0.0.1:8000/v1`` a served model replies.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

from lab.environments import python_with
from lab.rows import DATA, add_rows
from userrl_core.gyms import make, tasks
from userrl_core.interact import InteractCall
from userrl_core.policies.native import NativePolicy
from userrl_core.rollout import run_episodes
from userrl_core.served.client import ChatServer, close_clients
from userrl_gym_verifiers.process import FOLDER, PYTHON

PACKAGE = "verifiers==0.3.1"
RECORD = DATA / "environments" / "verifiers.csv"
ENVIRONMENTS = Path(__file__).parents[2] / "tests" / "userrl_core" / "gyms" / "verifiers_environments"
CALLS: dict[str, list[InteractCall]] = {
    "guess_number": [*(InteractCall("action", str(n)) for n in range(8)), InteractCall("action", "hm")],
    "shy_buyer": [InteractCall("action", text) for text in ("which colour?", "hello", "red", "blue", "green")],
    "price_desk": [
        *(
            InteractCall("answer", f'{{"name": "price", "arguments": {{"item": "{i}"}}}}')
            for i in ("tea", "oil", "gold")
        ),
        InteractCall("answer", '{"name": "add", "arguments": {"a": 3, "b": 7}}'),
        InteractCall("answer", '{"name": "add", "arguments": {"a": "x"}}'),
        *(InteractCall("action", str(n)) for n in (6, 7, 10)),
    ],
}
"""Replies of the agent for each environment, drawn at random."""
MODEL_TOKENS = 8
EVALUATE = """
import asyncio, json, sys
import verifiers as vf
from datasets import Dataset
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion

name, folder, played = json.loads(sys.stdin.read())
sys.path.insert(0, folder)

class Repeats(vf.OpenAIChatCompletionsClient):
    async def get_native_response(self, prompt, model, sampling_args, tools=None, **more):
        question = next(message["content"] for message in prompt if message["role"] == "user")
        number = sum(message["role"] == "assistant" for message in prompt)
        choice = {"index": 0, "message": replies[question][number], "finish_reason": "stop"}
        return ChatCompletion.model_validate(
            {"id": "x", "object": "chat.completion", "created": 0, "model": model, "choices": [choice]})

replies = {row["prompt"][-1]["content"]: messages for row, messages in played}
environment = vf.load_environment(name)
rows = [{key: row[key] for key in ("question", "prompt", "answer", "info") if key in row} for row, _ in played]
environment.eval_dataset = Dataset.from_list([{"example_id": n, **row} for n, row in enumerate(rows)])
client = Repeats(AsyncOpenAI(api_key="none"))
outputs = asyncio.run(environment.evaluate(client, "agent", num_examples=len(rows), rollouts_per_example=1))["outputs"]
ends = {o["example_id"]: [o["reward"], o["stop_condition"], o["metrics"]["num_turns"]] for o in outputs}
print(json.dumps([ends[n] for n in range(len(rows))]))
"""


def main() -> int:
    """Print a line for each environment."""
    parser = argparse.ArgumentParser(description="Scores of the gym and of verifiers' own evaluation.")
    parser.add_argument("--venv", type=Path, default=Path(".venv-verifiers"))
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--package", default=PACKAGE)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--only", choices=CALLS, help="one environment")
    parser.add_argument("--model", help="a served model that replies; else replies are random")
    parser.add_argument("--base-url")
    arguments = parser.parse_args()
    python, wrong = python_with(arguments.venv, arguments.package).absolute(), 0
    os.environ |= {PYTHON: str(python), FOLDER: str(ENVIRONMENTS)}
    server = None
    if arguments.model:
        address = {"base_url": arguments.base_url, "timeout": 600.0, "retries": 0}
        server = ChatServer(model=arguments.model, max_tokens=MODEL_TOKENS, concurrency=1, **address)
    for name in [arguments.only] if arguments.only else CALLS:
        got, expected = ends(name, arguments.tasks, server)
        wrong += got != expected
        values = len({end[0] for end in got})
        for number, ((reward, stop, turns), (own_reward, own_stop, own_turns)) in enumerate(
            zip(got, expected, strict=True) if arguments.record else ()
        ):
            row = {"version": arguments.package.rpartition("=")[2], "environment": name}
            row |= {"agent": arguments.model or "random", "task": number}
            ours = {"reward": reward, "stop": stop, "turns": int(turns)}
            theirs = {"own_reward": own_reward, "own_stop": own_stop, "own_turns": int(own_turns)}
            add_rows(RECORD, ("version", "environment", "agent", "task"), row | ours | theirs)
        verdict = "the same" if got == expected else f"DIFFERENT: {got} and {expected}"
        print(f"{name}: {len(got)} rollouts, {values} different rewards, {verdict}", flush=True)
    return int(wrong > 0)


Played = list[tuple[dict[str, Any], list[dict[str, Any]], list[Any]]]
"""For each task its row, the messages of the agent, and reward, stop condition and number of turns."""


def ends(name: str, count: int, server: ChatServer | None = None) -> tuple[list[Any], list[Any]]:
    """Return how the rollouts of an environment end in the gym and in verifiers' evaluation: reward, condition, turns.

    server: a model that replies, else replies are random. Raises RuntimeError with its error output if the evaluation fails.
    """
    played = asyncio.run(in_the_gym(name, count) if server is None else by_model(name, count, server))
    request = json.dumps([name, os.environ[FOLDER], [(row, messages) for row, messages, _ in played]])
    command = [os.environ[PYTHON], "-c", EVALUATE]
    done = subprocess.run(command, input=request, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [end for _, _, end in played], json.loads(done.stdout.splitlines()[-1])


async def in_the_gym(name: str, count: int) -> Played:
    """Play random replies."""
    rng = random.Random(7)
    played = []
    for task in list(tasks("verifiers", "train", env=name))[:count]:
        gym = make("verifiers", task)
        await asyncio.to_thread(gym.reset, 1)
        messages: list[dict[str, Any]] = []
        end: dict[str, Any] = {}
        while not gym.done:
            call = rng.choice(CALLS[name])
            end = (await gym.step(call)).info
            messages.append(message_of(call.choice, call.content, len(messages)))
        await gym.aclose()
        played.append((task.payload["row"], messages, [gym.score(), end["stop"], float(gym.turns)]))
    return played


async def by_model(name: str, count: int, server: ChatServer) -> Played:
    """Let a served model play, with the environment's own tools. Raises RuntimeError if a conversation has no score."""
    chosen = list(tasks("verifiers", "train", env=name))[:count]
    policy = NativePolicy(server)
    trajectories = await run_episodes(chosen, policy, horizon=32, concurrency=1, prompt_style="native")
    await close_clients()
    played: Played = []
    for task, trajectory in zip(chosen, trajectories, strict=True):
        if not trajectory.admitted:
            raise RuntimeError(trajectory.reject_reason)
        turns = trajectory.turns
        messages = [message_of(turn.choice, turn.content or "", number) for number, turn in enumerate(turns)]
        played.append((task.payload["row"], messages, [trajectory.score, turns[-1].info["stop"], float(len(turns))]))
    return played


def message_of(choice: str | None, content: str, number: int) -> dict[str, Any]:
    """Return a reply as the message of a chat completion."""
    if choice != "answer":
        return {"role": "assistant", "content": content}
    asked = json.loads(content)
    function = {"name": asked["name"], "arguments": json.dumps(asked["arguments"])}
    tool_calls = [{"id": f"call_{number}", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": tool_calls}


if __name__ == "__main__":
    raise SystemExit(main())
