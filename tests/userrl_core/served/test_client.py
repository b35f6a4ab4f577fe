"""The chat client against an HTTP server on loopback that injects faults."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import re
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ValidationError

from tests.gigabyte import gzipped_gigabyte, little_memory
from tests.makers import raises
from tests.mock_server import FAULTS, Answer, Body, MockServer, modest_user
from userrl_core.errors import JudgeError, PolicyError, UserError
from userrl_core.records import ModelCall
from userrl_core.served import prices
from userrl_core.served.bounded import MAX_BYTES
from userrl_core.served.client import SENT, ChatServer, ToolsRefused, client_for, close_clients
from userrl_core.served.health import probe
from userrl_core.served.prices import price_of
from userrl_core.served.retry import pause_before, redact

HELLO = [{"role": "user", "content": "hello"}]


class Verdict(BaseModel):
    verdict: Literal["No", "Yes"]
    why: str


@pytest.fixture(autouse=True)
async def _no_open_connections() -> AsyncIterator[None]:
    yield
    await close_clients()


def server_at(server: MockServer, **fields: Any) -> ChatServer:
    """With a time-out that no good answer reaches even on a busy machine, because attempts are counted."""
    return ChatServer(base_url=server.base_url, **{"backoff": 0.001, "timeout": 60.0, **fields})


def replying(*texts: str) -> Any:
    """A brain that gives these texts in turn, the last one repeatedly."""
    remaining = list(texts)

    def brain(body: Body) -> Answer:
        return Answer(remaining.pop(0) if len(remaining) > 1 else remaining[0])

    return brain


async def test_an_answer_comes_with_its_tokens_and_one_ledger_row() -> None:
    ledger: list[ModelCall] = []
    with MockServer(replying("Hi there.")) as server:
        answer = await client_for(server_at(server)).complete(HELLO, role="user", ledger=ledger)
    assert (answer.text, answer.completion_tokens, answer.truncated) == ("Hi there.", 7, False)
    [call] = ledger
    assert (call.role, call.model, call.attempts, call.error, call.completion_tokens) == ("user", "gpt-4o", 1, None, 7)
    assert call.seconds > 0
    priced = price_of("gpt-4o", call.prompt_tokens, 7)
    assert priced is not None
    assert (call.price, call.price_source) == priced


@pytest.mark.parametrize("fault", FAULTS)
async def test_every_kind_of_fault_is_retried(fault: str) -> None:
    ledger: list[ModelCall] = []
    with MockServer(modest_user, faults={fault: 0.5}, seed=3) as server:
        # A short time-out for the time-out fault only: on a busy machine a good answer may take longer.
        client = client_for(server_at(server, timeout=0.5 if fault == "timeout" else 60.0, retries=12))
        answers = [await client.complete(HELLO, role="judge", ledger=ledger, schema=Verdict) for _ in range(4)]
        sent, failed = len(server.requests), len(server.injected)
    assert failed > 0
    assert [answer.parsed for answer in answers] == [Verdict(verdict="No", why="I see.")] * 4
    assert sum(call.attempts for call in ledger) == sent
    assert sent >= 4 + failed if fault == "timeout" else sent == 4 + failed
    assert [call.error for call in ledger] == [None] * 4


@pytest.mark.parametrize(("role", "kind"), [("user", UserError), ("judge", JudgeError), ("policy", PolicyError)])
async def test_a_server_that_stays_down_raises_the_error_of_the_role(role: Any, kind: type[Exception]) -> None:
    ledger: list[ModelCall] = []
    with MockServer(modest_user, faults={"500": 1.0}) as server:
        with raises(f"{role}.no_reply", "3 attempts") as caught:
            await client_for(server_at(server, retries=2)).complete(HELLO, role=role, ledger=ledger)
        assert type(caught.value) is kind
        assert len(server.requests) == 3
    assert [(call.attempts, call.error, call.role) for call in ledger] == [(3, "HTTP500", role)]


async def test_no_server_at_all_is_a_connection_error_after_all_attempts() -> None:
    ledger: list[ModelCall] = []
    with MockServer(modest_user) as server:
        stopped = server_at(server, retries=1)
    with raises("user.no_reply"):
        await client_for(stopped).complete(HELLO, role="user", ledger=ledger)
    assert [(call.attempts, call.error) for call in ledger] == [(2, "Connection")]


async def test_a_wrong_key_is_not_retried_and_is_not_disclosed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key = "sk-very-secret-0123456789"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    caplog.set_level(logging.INFO)
    ledger: list[ModelCall] = []
    with MockServer(modest_user, faults={"401": 1.0}) as server:
        with raises("policy.no_reply") as caught:
            await client_for(server_at(server, retries=5)).complete(HELLO, role="policy", ledger=ledger)
        assert len(server.requests) == 1
    chain = [
        caught.value,
        caught.value.__cause__,
        caught.value.__context__ if not caught.value.__suppress_context__ else None,
    ]
    assert all(key not in repr(error) and key[3:] not in repr(error) for error in chain)
    assert key not in caplog.text
    assert key not in repr(ledger)


def test_anything_that_looks_like_a_key_is_redacted() -> None:
    assert redact("Incorrect API key provided: sk-proj-abc***xyz.", "other") == "Incorrect API key provided: ***."
    assert redact("token abcdef123", "abcdef123") == "token ***"


async def test_a_missing_key_is_one_sentence_that_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with raises("model.no_key", "OPENAI_API_KEY"):
        client_for(ChatServer())


def test_the_pause_is_at_least_what_the_server_asked_for_and_at_most_30_seconds() -> None:
    assert all(pause_before(1, 0.5, 2.0) == 2.0 for _ in range(20))
    assert pause_before(1, 0.5, 3600.0) == 30.0
    assert all(0.25 <= pause_before(1, 0.5, None) <= 0.5 for _ in range(50))
    assert all(1.0 <= pause_before(3, 0.5, None) <= 2.0 for _ in range(50))
    assert pause_before(60, 0.5, None) <= 30.0


async def test_the_client_waits_for_retry_after() -> None:
    ledger: list[ModelCall] = []
    with MockServer(replying("ok"), faults={"429": 0.5}, seed=1, retry_after=0.3) as server:
        await client_for(server_at(server, retries=9)).complete(HELLO, role="user", ledger=ledger)
        refusals = len(server.injected)
    assert refusals >= 1
    assert ledger[0].seconds >= 0.3 * refusals


async def test_structured_output_is_requested_in_strict_form() -> None:
    with MockServer(modest_user) as server:
        await client_for(server_at(server)).complete(HELLO, role="judge", ledger=[], schema=Verdict)
        [body] = server.requests
    sent = body["response_format"]["json_schema"]
    assert sent["strict"] is True
    assert sent["schema"]["additionalProperties"] is False
    assert sent["schema"]["required"] == ["verdict", "why"]


async def test_for_a_server_without_structured_output_the_schema_stays_in_the_prompt() -> None:
    ledger: list[ModelCall] = []
    with MockServer(modest_user, structured=False) as server:
        client = client_for(server_at(server))
        for _ in range(2):
            answer = await client.complete(HELLO, role="judge", ledger=ledger, schema=Verdict)
            assert answer.parsed.verdict == "No"
        formats = ["response_format" in body for body in server.requests]
    assert formats == [True, False, False]
    assert [call.attempts for call in ledger] == [2, 1]


async def test_a_refused_format_is_not_offered_again_though_no_reply_was_of_use() -> None:
    """A small model as judge: its replies hold no JSON, so no request ever succeeds."""
    ledger: list[ModelCall] = []
    with MockServer(lambda body: Answer("I judge nobody."), structured=False) as server:
        client = client_for(server_at(server, retries=0))
        for _ in range(2):
            with raises("judge.no_reply", "there is no JSON object in it"):
                await client.complete(HELLO, role="judge", ledger=ledger, schema=Verdict)
        formats = ["response_format" in body for body in server.requests]
    assert formats == [True, False, False]
    assert [call.attempts for call in ledger] == [2, 1]


def with_room_for(tokens: int, says: str) -> Any:
    """A brain of a server whose context has no room for more than so many tokens of a reply; 0 for a full one."""

    def brain(body: Body) -> Answer:
        if body.get("max_tokens", min(tokens, 1)) > tokens or tokens == 0:
            return Answer(body=json.dumps({"error": {"message": says, "code": 400}}).encode(), status=400)
        return Answer('{"verdict": "Yes", "why": "so"}')

    return brain


@pytest.mark.parametrize(
    "says",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 2048 output tokens and your prompt "
        "contains at least 2049 input tokens, for a total of at least 4097 tokens.",
        "max_tokens=2048 cannot be greater than max_model_len=max_total_tokens=1024. Please request fewer output tokens.",
        "Requested token count exceeds the model's maximum context length of 4096 tokens.",
        "the request exceeds the available context size",
        "max_tokens is too large: 2048. This model supports at most 1024 completion tokens.",
    ],
)
async def test_a_limit_that_does_not_fit_the_context_is_left_out_and_nothing_else(says: str) -> None:
    ledger: list[ModelCall] = []
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    with MockServer(with_room_for(16, says)) as server:
        client = client_for(server_at(server))
        for _ in range(2):
            await client.complete(HELLO, role="judge", ledger=ledger, schema=Verdict, tools=tools)
        asked = [(body.get("max_tokens"), "response_format" in body, "tools" in body) for body in server.requests]
    assert asked == [(2048, True, True), (None, True, True)] * 2
    assert [(call.attempts, call.error) for call in ledger] == [(2, None)] * 2


async def test_a_conversation_longer_than_the_context_fails_at_once_and_not_for_its_tools() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    with MockServer(with_room_for(0, "Input length (5000) exceeds model's maximum context length (4096).")) as server:
        with raises("policy.no_reply", "400") as told:
            await client_for(server_at(server)).complete(HELLO, role="policy", ledger=[], tools=tools)
        assert len(server.requests) == 2
    assert not isinstance(told.value, ToolsRefused)


async def test_json_schema_only_does_not_fall_back() -> None:
    with MockServer(modest_user, structured=False) as server, raises("judge.no_reply", "400"):
        await client_for(server_at(server, structured="json_schema")).complete(
            HELLO, role="judge", ledger=[], schema=Verdict
        )


@pytest.mark.parametrize(
    "text",
    [
        '{"verdict": "Yes", "why": "so"}',
        'Sure!\n```json\n{"verdict": "Yes", "why": "so"}\n```\nAnything else?',
        'I thought of {this} and {"other": 1}, then: {"verdict": "Yes", "why": "so"}',
        '<think>{"verdict": ?</think>{"verdict": "Yes", "why": "so"}',
    ],
)
async def test_json_is_found_in_text(text: str) -> None:
    with MockServer(replying(text)) as server:
        answer = await client_for(server_at(server, structured="off")).complete(
            HELLO, role="judge", ledger=[], schema=Verdict
        )
    assert answer.parsed == Verdict(verdict="Yes", why="so")


async def test_a_reply_that_does_not_fit_is_retried_with_the_fields_name_but_no_value() -> None:
    with MockServer(
        replying('{"verdict": "Perhaps <secret>", "why": "x"}', '{"verdict": "Yes", "why": "x"}')
    ) as server:
        answer = await client_for(server_at(server)).complete(HELLO, role="judge", ledger=[], schema=Verdict)
        hint = server.requests[1]["messages"][-1]["content"]
    assert answer.parsed.verdict == "Yes"
    assert "verdict does not fit" in hint
    assert "secret" not in hint


async def test_a_reply_that_never_fits_is_an_error_without_the_reply() -> None:
    ledger: list[ModelCall] = []
    with MockServer(replying("The truth is a lighthouse.")) as server, raises("judge.no_reply") as caught:
        await client_for(server_at(server, retries=1)).complete(HELLO, role="judge", ledger=ledger, schema=Verdict)
    assert "lighthouse" not in str(caught.value)
    assert ledger[0].error == "Unreadable"
    assert ledger[0].completion_tokens == 14, "both attempts cost tokens"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>Hm.</think> Hi", "Hi"),
        ("<think>\n\n</think>\n\nHi\nthere", "Hi\nthere"),
        ("opened by the template</think>Hi", "Hi"),
        ("<think>a</think> no <think>b</think> Hi", "Hi"),
        (" Hi ", " Hi "),
    ],
)
async def test_the_final_answer_of_a_user_or_judge_is_what_follows_its_reasoning(text: str, answer: str) -> None:
    with MockServer(replying(text)) as server:
        client = client_for(server_at(server))
        for role in ("user", "judge"):
            assert (await client.complete(HELLO, role=role, ledger=[])).text == answer
        assert (await client.complete(HELLO, role="policy", ledger=[])).text == text


@pytest.mark.parametrize(
    "cut", ["<think>I must not tell them", "<think>a</think> well <think>b", "<think>a</think>\n", " "]
)
async def test_reasoning_without_an_end_or_an_answer_is_retried(cut: str) -> None:
    ledger: list[ModelCall] = []
    with MockServer(replying(cut, "Hi")) as server:
        assert (await client_for(server_at(server)).complete(HELLO, role="user", ledger=ledger)).text == "Hi"
        assert "end of its thoughts" in server.texts()[-1]
    assert ledger[0].attempts == 2
    with MockServer(replying(cut)) as server:
        with raises("user.no_reply") as caught:
            await client_for(server_at(server, retries=1)).complete(HELLO, role="user", ledger=ledger)
        assert (await client_for(server_at(server)).complete(HELLO, role="policy", ledger=ledger)).text == cut
    assert ledger[1].error == "Thought"
    assert "must not tell" not in str(caught.value)


async def test_json_in_reasoning_is_not_parsed_and_tags_in_json_are_not_reasoning() -> None:
    reasoning = '<think>Is it {"verdict": "Yes", "why": ""}?</think>{"verdict": "No", "why": "x"}'
    quoting = '{"verdict": "No", "why": "It said </think> and <think>."}'
    with MockServer(replying(reasoning, quoting)) as server:
        client = client_for(server_at(server))
        verdicts = [(await client.complete(HELLO, role="judge", ledger=[], schema=Verdict)).parsed for _ in range(2)]
        assert len(server.requests) == 2
    assert verdicts == [Verdict(verdict="No", why="x"), Verdict(verdict="No", why="It said </think> and <think>.")]


async def test_extra_fields_are_sent_with_every_request_and_settings_are_hashable() -> None:
    extra = {"chat_template_kwargs": {"enable_thinking": False}}
    with MockServer(replying("Hi")) as server:
        mapping, text = server_at(server, extra_body=extra), server_at(server, extra_body=json.dumps(extra))
        assert (mapping, hash(mapping)) == (text, hash(text))
        assert ChatServer(**mapping.model_dump()) == mapping
        await client_for(mapping).complete(HELLO, role="user", ledger=[])
        await client_for(server_at(server)).complete(HELLO, role="user", ledger=[])
        assert [body.get("chat_template_kwargs") for body in server.requests] == [{"enable_thinking": False}, None]


@pytest.mark.parametrize("field", SENT)
async def test_extra_fields_may_not_replace_what_the_client_sends(field: str) -> None:
    server = ChatServer(base_url="http://127.0.0.1:1/v1", extra_body={"seed": 1, field: 1})  # as a stored recipe has it
    with raises("user.bad_option", f"'{field}', which the client sets itself"):
        client_for(server)


@pytest.mark.parametrize("extra", ["no json", "[1]", 3, {"a": {1, 2}}])
def test_extra_fields_that_are_not_a_json_object_are_refused(extra: Any) -> None:
    with pytest.raises(ValidationError, match="JSON"):
        ChatServer(extra_body=extra)


async def test_a_server_that_is_still_reasoning_at_the_probes_token_limit_is_up() -> None:
    with MockServer(lambda body: Answer("<think>Oh", finish_reason="length")) as server:
        await probe(server_at(server))


async def test_concurrency_is_limited_per_server() -> None:
    with MockServer(modest_user) as server:
        client = client_for(server_at(server, concurrency=3))
        await asyncio.gather(*(client.complete(HELLO, role="user", ledger=[]) for _ in range(30)))
        assert server.most_in_flight <= 3
        assert len(server.requests) == 30


async def test_equal_settings_share_one_client_and_different_ones_do_not() -> None:
    with MockServer(modest_user) as server:
        assert client_for(server_at(server)) is client_for(server_at(server))
        assert client_for(server_at(server)) is not client_for(server_at(server, temperature=0.5))


def test_a_client_does_not_outlive_its_event_loop() -> None:
    clients = []

    async def ask(server: MockServer) -> None:
        client = client_for(server_at(server))
        clients.append(weakref.ref(client))
        await client.complete(HELLO, role="user", ledger=[])

    with MockServer(modest_user) as server:
        for _ in range(3):
            asyncio.run(ask(server))
        gc.collect()
        assert [client() is None for client in clients] == [True, True, False]
        assert len(server.requests) == 3


async def test_a_cancelled_call_has_a_ledger_row() -> None:
    ledger: list[ModelCall] = []
    with MockServer(modest_user, faults={"timeout": 1.0}) as server:
        call = asyncio.create_task(client_for(server_at(server)).complete(HELLO, role="user", ledger=ledger))
        while not server.requests:  # noqa: ASYNC110  the server counts in a thread of its own
            await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert [(call.attempts, call.error) for call in ledger] == [(1, "Cancelled")]


async def test_a_call_cancelled_before_it_was_sent_is_no_request() -> None:
    ledgers: list[list[ModelCall]] = [[], []]
    with MockServer(modest_user, faults={"timeout": 1.0}) as server:
        client = client_for(server_at(server, concurrency=1))
        calls = [asyncio.create_task(client.complete(HELLO, role="judge", ledger=ledger)) for ledger in ledgers]
        while not server.requests:  # noqa: ASYNC110  the server counts in a thread of its own
            await asyncio.sleep(0.01)
        for call in reversed(calls):
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    rows = [(call.attempts, call.error, call.estimated) for [call] in ledgers]
    assert rows == [(1, "Cancelled", True), (0, "Cancelled", False)]


async def test_a_refusal_of_tools_is_an_error_of_its_own() -> None:
    with MockServer(modest_user, tools=False) as server, raises("policy.tools_refused"):
        await client_for(server_at(server)).complete(HELLO, role="policy", ledger=[], tools=[{"type": "function"}])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'{"choices": null}',
        b'{"choices": [{}]}',
        b'{"choices": [{"message": 3}]}',
        b"\xff\xfe",
        b"{" * 5000,
    ],
)
async def test_a_body_that_is_not_a_completion_is_retried(body: bytes) -> None:
    bodies = [body, None]
    ledger: list[ModelCall] = []
    with MockServer(lambda _: Answer("Hi", body=bodies.pop(0))) as server:
        answer = await client_for(server_at(server)).complete(HELLO, role="user", ledger=ledger)
    assert (answer.text, ledger[0].attempts) == ("Hi", 2)


def completion(content: Any, usage: Any = None, **message: Any) -> bytes:
    """A body whose message holds whatever a server may put there."""
    choice = {"message": {"content": content, **message}, "finish_reason": "stop"}
    return json.dumps({"choices": [choice], "usage": usage}).encode()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([{"type": "text", "text": "Hi "}, {"type": "text", "text": "you"}], "Hi you"),
        (["Hi ", "you"], "Hi you"),
        ([{"type": "refusal"}, {"type": "text", "text": "Hi you"}], "Hi you"),
        ({"type": "text", "text": "Hi you"}, "Hi you"),
    ],
)
async def test_content_as_parts_is_their_text(content: Any, text: str) -> None:
    with MockServer(lambda _: Answer(body=completion(content))) as server:
        answer = await client_for(server_at(server)).complete(HELLO, role="policy", ledger=[])
    assert answer.text == text


@pytest.mark.parametrize(
    "body",
    [
        completion(3.5),
        completion([1, 2]),
        completion([{"text": 4}]),
        completion("Hi", tool_calls=7),
        completion("Hi", tool_calls=["a"]),
        completion("Hi", tool_calls={"id": "a"}),
        completion("Hi", tool_calls=[{"id": "a"}]),
        completion("Hi", tool_calls=[{"function": {"name": None}}]),
    ],
)
async def test_content_and_tool_calls_of_another_kind_are_an_error_and_no_reply(body: bytes) -> None:
    ledger: list[ModelCall] = []
    with MockServer(lambda _: Answer(body=body)) as server:
        with raises("policy.no_reply"):
            await client_for(server_at(server, retries=1)).complete(HELLO, role="policy", ledger=ledger)
        assert len(server.requests) == 2
    assert (ledger[0].attempts, ledger[0].error) == (2, "Unreadable")


@pytest.mark.parametrize(
    ("body", "says", "kind", "attempts"),
    [
        ({"error": {"message": "The model\nis  loading.", "type": "x"}}, "the server says: The model is loading.", "Stated", 2),
        ({"error": "no such deployment"}, "the server says: no such deployment", "Stated", 2),
        ({"error": {"code": 429, "message": "Slow down."}, "choices": []}, "HTTP 429: Slow down.", "HTTP429", 2),
        ({"error": {"code": 401, "message": "Key sk-abcdefgh is unknown."}}, "HTTP 401: Key *** is unknown.", "HTTP401", 1),
        ({"error": {"code": "insufficient_quota", "message": "Pay."}}, "the server says: Pay.", "Stated", 1),
        ({"object": "error", "message": "Out of memory.", "code": 500}, "HTTP 500: Out of memory.", "HTTP500", 2),
        ({"detail": [{"msg": "Field required"}]}, "Field required", "Stated", 2),
        ({"error": None}, "the body is not a chat completion", "Unreadable", 2),
    ],
)  # fmt: skip
async def test_an_error_with_status_200_is_shown_with_its_reason(
    body: dict[str, Any], says: str, kind: str, attempts: int
) -> None:
    ledger: list[ModelCall] = []
    with MockServer(lambda _: Answer(body=json.dumps(body).encode())) as server, raises("policy.no_reply", says):
        await client_for(server_at(server, retries=1)).complete(HELLO, role="policy", ledger=ledger)
    assert (ledger[0].attempts, ledger[0].error) == (attempts, kind)


@pytest.mark.parametrize(
    ("usage", "expected", "estimated"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 500}, (9, 500), False),  # reasoning is paid for, and not shown
        ({"prompt_tokens": -1000, "completion_tokens": 8}, (None, 8), True),
        ({"prompt_tokens": 9, "completion_tokens": 10**12}, (9, None), True),
        ({"prompt_tokens": 10**12, "completion_tokens": 1}, (None, 1), True),
        ({"prompt_tokens": True, "completion_tokens": 2.5}, (None, None), True),
        ({"prompt_tokens": "many"}, (None, None), True),
        (None, (None, None), True),
        ([], (None, None), True),
    ],
)
async def test_usage_that_cannot_be_true_is_reckoned_from_the_texts_and_said_to_be(
    usage: Any, expected: tuple[int | None, int | None], estimated: bool
) -> None:
    ledger: list[ModelCall] = []
    words = [{"role": "user", "content": "Hello. " * 100}]
    with MockServer(lambda _: Answer(body=completion("x" * 400, usage))) as server:
        answer = await client_for(server_at(server)).complete(words, role="user", ledger=ledger)
    counted = (answer.prompt_tokens, answer.completion_tokens)
    assert all(e is None or c == e for c, e in zip(counted, expected, strict=True))
    assert expected[0] is not None or 175 <= counted[0] <= 225
    assert expected[1] is not None or 100 <= counted[1] <= 105
    assert (ledger[0].estimated, ledger[0].price is not None and 0 < ledger[0].price < 0.01) == (estimated, True)


@pytest.mark.parametrize(
    ("fault", "counted"),
    [
        ("500", True),
        ("closed in the reply", True),
        ("no HTTP", True),
        ("null", True),
        ("drips", True),
        ("429", False),
        ("422", False),
    ],
)
async def test_a_request_that_failed_counts_what_was_sent_unless_the_server_refused_it(
    fault: str, counted: bool
) -> None:
    ledger: list[ModelCall] = []
    words = [{"role": "user", "content": "Hello. " * 100}]
    with MockServer(modest_user, faults={fault: 1.0}) as server:
        chat = server_at(server, retries=0 if fault == "drips" else 1, timeout=0.5 if fault == "drips" else 60.0)
        with raises("user.no_reply"):
            await client_for(chat).complete(words, role="user", ledger=ledger)
    [call] = ledger
    sent = 175 * call.attempts if counted else 0
    assert sent <= call.prompt_tokens <= sent * 1.3
    assert (call.estimated, (call.price or 0) > 0) == (counted, counted)


async def test_where_no_connection_came_about_nothing_was_sent() -> None:
    ledger: list[ModelCall] = []
    with MockServer(modest_user) as server:
        stopped = server_at(server, retries=0)
    with raises("policy.no_reply"):
        await client_for(stopped).complete(HELLO, role="policy", ledger=ledger)
    assert [(call.attempts, call.prompt_tokens, call.estimated) for call in ledger] == [(1, 0, False)]


async def test_a_reply_that_the_server_cut_off_is_asked_for_again() -> None:
    replies = [Answer("Yes, but", finish_reason="error"), Answer("Yes, but not red.")]
    with MockServer(lambda body: replies.pop(0)) as server:
        answer = await client_for(server_at(server)).complete(HELLO, role="user", ledger=[])
    assert answer.text == "Yes, but not red."


async def test_a_reply_that_a_content_filter_ended_is_not_asked_for_again() -> None:
    ledger: list[ModelCall] = []
    with MockServer(lambda _: Answer("Yes, but", finish_reason="content_filter")) as server, raises("user.no_reply"):
        await client_for(server_at(server, retries=5)).complete(HELLO, role="user", ledger=ledger)
    assert [call.attempts for call in ledger] == [1]


async def test_a_refusal_is_the_reply_of_a_policy_and_no_reply_of_a_user_or_judge() -> None:
    message = {"role": "assistant", "content": None, "refusal": "I cannot help with that."}
    body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
    ledger: list[ModelCall] = []
    with MockServer(lambda _: Answer(body=body)) as server:
        client = client_for(server_at(server, retries=5))
        assert (await client.complete(HELLO, role="policy", ledger=[])).text == "I cannot help with that."
        for role in ("user", "judge"):
            with raises(f"{role}.no_reply", "the model declined: I cannot help with that."):
                await client.complete(HELLO, role=role, ledger=ledger)  # type: ignore[arg-type]
    assert [(call.attempts, call.error) for call in ledger] == [(1, "Declined")] * 2


async def test_an_empty_reply_costs_what_the_server_says() -> None:
    ledger: list[ModelCall] = []
    empty = completion(None, {"prompt_tokens": 9, "completion_tokens": 500})
    with MockServer(lambda _: Answer(body=empty)) as server, raises("policy.no_reply"):
        await client_for(server_at(server, retries=0)).complete(HELLO, role="policy", ledger=ledger)
    assert [(c.prompt_tokens, c.completion_tokens, c.estimated) for c in ledger] == [(9, 500, False)]


async def test_the_ledger_keeps_what_a_user_was_asked_and_said_and_of_a_policy_neither() -> None:
    ledger: list[ModelCall] = []
    with MockServer(replying("<think>so</think>Hi", "Hi")) as server:
        for role in ("judge", "policy"):
            await client_for(server_at(server)).complete(HELLO, role=role, ledger=ledger)
    assert [(call.prompt, call.reply) for call in ledger] == [(HELLO, "<think>so</think>Hi"), (None, None)]


@pytest.mark.parametrize("status", [200, 500])
async def test_a_small_reply_that_unpacks_to_a_gigabyte_is_refused(status: int) -> None:
    bomb = Answer(body=gzipped_gigabyte(), status=status, headers={"content-encoding": "gzip"})
    with MockServer(lambda _: bomb) as server, little_memory(), raises("user.no_reply"):
        await client_for(server_at(server, retries=1)).complete(HELLO, role="user", ledger=[])


async def test_a_reply_without_an_end_is_cut_off() -> None:
    with (
        MockServer(lambda _: Answer(body=b" " * (MAX_BYTES + 1))) as server,
        raises("user.no_reply"),
    ):
        await client_for(server_at(server, retries=0)).complete(HELLO, role="user", ledger=[])


def test_prices_are_per_million_tokens_and_unknown_models_have_none() -> None:
    price = price_of("gpt-4o", 1_000_000, 100_000)
    assert price is not None
    assert price.dollars == pytest.approx(2.5 + 1.0)
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2} genai-prices [\d.]+", price.source)
    assert price_of("gpt-4o-2024-08-06", 1000, 0) == price_of("gpt-4o", 1000, 0)
    for unknown in ("gpt-4o-ours", "Qwen/Qwen3-8B", "", "rule"):
        assert price_of(unknown, 1000, 0) is None


@pytest.mark.parametrize(
    "row",
    [
        "{input: 2}",
        "{input: 2, output: -1}",
        "{input: .nan, output: 1}",
        "{input: yes, output: 1}",
        "3",
        "{in: 2, output: 1}",
    ],
)
async def test_a_row_of_own_prices_without_both_is_refused_before_a_call(
    row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prices.yaml").write_text(f"as_of: 2026-11-25\nmodels:\n  m: {row}\n")
    monkeypatch.setattr(prices, "FILE", tmp_path / "prices.yaml")
    prices.own_prices.cache_clear()
    try:
        with raises("file.unreadable", "input: 2.50, output: 10.00"):
            client_for(ChatServer(model="m", base_url="http://127.0.0.1:1/v1"))
    finally:
        prices.own_prices.cache_clear()


@pytest.mark.parametrize(
    ("models", "names"), [("", []), ("{4: {input: 1, output: 2}, m: {input: 1, output: 2, note: x}}", ["4", "m"])]
)
def test_own_prices_may_be_empty_and_have_notes_and_numbers_for_names(
    models: str, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prices.yaml").write_text(f"as_of: 2026-11-25\nmodels: {models}\n")
    monkeypatch.setattr(prices, "FILE", tmp_path / "prices.yaml")
    prices.own_prices.cache_clear()
    try:
        assert list(prices.own_prices()[1]) == names
    finally:
        prices.own_prices.cache_clear()


def test_open_weights_have_a_price_only_at_the_address_of_a_provider() -> None:
    assert price_of("gpt-oss-20b", 1000, 0, "http://127.0.0.1:8000/v1") is None
    assert price_of("mistral-7b", 1000, 0) is None
    assert price_of("mistral-7b", 1000, 0, "https://api.mistral.ai/v1") is not None
    assert price_of("gpt-4o", 1000, 0, "http://127.0.0.1:8000/v1") == price_of("gpt-4o", 1000, 0)  # a proxy


def test_prices_are_never_updated_over_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    import genai_prices

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(genai_prices.UpdatePrices, "start", refuse)
    monkeypatch.setattr("socket.socket.connect", refuse)
    assert price_of("gpt-4o", 1000, 0) is not None
