"""``userrl serve-model``: our own decoder over OpenAI's protocol."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.flows.small import environment
from tests.llama import llama
from tests.makers import raises
from tests.ports import free_port
from userrl_core.interact import InteractCall, render_call, tool_schema
from userrl_core.served.client import ChatServer, client_for
from userrl_core.training.config import ModelConfig
from userrl_core.training.local.completion import Completer, Request, calls_of
from userrl_core.training.local.state import load_checkpoint
from userrl_core.training.local.text.chat import ChatFormat

QUESTION = [{"role": "user", "content": "Which coat?"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return llama(tmp_path_factory.mktemp("model") / "tiny-llama")


@pytest.fixture(scope="module")
def base_url(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "flows.cli.main", "serve-model", str(folder), "--port", str(port)]
    given = environment(tmp_path_factory.mktemp("home"))
    child = subprocess.Popen([*command, "--max-tokens", "12"], env=given, stdout=subprocess.DEVNULL)
    try:
        for _ in range(2400):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).close()
                break
            except OSError:
                assert child.poll() is None
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        child.terminate()
        child.wait(30)


def ask(base_url: str, **body: Any) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{base_url}/chat/completions",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        value: dict[str, Any] = json.load(answer)
        return value


def completer(folder: Path) -> Completer:
    return Completer(*load_checkpoint(folder, ModelConfig(path=str(folder)), "cpu"))


def test_the_same_seed_gives_the_same_reply_whatever_it_is_batched_with(folder: Path) -> None:
    ours = completer(folder)
    one = Request(QUESTION, seed=7, max_tokens=12)
    others = [Request([{"role": "user", "content": "x" * n}], seed=n, max_tokens=n) for n in (3, 9, 20)]
    assert ours.complete([one])[0].ids == ours.complete([*others, one])[-1].ids
    assert ours.complete([one])[0].ids != ours.complete([Request(QUESTION, seed=8, max_tokens=12)])[0].ids


def test_log_probabilities_are_those_of_the_whole_distribution(folder: Path) -> None:
    ours = completer(folder)
    request = Request(QUESTION, temperature=0.0, max_tokens=6, top_logprobs=2)
    (reply,) = ours.complete([request])
    model, _ = load_checkpoint(folder, ModelConfig(path=str(folder)), "cpu")
    prompt = ours.prompt(request)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*prompt, *reply.ids]])).logits[0, len(prompt) - 1 : -1]
    wanted = torch.log_softmax(logits.float(), -1).gather(1, torch.tensor(reply.ids)[:, None])[:, 0]
    assert torch.allclose(torch.tensor(reply.logprobs), wanted, atol=1e-4)
    assert all(best[0][1] == pytest.approx(own) for best, own in zip(reply.alternatives, reply.logprobs, strict=True))


def test_a_conversation_with_calls_is_encoded_as_in_training(folder: Path) -> None:
    ours = completer(folder)
    call = {
        "id": "1",
        "function": {"name": "interact_with_env", "arguments": '{"choice": "action", "content": "coat"}'},
    }
    messages = [
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "red"},
    ]
    stored = [*QUESTION, {"role": "assistant", "content": render_call(InteractCall("action", "coat"))}, messages[2]]
    assert ours.prompt(Request(messages)) == ours.prompt(Request(stored))


def test_a_request_is_read_as_training_reads_a_chat(folder: Path) -> None:
    ours = completer(folder)
    results = [
        {"role": "tool", "content": "red"},
        {"role": "tool", "content": "blue"},
        {"role": "user", "content": "So?"},
    ]
    call = {"name": "interact_with_env", "input": {"choice": "action", "content": "coat"}}
    spoken = [{"type": "text", "text": "Let me ask."}, {"type": "tool_use", "id": "1", **call}]
    reply: dict[str, Any] = {"role": "assistant", "content": render_call(InteractCall("action", "coat"), "Let me ask.")}
    asked: dict[str, Any] = {"role": "assistant", "content": spoken}
    ids = ours.prompt(Request([*QUESTION, asked, *results]))
    assert ids == ours.prompt(Request([*QUESTION, reply, *results]))
    trained = ChatFormat(load_checkpoint(folder, ModelConfig(path=str(folder)), "cpu")[1]).chat(
        {"messages": [*QUESTION, reply, *results, reply]}
    )
    assert trained.ids[: len(ids)] == ids
    with raises("argument.malformed", "messages[0]", "image_url"):
        ours.prompt(Request([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]))


def test_calls_are_read_by_the_rules_of_rollouts() -> None:
    call = render_call(InteractCall("action", "coat"), "Let me ask.")
    assert calls_of(call, [tool_schema()]) == [("interact_with_env", '{"choice": "action", "content": "coat"}')]
    assert calls_of("no call", [tool_schema()]) == []
    other = {"type": "function", "function": {"name": "look_up"}}
    assert calls_of('<tool_call>{"name": "look_up", "arguments": {"id": 1}}</tool_call>', [other]) == [
        ("look_up", '{"id": 1}')
    ]


def test_the_protocol_is_openai_s(base_url: str, folder: Path) -> None:
    body = {"model": str(folder), "messages": QUESTION, "seed": 3, "max_tokens": 5, "logprobs": True, "top_logprobs": 2}
    first, second = ask(base_url, **body), ask(base_url, **body)
    assert first["choices"] == second["choices"]
    content = first["choices"][0]["logprobs"]["content"]
    assert len(content) == first["usage"]["completion_tokens"] <= 5
    assert all(len(token["top_logprobs"]) == 2 and token["logprob"] <= 0 for token in content)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"model": "other"}, 404),
        ({"stream": True}, 400),
        ({"messages": [*QUESTION, {"role": "assistant", "content": "so"}]}, 400),
        ({"messages": [{"role": "user", "content": "word " * 600}]}, 400),
    ],
)
def test_what_is_not_served_is_refused(base_url: str, folder: Path, change: dict[str, Any], status: int) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(base_url, **{"model": str(folder), "messages": QUESTION, **change})
    assert refused.value.code == status


def test_our_client_talks_to_it_at_once_from_many_conversations(base_url: str, folder: Path) -> None:
    server = ChatServer(model=str(folder), base_url=base_url, max_tokens=6)

    async def talk() -> list[str]:
        client = client_for(server)
        asked = [client.complete(QUESTION, role="user", ledger=[]) for _ in range(8)]
        return [answer.text for answer in await asyncio.gather(*asked, return_exceptions=False)]

    assert len(asyncio.run(talk())) == 8


@pytest.mark.slow
def test_it_is_evaluated_as_agent_while_it_also_plays_the_user(base_url: str, folder: Path, tmp_path: Path) -> None:
    """The random model writes no readable call, so its score is 0, but every conversation is scored."""
    command = [sys.executable, "-m", "flows.cli.main", "evaluate", "--model", str(folder), "--base-url", base_url]
    user = json.dumps({"kind": "openai", "options": {"model": str(folder), "base_url": base_url, "max_tokens": 6}})
    words = ["--gym", "wish", "--tasks", "2", "--horizon", "2", "--user", user]
    done = subprocess.run(
        [*command, *words], env=environment(tmp_path), capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "wish" in done.stdout
    assert "0 rejected" in done.stdout
