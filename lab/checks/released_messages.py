"""Play the same conversations in the released gyms and in ours with `prompts: released`, and compare every message sent.

    python -m lab.checks.released_messages FOLDER [--tasks 20] [--out data/released-prompts/messages.csv]

FOLDER holds checkouts of SalesforceAIResearch/UserRL as ``userrl`` and of sierra-research/tau-bench as ``tau-bench``. A server
on this machine stands in for the model: its reply is a function of the messages. Both gyms send it their requests, and it keeps
them. Compared are, character by character: messages, temperature and token limit of every request to user and judge, and what
the agent reads. The output has counts and a hash over all requests, none of the texts.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any

from lab.checks.released_travel import _released_task
from userrl_core.gyms import load_published, make, tasks
from userrl_core.gyms.clones import import_clone
from userrl_core.gyms.prompt import opening_messages
from userrl_core.gyms.published import ROWS, with_prompt
from userrl_core.gyms.travel.world import World
from userrl_core.interact import InteractCall
from userrl_core.records import Task

Actions = Sequence[tuple[str, str]]
PACKAGES = {
    "intention": ("IntentionGym", "intentiongym", "IntentionEnv"),
    "persuade": ("PersuadeGym", "persuadegym", "PersuadeEnv"),
    "telepathy": ("TelepathyGym", "telepathygym", "TelepathyEnv"),
    "turtle": ("TurtleGym", "turtlegym", "StoryEnv"),
    "search": ("SearchGym", "searchgym", "SearchEnv"),
    "travel": ("TravelGym", "travelgym", "TravelEnv"),
    "tau": ("TauGym", "taugym", "TauEnv"),
}
TURNS = 6
READ = ("intention", "persuade", "telepathy", "turtle", "search", "travel", "tau")
"""The gyms whose observations are compared, too: all with a user."""


@dataclass(slots=True)
class Conversation:
    """One conversation. requests: as JSON. read: what the agent read."""

    requests: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)


class _Model(BaseHTTPRequestHandler):
    """The stand-in model: it keeps every request, and its reply is a function of the messages."""

    requests: list[dict[str, Any]] = []  # noqa: RUF012  one list for the one server

    def do_POST(self) -> None:
        """Reply to one request."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.requests.append({key: body.get(key) for key in ("messages", "temperature", "max_tokens", "top_p", "stop")})
        message = {"role": "assistant", "content": reply_to(body["messages"])}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        payload = {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [choice],
            "usage": usage,
        }
        data = json.dumps(payload).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def reply_to(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the stand-in's reply: an object with every field that a released gym reads, or a plain sentence for tau."""
    text = "\n".join(str(message["content"]) for message in messages)
    draw = int(hashlib.sha256(text.encode()).hexdigest(), 16)
    last = str(messages[-1]["content"])
    ids = re.findall(r"Preference ID: (P\d+)\tAspect", last)
    if "json" not in text.lower():
        sentence = f"Here is fact number {draw % 97} about me."
        return f"Thought:\nStill open.\n\nUser Response:\n{sentence}" if "User Response" in text else sentence
    aspects = re.findall(r"Aspect Name: (\w+)", last)
    stances = ("Agree", "Partly Agree", "Neutral", "Partly Disagree", "Strongly Agree")
    counted = last.count('"statement":')
    short = ["Yes", "No", "Maybe"][draw % 3]
    value = {
        "thought": "as asked",
        "reasoning": "as asked",
        "response": short if "Maybe" in text else f"Something like number {draw % 89}, I think.",
        "stance": stances[draw % len(stances)],
        "judgment": "No",
        "feedback": f"Not yet ({draw % 83}).",
        "covered_detail_indices": [draw % 3],
        "scores": [{"statement": "s", "score": (0, 0.5, 1.0)[(draw + n) % 3]} for n in range(counted)],
        "type": "2" if ids and draw % 2 else str(1 + draw % 4 if draw % 4 != 1 else 3),
        "preference_id": ids[0] if ids else "",
        "alignment_judgement": ("True", "True", "False", "N/A")[draw % 4],
        "alignment_aspect": aspects[draw % len(aspects)] if aspects else "",
    }
    return "```json\n" + json.dumps(value) + "\n```"


def main() -> int:
    """Compare all gyms, and write the table."""
    parser = argparse.ArgumentParser(description="The messages of the released gyms beside ours.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    os.environ.update(OPENAI_API_KEY="none", OPENAI_BASE_URL=url, SERPER_API_KEY="mock_api_key_for_testing")
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        for part in ("userrl", "tau-bench"):
            import_clone(arguments.folder / part, data)
        _prepare(arguments.folder, data, url)
        table = [_compared(gym, data, arguments.tasks) for gym in (*PACKAGES, "tau (react)", "function")]
    for row in table:
        row["commit"] = _commit(arguments.folder / ("tau-bench" if "react" in str(row["gym"]) else "userrl"))
    for row in table:
        print("  ".join(f"{key} {value}" for key, value in row.items()))
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        with arguments.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(table[0]))
            writer.writeheader()
            writer.writerows(table)
    return int(any(row["equal"] != row["requests"] or row["read_equal"] != row["read"] for row in table))


def _compared(gym: str, folder: Path, limit: int) -> dict[str, Any]:
    name, strategy = gym.split()[0], "react" if "react" in gym else "plain"
    test_tasks = _tasks(name, folder)[:limit]
    requests = equal = read = read_equal = 0
    digest = hashlib.sha256()
    published = [task for task in load_published(name, folder / "userrl") if task.split == "test"][:limit]
    openings = sum(_opening_is_the_row(task, folder) for task in published)
    for task in test_tasks:
        if name == "function":
            continue
        actions = actions_of(task)
        theirs = _recorded(partial(_released, name, strategy, task, actions))
        ours = _recorded(partial(_ours, name, strategy, task, actions, folder))
        if name == "intention":  # ours asks its two questions at once
            theirs.requests, ours.requests = sorted(theirs.requests), sorted(ours.requests)
        requests += len(theirs.requests)
        same = [a == b for a, b in zip(theirs.requests, ours.requests, strict=False)]
        equal += sum(same) if len(theirs.requests) == len(ours.requests) else 0
        read += len(theirs.read)
        read_equal += sum(a == b for a, b in zip(theirs.read, ours.read, strict=False))
        if os.environ.get("SHOW") and (not all(same) or theirs.read != ours.read):
            _show(theirs, ours)
        digest.update("\n".join(theirs.requests).encode())
    return {
        "gym": gym,
        "tasks": len(test_tasks),
        "openings": len(published),
        "openings_equal": openings,
        "requests": requests,
        "equal": equal,
        "read": read,
        "read_equal": read_equal,
        "sha256": digest.hexdigest()[:16] if requests else "",
    }


def _show(theirs: Conversation, ours: Conversation) -> None:
    for a, b in [*zip(theirs.requests, ours.requests, strict=False), *zip(theirs.read, ours.read, strict=False)]:
        if a != b:
            at = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            print("DIFFERS\n ", a[max(0, at - 200) : at + 200], "\n ", b[max(0, at - 200) : at + 200])
            return
    print("lengths", len(theirs.requests), len(ours.requests), len(theirs.read), len(ours.read))


def _recorded(play: Callable[[], Coroutine[Any, Any, list[str]]]) -> Conversation:
    _Model.requests.clear()
    read = asyncio.run(play())
    return Conversation([json.dumps(_plain(request), sort_keys=True) for request in _Model.requests], read)


def _plain(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request with role and content of its messages alone; the client library of tau-bench adds empty fields."""
    messages = [{"role": m["role"], "content": m["content"]} for m in request["messages"]]
    return {**request, "messages": messages}


def actions_of(task: Task) -> Actions:
    """Return the agent's messages of a conversation, the same for every run."""
    if task.gym == "search":
        return [("answer", f" Perhaps number {n}? ") for n in range(TURNS)]
    if task.gym in ("telepathy", "turtle"):
        return [
            ("action", f"Is it number {n}?") if n % 3 else ("answer", f"It is {{number}} {n}") for n in range(TURNS)
        ]
    if task.gym == "travel":
        aspects = [*World.of(task.payload).aspects.values()]
        messages = [("action", "Which seat do you like?"), ("search", f"{aspects[0].name} for those days")] * (
            TURNS // 2
        )
        return [*messages, ("answer", aspects[0].best)]
    return [("action", f"Question {n}: which of {{these}} do you want, A or B? ") for n in range(TURNS)]


async def _ours(name: str, strategy: str, task: Task, actions: Actions, folder: Path) -> list[str]:
    options = {"model": "gpt-4o", "prompts": "released", "texts": str(folder), "retries": 0}
    if name == "tau":
        options["strategy"] = strategy
    settings: dict[str, dict[str, Any]] = {
        "travel": {"end_when": "all_best", "preset": "userrl_eval"},
        "turtle": {"threshold": 1.0},
    }
    gym = make(name, task, ("openai", options), **settings.get(name, {}))
    gym.reset(seed=0)
    read = []
    for choice, content in actions:
        step = await gym.step(InteractCall(choice, content))
        read.append(step.observation)
        if gym.done:
            break
    return read


async def _released(name: str, strategy: str, task: Task, actions: Actions) -> list[str]:
    if strategy == "react":
        user = import_module("tau_bench.envs.user").load_user("react", "gpt-4o", "openai")
        _Model.requests.clear()  # it opens a conversation without an instruction when it is made
        user.reset(instruction=task.payload["instruction"])
        # Its parser gives the agent the thought as well; what the agent may read is after the mark.
        return [user.step(content.strip()).partition("User Response:")[2].strip() for _, content in actions]
    _, package, cls = PACKAGES[name]
    module = import_module(package)
    config = module.get_default_config()
    config.max_steps, config.data_mode = 99, "single"
    config.data_source = task.payload["title"] if name in ("telepathy", "turtle") else task.id
    if name == "search":
        config.eval_method = "llm"
    if name == "tau":
        config.task_category, config.task_split = ("retail" if "retail" in task.id else "airline"), "test"
    if name == "turtle":
        config.success_threshold = 1.0
    if name == "travel":
        config.data_mode = "random"  # among the one task that follows
        vars(import_module("travelgym.env.travel_env"))["load_tasks"] = lambda config: [_scenario(task)]
    env = getattr(module, cls)(config=config)
    _Model.requests.clear()
    env.reset()
    if name == "tau":  # LLMUserSimulationEnv also opens a conversation without an instruction when it is made
        del _Model.requests[:-1]
    read = []
    for choice, content in actions:
        observation, _, terminated, _, _ = await env.step_async(f"[{choice}] {content}")
        read.append(str(observation["feedback"]))
        if terminated:
            break
    return read


def _scenario(task: Task) -> dict[str, Any]:
    return {**_released_task(task, World.of(task.payload)), "scenario": str(task.payload["opening"])}


def _tasks(name: str, folder: Path) -> list[Task]:
    if name == "travel":  # the released option databases are not public: the released gym plays our scenarios
        return list(tasks("travel", "test"))
    test_tasks = [task for task in load_published(name, folder / "userrl") if task.split == "test"]
    return [task for task in test_tasks if task.payload.get("domain") in (None, "retail", "airline")]


def _opening_is_the_row(task: Task, folder: Path) -> bool:
    """Return whether our first messages are those of the task's released row."""
    from userrl_core.gyms.released import read_parquet

    task = with_prompt(task, folder)
    rows = f"travel{task.payload['composition']}_multiturn_onechoice" if task.gym == "travel" else ROWS[task.gym]
    key = "title" if task.gym in ("turtle", "telepathy") else "id"
    name = task.payload["title"] if key == "title" else task.id
    path = folder / "userrl" / "data" / rows / "test.parquet"
    row = next(row for row in read_parquet(path, ["prompt", "reward_model"]) if str(row["reward_model"][key]) == name)
    if "unplayable" in task.payload:  # travel without its options
        shown = [dict(message) for message in task.payload["prompt"]]
    else:
        gym = make(task.gym, task, "rule")
        shown = opening_messages(gym, gym.reset(seed=0), 16, "released")
    return bool(shown == row["prompt"])


def _prepare(folder: Path, data: Path, url: str) -> None:
    """Put the checkouts on the path, with the stand-ins for what is not in them."""
    for gym, _, _ in PACKAGES.values():
        sys.path.insert(0, str(folder / "userrl" / "gyms" / gym))
    sys.path.insert(0, str(folder / "tau-bench"))
    sys.modules["litellm"] = _litellm(url)
    # The statements' file is too large for some copies; the rows of the splits have every statement that is played.
    statements = [{"id": t.id, **t.payload} for t in load_published("persuade", data / "userrl")]
    for module in ("statement_data", "persuade_env"):
        vars(import_module(f"persuadegym.env.{module}"))["load_statements"] = lambda: statements


def _litellm(url: str) -> types.ModuleType:
    """Return a module with litellm's `completion`, which tau-bench calls, over the openai client."""
    from openai import OpenAI

    client = OpenAI(api_key="none", base_url=url)

    def completion(*, model: str, custom_llm_provider: str, messages: list[Any]) -> Any:
        result = client.chat.completions.create(model=model, messages=messages)
        return types.SimpleNamespace(choices=result.choices, _hidden_params={"response_cost": 0.0})

    module = types.ModuleType("litellm")
    module.completion, module.provider_list = completion, []  # type: ignore[attr-defined]
    return module


def _commit(checkout: Path) -> str:
    done = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    recorded = checkout / "COMMIT"
    return recorded.read_text().strip() if recorded.is_file() else done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
