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
from tests.published import published
from userrl_core.interact import InteractCall, render_call, tool_schema
from userrl_core.served.client import ChatServer, client_for
from userrl_core.training.config import ModelConfig
from userrl_core.training.local.completion import SHORTEST_SHARED, Completer, CompletionRequest, calls_of, shared_tokens
from userrl_core.training.local.state import load_checkpoint
from userrl_core.training.local.text.chat import ChatFormat
from userrl_core.training.local.text.constrained import CallRule, required_call
from userrl_core.training.local.threads import fix_threads
from userrl_serving.model_server import ModelServer, app_of
from warehouse import open_warehouse

QUESTION = [{"role": "user", "content": "Which coat?"}]
LOOK_UP: dict[str, Any] = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
PING: dict[str, Any] = {
    "type": "function",
    "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return llama(tmp_path_factory.mktemp("model") / "tiny-llama", context=2**14)


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
        child.wait(300)


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
    fix_threads(1)
    return Completer(*load_checkpoint(folder, ModelConfig(path=str(folder)), "cpu"))


def test_a_model_is_listed_once_and_no_page_loads_scripts_from_elsewhere() -> None:
    answers = {route.path: route.endpoint for route in app_of(ModelServer(None, ("tiny", "tiny"))).routes}  # type: ignore[arg-type]
    assert [row["id"] for row in asyncio.run(answers["/v1/models"]())["data"]] == ["tiny"]
    assert not {"/docs", "/redoc"} & answers.keys()


def test_the_same_seed_gives_the_same_reply_whatever_it_is_batched_with(folder: Path) -> None:
    ours = completer(folder)
    one = CompletionRequest(QUESTION, seed=7, max_tokens=12)
    others = [CompletionRequest([{"role": "user", "content": "x" * n}], seed=n, max_tokens=n) for n in (3, 9, 20)]
    assert ours.complete([one])[0].ids == ours.complete([*others, one])[-1].ids
    assert ours.complete([one])[0].ids != ours.complete([CompletionRequest(QUESTION, seed=8, max_tokens=12)])[0].ids


def test_a_beginning_that_all_requests_share_is_computed_once_and_no_reply_changes(folder: Path) -> None:
    ours, rules = completer(folder), {"role": "system", "content": "answer red blue green or grey " * 4}
    requests = [
        CompletionRequest([rules, {"role": "user", "content": text}], temperature=0.0, max_tokens=12)
        for text in ("coat", "shoes and hat", "0 1 2 3")
    ]
    prompts = [ours.prompt(request) for request in requests]
    assert shared_tokens(prompts) > SHORTEST_SHARED
    assert shared_tokens([prompts[0], prompts[0]]) == len(prompts[0]) - 1
    assert shared_tokens(prompts[:1]) == 0
    assert [reply.ids for reply in ours.complete(requests)] == [ours.complete([one])[0].ids for one in requests]


def test_log_probabilities_are_those_of_the_whole_distribution(folder: Path) -> None:
    ours = completer(folder)
    request = CompletionRequest(QUESTION, temperature=0.0, max_tokens=6, top_logprobs=2)
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
    assert ours.prompt(CompletionRequest(messages)) == ours.prompt(CompletionRequest(stored))


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
    ids = ours.prompt(CompletionRequest([*QUESTION, asked, *results]))
    assert ids == ours.prompt(CompletionRequest([*QUESTION, reply, *results]))
    trained = ChatFormat(load_checkpoint(folder, ModelConfig(path=str(folder)), "cpu")[1]).chat(
        {"messages": [*QUESTION, reply, *results, reply]}
    )
    assert trained.ids[: len(ids)] == ids
    with raises("argument.malformed", "messages[0]", "image_url"):
        ours.prompt(CompletionRequest([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]))


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
        ({"temperature": float("nan")}, 400),
        ({"top_p": float("inf")}, 400),
        ({"max_tokens": 0}, 400),
        ({"logit_bias": {"1": 100}}, 400),
        ({"presence_penalty": 0.5}, 400),
        ({"min_tokens": 3}, 400),
        ({"top_logprobs": 2}, 400),
        ({"stop": [""]}, 400),
        ({"stop": 3}, 400),
        ({"tool_choice": "required"}, 400),
        ({"tools": [LOOK_UP], "tool_choice": {"type": "function", "function": {"name": "other"}}}, 400),
        ({"tools": [{"type": "function", "function": {"name": "w", "strict": True}}]}, 400),
        ({"tools": ["w"]}, 400),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, 400),
        ({"messages": [*QUESTION, {"role": "assistant", "content": "s", "prefix": True}, *QUESTION]}, 400),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, 400),
        ({"seed": 10**400}, 400),
        ({"messages": [*QUESTION, {"role": "assistant", "content": "so"}]}, 400),
        ({"messages": [{"role": "user", "content": "word " * 6000}]}, 400),
    ],
)
def test_what_is_not_served_is_refused(base_url: str, folder: Path, change: dict[str, Any], status: int) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(base_url, **{"model": str(folder), "messages": QUESTION, **change})
    assert refused.value.code == status
    error = json.load(refused.value)["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"].endswith((".", ")"))


