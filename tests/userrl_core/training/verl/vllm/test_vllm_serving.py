"""A checkpoint behind `userrl serve-user` and real vLLM is offered tools and answers by calls, as evaluation asks it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.flows.small import environment, played
from tests.ports import free_port
from userrl_core.errors import PolicyError
from userrl_core.gyms import registry
from userrl_core.interact import CHOICES, TOOL_NAME, tool_schema
from userrl_core.policies.openai import OpenAIPolicy
from userrl_core.rollout import run_episodes
from userrl_core.served.client import ChatServer, ToolsRefused, client_for
from warehouse import open_warehouse

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]
START_SECONDS = 600.0
CONTEXT = 4096


@dataclass
class Served:
    """A running `userrl serve-user`."""

    model: str
    home: Path
    url: str

    def said(self) -> str:
        """What vLLM said."""
        return next(self.home.glob("serve/*/server.txt")).read_text()

    def ask(self, **fields: Any) -> dict[str, Any]:
        body = json.dumps({"model": self.model, "temperature": 0.0, "max_tokens": 64, **fields}).encode()
        request = urllib.request.Request(f"{self.url}/chat/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as reply:
            answer: dict[str, Any] = json.load(reply)["choices"][0]
        return answer


@pytest.fixture(scope="module")
def served(speaker: Path, vllm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home, port = tmp_path_factory.mktemp("home"), free_port()
    words = ["--model", str(speaker), "--port", str(port), "--python", str(vllm_python)]
    words += ["--max-model-len", str(CONTEXT)]
    env = {**environment(home), "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    command = [sys.executable, "-m", "flows.cli.main", "serve-user", *words, "--", "--enforce-eager"]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        until_it_answers(port, process)
        yield Served(str(speaker), home, f"http://127.0.0.1:{port}/v1")
    finally:
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert psutil.wait_procs(children, timeout=30)[1] == []


def until_it_answers(port: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            pytest.fail(str(process.communicate()[0]))
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    pytest.fail(f"no answer in {START_SECONDS:g} s")


def test_a_request_with_tools_is_answered_by_a_call_and_not_by_its_text(served: Served) -> None:
    opening = [{"role": "system", "content": "Solve it."}, {"role": "user", "content": "What is 2 + 2?"}]
    answer = served.ask(messages=opening, tools=[tool_schema(CHOICES)])
    (call,) = answer["message"]["tool_calls"]
    assert call["function"]["name"] == TOOL_NAME
    assert set(json.loads(call["function"]["arguments"])) == {"choice", "content"}
    assert "<tool_call>" not in (answer["message"]["content"] or "")
    assert answer["finish_reason"] == "tool_calls"


def test_an_evaluation_of_the_served_checkpoint_is_played_by_calls(served: Served, tmp_path: Path) -> None:
    words = ["--gym", "function", "--gym", "math", "--tasks", "4", "--horizon", "3", "--user", "rule"]
    command = ["evaluate", "--model", served.model, "--base-url", served.url, *words]
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli.main", *command],
        env={**environment(tmp_path), "OPENAI_API_KEY": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    with open_warehouse(tmp_path / "warehouse") as warehouse:
        played = warehouse.sql(
            "SELECT gym, count(*) FROM trajectories WHERE admitted GROUP BY gym ORDER BY gym"
        ).fetchall()
        ((turns, spoken, called),) = warehouse.sql(
            "SELECT count(*), count(*) FILTER (message LIKE '%<tool_call>%'), count(choice) FROM turns"
        ).fetchall()
        asked = warehouse.sql(
            "SELECT count(*), max(attempts), count(error) FROM model_calls WHERE role = 'policy'"
        ).fetchall()
    assert played == [("function", 4), ("math", 4)]
    assert spoken == 0
    assert called > turns / 2
    # A server that refuses tools answers 400, and the policy asks again without them: one more call per conversation.
    assert asked == [(turns, 1, 0)]
    assert '" 400' not in served.said()


async def test_a_limit_above_the_servers_context_costs_no_tools_and_a_full_context_says_so(served: Served) -> None:
    """Last of this file: vLLM's answers of 400 stand in its output from here on."""
    for limit in (CONTEXT, 2 * CONTEXT):
        policy = OpenAIPolicy(ChatServer(model=served.model, base_url=served.url, max_tokens=limit, timeout=300.0))
        [played] = await run_episodes(registry.tasks("math", "test")[:1], policy, horizon=2)
        calls = [call for turn in played.turns for call in turn.model_calls]
        assert (played.admitted, policy.tools, policy.refusals) == (True, "auto", 0)
        assert {(call.attempts, call.error) for call in calls} == {(2, None)}
        assert all("<tool_call>" not in turn.message for turn in played.turns)
    client = client_for(policy.server)
    full = [{"role": "user", "content": "a b c d " * CONTEXT}]
    with pytest.raises(PolicyError, match="lower the horizon or serve a longer one") as told:
        await client.complete(full, role="policy", ledger=[], tools=[tool_schema(CHOICES)])
    assert not isinstance(told.value, ToolsRefused)


def test_vllm_speaks_for_a_checkpoint_in_an_evaluation_as_our_own_decoder_does(
    speaker: Path, vllm_python: Path, tmp_path: Path
) -> None:
    env = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "TORCH_COMPILE_DISABLE": "1",
    }
    said = {}
    for engine in ("local", "vllm"):
        given = {
            "checkpoint": str(speaker),
            "profile": "laptop",
            "gyms": ["function", "math"],
            "tasks": 8,
            "horizon": 4,
            "user": "rule",
            "overrides": {
                "hardware.checkpoint_engine": engine,
                "hardware.python": str(vllm_python),
                "model.prompt_style": "full",
                "model.template": "chatml",
                "algorithm.max_tokens": 128,
                "algorithm.max_prompt_tokens": 2048,
                "algorithm.max_response_tokens": 1024,
            },
        }
        said[engine] = played(tmp_path / engine, given, **env)
    same = sum(a == b for a, b in zip(said["local"], said["vllm"], strict=False))
    # Two implementations round apart, and where the model wavers between two tokens one of them may fall the other way.
    assert same >= 0.8 * max(map(len, said.values()))
    assert sum(kept for *_, kept in said["vllm"]) == len(said["vllm"])