def test_null_and_values_that_ask_for_nothing_are_as_absent(base_url: str, folder: Path) -> None:
    body = {"model": str(folder), "messages": QUESTION, "seed": 3, "max_tokens": 5}
    fields = ("temperature", "top_p", "tools", "tool_choice", "n", "stream", "stop", "response_format", "logprobs")
    nulls = dict.fromkeys((*fields, "logit_bias", "max_completion_tokens", "stream_options", "something_new"))
    neutral = {"n": 1, "stream": False, "logit_bias": {}, "frequency_penalty": 0, "user": "me", "store": False}
    plain = ask(base_url, **body)["choices"]
    assert plain == ask(base_url, **body, **nulls)["choices"] == ask(base_url, **body, **neutral)["choices"]


@pytest.mark.parametrize(("method", "path"), [("GET", "chat/completions"), ("POST", "completions")])
def test_other_routes_are_refused_in_the_same_form(base_url: str, method: str, path: str) -> None:
    data = b"{}" if method == "POST" else None
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(f"{base_url}/{path}", data=data, method=method), timeout=60)
    assert json.load(refused.value)["error"]["message"] == f"{method} /v1/{path} is not served."


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_reply_ends_before_the_first_stop_text(folder: Path, temperature: float) -> None:
    ours = completer(folder)
    (free,) = ours.complete([CompletionRequest(QUESTION, temperature=temperature, seed=7, max_tokens=30)])
    stops = [free.text[9:12], free.text[4:6]]
    cut = free.text[: min(map(free.text.index, stops))]
    asked = CompletionRequest(QUESTION, temperature=temperature, seed=7, max_tokens=30, stop=stops)
    (stopped,) = ours.complete([asked])
    assert (stopped.text, stopped.finish_reason) == (cut, "stop")
    assert len(stopped.ids) < len(free.ids)
    assert ours.complete([asked, CompletionRequest(QUESTION, seed=1, max_tokens=40)])[0].ids == stopped.ids


@pytest.mark.parametrize("tools", [[tool_schema(["search", "answer"])], [LOOK_UP], [LOOK_UP, tool_schema()]])
def test_a_required_call_is_a_call_of_these_tools_or_a_cut_one(folder: Path, tools: list[dict[str, Any]]) -> None:
    """The model is random: it calls nothing by itself, and it seldom closes a text."""
    ours = completer(folder)
    requests = [
        CompletionRequest(QUESTION, tools, seed / 2, 1.0, 80, seed, tool_choice="required", stop=["o"])
        for seed in range(3)
    ]
    for reply in ours.complete(requests):
        assert reply.calls or reply.finish_reason == "length"
        assert not reply.calls or reply.finish_reason == "tool_calls"
        for name, arguments in reply.calls:
            assert name in {tool["function"]["name"] for tool in tools}
            assert isinstance(json.loads(arguments), dict)
        assert len(reply.calls) <= 1
        assert ours._format.text(reply.ids).startswith('<tool_call>\n{"name": "')


def test_a_required_call_of_a_tool_without_parameters_is_whole(folder: Path) -> None:
    (reply,) = completer(folder).complete([CompletionRequest(QUESTION, [PING], max_tokens=80, tool_choice="required")])
    assert (reply.calls, reply.finish_reason, reply.text) == ([("ping", "{}")], "tool_calls", "")


def test_a_named_tool_is_the_only_one_that_is_called(folder: Path) -> None:
    ours = completer(folder)
    request = CompletionRequest(
        QUESTION, [tool_schema(), LOOK_UP], max_tokens=40, tool_choice="required", tool="look_up"
    )
    assert ours._format.text(ours.complete([request])[0].ids).startswith(
        '<tool_call>\n{"name": "look_up", "arguments":'
    )


def test_without_a_choice_of_tools_no_call_is_written(folder: Path) -> None:
    ours = completer(folder)
    free = CompletionRequest(QUESTION, [LOOK_UP], max_tokens=30, tool_choice="none")
    assert ours.prompt(free) == ours.prompt(CompletionRequest(QUESTION))
    rule = CallRule()
    assert rule.allows("<tool_cal", ended=False)
    assert not rule.allows("So: <tool_call>", ended=False)
    assert not CallRule(line=True).allows("So.\naction: coat", ended=False)


@pytest.mark.parametrize(
    ("text", "ended", "allowed", "complete"),
    [
        ("Well", False, False, False),
        ('<tool_call>\n{"name": "other', False, False, False),
        ('<tool_call>\n{"name": "look_up", "arguments": {"a": [1, {"b": nu', False, True, False),
        ('<tool_call>\n{"name": "look_up", "arguments": {"a": [1, {"b": nu', True, False, False),
        ('<tool_call>\n{"name": "look_up", "arguments": {"a": 1 2', False, False, False),
        ('<tool_call>\n{"name": "look_up", "arguments": {"a": NaN', False, False, False),
        ('<tool_call>\n{"name": "look_up", "arguments": {"a": "</tool_call>', False, False, False),
        ('<tool_call>\n{"name": "look_up", "arguments": {}', False, True, False),
        ('<tool_call>\n{"name": "look_up", "arguments": {}, "name"', False, False, False),
        ('<tool_call>\n{"name": "look_up", "arguments": {}}', False, True, True),
        ('<tool_call>\n{"name": "look_up", "arguments": {}}\n</tool_call>', True, True, True),
    ],
)
def test_a_call_grows_by_texts_that_can_still_become_one(text: str, ended: bool, allowed: bool, complete: bool) -> None:
    rule = required_call([LOOK_UP], line=False)
    assert (rule.allows(text, ended), rule.complete(text)) == (allowed, complete)


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        ('{"choice": "search", "content": "a \\", \\"b', True),
        ('{"choice": "search", "content": "a"', True),
        ('{"choice": "search", "content": "a", ', False),
        ('{"choice": "search", "choice"', False),
        ('{"content": {"choice": 1, "of": ["x"]}, "cho', True),
        ('{"content": [1, 2], "other', False),
    ],
)
def test_a_required_call_has_the_names_of_its_tool_and_each_once(arguments: str, allowed: bool) -> None:
    """SmolLM2 begins "choice" again and again after the content, so its call came to no end."""
    tool = {"function": {"name": "act", "parameters": {"properties": {"choice": {}, "content": {}}}}}
    rule = required_call([tool], line=False)
    assert rule.allows(f'<tool_call>\n{{"name": "act", "arguments": {arguments}', ended=False) is allowed


def test_a_model_that_writes_lines_is_required_to_write_one() -> None:
    rule = required_call([tool_schema(["search", "answer"])], line=True)
    assert rule.allows("answer: a red", ended=False)
    assert not rule.allows("action: a red", ended=False)
    assert rule.allows(render_call(InteractCall("answer", "a red coat")), ended=True)


@pytest.mark.parametrize(
    "hostile", [{"top_p": 1e-300}, {"temperature": 1e-300}, {"top_logprobs": 20, "logprobs": True}]
)
def test_extreme_numbers_are_answered(base_url: str, folder: Path, hostile: dict[str, Any]) -> None:
    body = {"model": str(folder), "messages": QUESTION, "seed": 3, "max_tokens": 5}
    greedy = ask(base_url, **body, temperature=0)["choices"][0]["message"]
    reply = ask(base_url, **body, **hostile)["choices"][0]["message"]
    assert reply == greedy or "logprobs" in hostile


def test_a_request_that_fails_fails_alone(folder: Path) -> None:
    async def talk() -> list[Any]:
        server = ModelServer(completer(folder), ("tiny",))
        worker = asyncio.create_task(server.work())
        asked = [CompletionRequest(QUESTION, seed=seed, max_tokens=3) for seed in (1, 2**70, 2)]
        replies = await asyncio.gather(*map(server.completion, asked), return_exceptions=True)
        worker.cancel()
        return list(replies)

    first, failed, last = asyncio.run(talk())
    assert isinstance(failed, Exception)
    assert len(first.ids) == len(last.ids) == 3


def test_a_request_whose_client_has_gone_is_given_up(folder: Path) -> None:
    """The client times out and asks again. Nobody would read the first reply, and the second one would wait for it."""
    body = json.dumps({"model": "tiny", "messages": QUESTION}).encode()
    messages = [{"type": "http.request", "body": body}, {"type": "http.disconnect"}]

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    async def send(message: Any) -> None:
        pass

    async def leave() -> bool:
        server = ModelServer(completer(folder), ("tiny",))
        route = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": [], "query_string": b""}
        await app_of(server)(route, receive, send)
        _, future = server._waiting.get_nowait()
        return future.cancelled()

    assert asyncio.run(leave())


def test_a_reply_that_nobody_waits_for_any_more_is_cut(folder: Path) -> None:
    requests = [CompletionRequest(QUESTION, seed=seed, max_tokens=12) for seed in (1, 2)]
    ours = completer(folder)
    alone = ours.complete(requests[1:])
    left, kept = ours.complete(requests, lambda index: index > 0)
    assert len(left.ids) == 1
    assert kept.ids == alone[0].ids


def test_a_conversation_that_is_too_long_is_refused_as_too_long_and_not_for_its_tools(
    base_url: str, folder: Path
) -> None:
    server = ChatServer(model=str(folder), base_url=base_url, max_tokens=6)
    long = [{"role": "user", "content": "word " * 6000}]

    async def talk() -> None:
        await client_for(server).complete(long, role="policy", ledger=[], tools=[LOOK_UP])

    with raises("policy.no_reply", "does not fit the server's context"):
        asyncio.run(talk())


def test_our_client_talks_to_it_at_once_from_many_conversations(base_url: str, folder: Path) -> None:
    server = ChatServer(model=str(folder), base_url=base_url, max_tokens=6)

    async def talk() -> list[str]:
        client = client_for(server)
        asked = [client.complete(QUESTION, role="user", ledger=[]) for _ in range(8)]
        return [answer.text for answer in await asyncio.gather(*asked, return_exceptions=False)]

    assert len(asyncio.run(talk())) == 8


@pytest.mark.slow
@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize(
    ("suite", "gyms"), [("userrl-table3:ours", 8), ("userbench-single:ours", 1), ("tarl-retail", 1), ("agentgym-rl", 3)]
)
def test_a_suite_is_played_by_a_random_model_as_agent_user_and_judge(
    suite: str, gyms: int, base_url: str, folder: Path, tmp_path: Path
) -> None:
    """Calls are required, since the model writes none by itself. As judge it writes no JSON: such a conversation has no score."""
    data = {"USERRL_PUBLISHED_DATA": str(published("tau-bench").parent)} if suite == "tarl-retail" else {}
    seeded = {"model": str(folder), "base_url": base_url, "retries": 1, "backoff": 0, "extra_body": {"seed": 4}}
    agent = {**seeded, "tool_choice": "required", "temperature": 1.0, "max_tokens": 120}
    strategy = {"strategy": "react"} if suite == "tarl-retail" else {}
    user = {"kind": "openai", "options": {**seeded, "max_tokens": 12, **strategy}}
    words = ["--model", json.dumps(agent), *(["--user", json.dumps(user)] if suite != "agentgym-rl" else [])]
    command = [sys.executable, "-m", "flows.cli.main", "evaluate", suite, *words, "--tasks", "1", "--attempts", "1"]
    done = subprocess.run(
        [*command, "--horizon", "2", "--json"],
        env={**environment(tmp_path), **data},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode in (0, 1), done.stderr
    rows = {row["gym"]: row for row in json.loads(done.stdout)["rows"] if row["gym"] != "all" and not row["tier"]}
    with open_warehouse(tmp_path / "warehouse") as warehouse:
        played = warehouse.sql("select gym, admitted, score, reject_reason, flags & 1 from trajectories").fetchall()
        cost = {row["role"]: row for row in warehouse.query("cost").pl().to_dicts()}
    assert len(played) == len(rows) == gyms
    for gym, admitted, score, reason, unreadable in played:
        row = rows[gym]
        assert (row["trajectories"], row["rejected"]) == ((1, 0) if admitted else (0, 1))
        assert row["score"] == score
        assert row["unreadable"] == (unreadable if admitted else 0)
        assert admitted or (score is None and reason.startswith(("user: ", "judge: ")))
    assert cost["policy"]["completion_tokens"] > 0
    assert all(row["dollars"] is None and row["unpriced_calls"] == row["calls"] for row in cost.values())
    if suite != "userbench-single:ours":
        assert any(admitted for _, admitted, *_ in played)
    if suite.endswith(":ours"):
        assert any(not admitted for _, admitted, *_ in played)
        assert sum(row["failed"] for role, row in cost.items() if role != "policy") > 0
