"""One chat in the forms of other tools: import, supervised training and served models read the same messages."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import userrl
from flows.cli.looking.imports import import_
from tests.analysis.foreign.test_formats import read, written
from tests.makers import raises
from userrl_core.chats.message import model_messages, read_message
from userrl_core.distill import read_chats
from userrl_core.interact import InteractCall, render_call
from userrl_core.sharegpt import read_conversations

ASK = InteractCall("action", "area?")
ARGUMENTS = {"choice": "action", "content": "area?"}
QUESTION = {"role": "user", "content": "Book a hotel."}
ANSWERED = [QUESTION, {"role": "assistant", "content": f"Let me ask.\n{render_call(ASK)}"}]
READ = [*ANSWERED, {"role": "tool", "content": "hills"}]


def called(arguments: Any, content: Any = "Let me ask.", **fields: Any) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": "interact_with_env", "arguments": arguments}}
    return {"role": "assistant", "content": content, "tool_calls": [call], **fields}


def openai(message: dict[str, Any], role: str = "tool") -> dict[str, Any]:
    return {"messages": [QUESTION, message, {"role": role, "tool_call_id": "c1", "content": "hills"}]}


def shared(*turns: tuple[str, str]) -> dict[str, Any]:
    return {"conversations": [{"from": speaker, "value": value} for speaker, value in turns]}


LEGACY = {"name": "interact_with_env", "arguments": json.dumps(ARGUMENTS)}
FORMS: dict[str, dict[str, Any]] = {
    "arguments as text": openai(called(json.dumps(ARGUMENTS))),
    "compact arguments": openai(called(json.dumps(ARGUMENTS, separators=(",", ":")))),
    "arguments as an object": openai(called(ARGUMENTS)),
    "content in parts": openai(called(ARGUMENTS, [{"type": "text", "text": "Let me ask."}])),
    "legacy function_call": openai(
        {"role": "assistant", "content": "Let me ask.", "tool_calls": None, "function_call": LEGACY}, "function"
    ),
    "tools null": {**openai(called(ARGUMENTS)), "tools": None},
    "Hermes text": {"messages": [*ANSWERED, {"role": "user", "content": "hills"}]},
    "Anthropic": {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Book a hotel."}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Let me ask."},
                    {"type": "tool_use", "id": "t", "name": "interact_with_env", "input": ARGUMENTS},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "hills"}]},
        ]
    },
    "ShareGPT": shared(
        ("human", "Book a hotel."),
        ("gpt", "Let me ask."),
        ("function_call", json.dumps(LEGACY)),
        ("observation", "hills"),
    ),
    "ShareGPT with roles": shared(("user", "Book a hotel."), ("assistant", ANSWERED[1]["content"]), ("tool", "hills")),
    "messages under ShareGPT's key": {"conversations": READ},
}


@pytest.mark.parametrize("form", FORMS)
def test_one_chat_in_every_form_is_trained_alike(tmp_path: Path, form: str) -> None:
    path = written(tmp_path / "chats.jsonl", FORMS[form])
    assert read_conversations(path, ["wish"]) == [{"messages": READ, "tools": []}]


@pytest.mark.parametrize("form", FORMS)
def test_one_chat_in_every_form_is_imported_alike(tmp_path: Path, form: str) -> None:
    (chat,) = read(written(tmp_path / "chats.jsonl", FORMS[form]))
    assert chat.opening == [QUESTION]
    assert [(turn.message, turn.observation) for turn in chat.turns] == [(ANSWERED[1]["content"], "hills")]
    assert not chat.unread


def test_what_is_read_is_read_again_as_it_is() -> None:
    for row in FORMS.values():
        if "messages" in row:
            once = model_messages(row["messages"], "x")
            assert model_messages(once, "x") == once == READ


def plain(rows: list[Any]) -> str:
    return "\n".join(map(json.dumps, rows))


@pytest.mark.parametrize(
    "layout",
    [
        plain,
        lambda rows: "\ufeff" + plain(rows),
        lambda rows: "\n\n" + plain(rows).replace("\n", "\r\n\r\n") + "\r\n",
        json.dumps,
        lambda rows: "\ufeff" + json.dumps(rows, indent=2),
        lambda rows: "\n".join(json.dumps(row, indent=2) for row in rows),
        lambda rows: "\ufeff\n" + "".join(json.dumps(row, indent=1).replace("\n", "\r\n") for row in rows),
    ],
)
def test_a_file_may_be_lines_a_list_or_pretty_printed(tmp_path: Path, layout: Callable[[list[Any]], str]) -> None:
    path = tmp_path / "chats.json"
    for rows in (list(FORMS.values()), [FORMS["ShareGPT"]]):
        path.write_bytes(layout(rows).encode())
        assert [chat["messages"] for chat in read_chats(path)] == [READ] * len(rows)
        assert [len(chat.turns) for chat in read(path)] == [1] * len(rows)


def test_several_calls_are_one_reply_and_results_follow_in_their_order(tmp_path: Path) -> None:
    calls = [{"id": n, "function": {"name": "look_up", "arguments": {"page": n}}} for n in (1, 2)]
    results = [{"role": "tool", "tool_call_id": n, "content": f"text {n}"} for n in (2, 1)]
    row = {"messages": [QUESTION, {"role": "assistant", "content": None, "tool_calls": calls}, *results]}
    _, reply, *rest = read_chats(written(tmp_path / "chats.jsonl", row))[0]["messages"]
    assert reply["content"] == "\n".join(
        f'<tool_call>\n{{"name": "look_up", "arguments": {{"page": {n}}}}}\n</tool_call>' for n in (1, 2)
    )
    assert rest == [{"role": "tool", "content": "text 1"}, {"role": "tool", "content": "text 2"}]
    (turn,) = read(tmp_path / "chats.jsonl")[0].turns
    assert turn.observation == "tool: text 1\ntool: text 2"


def test_reasoning_and_a_refusal_are_part_of_the_reply() -> None:
    def reply(**message: Any) -> str:
        return str(model_messages([QUESTION, {"role": "assistant", **message}], "x")[1]["content"])

    thinking = [{"type": "thinking", "thinking": "Which?", "signature": "s"}, {"type": "text", "text": "Where?"}]
    assert reply(content=thinking) == "<think>\nWhich?\n</think>\n\nWhere?"
    assert reply(content="Where?", reasoning_content="Which?") == "<think>\nWhich?\n</think>\n\nWhere?"
    assert reply(content=None, refusal="I cannot.") == "I cannot."
    assert reply(content=[{"type": "refusal", "refusal": "I cannot."}]) == "I cannot."


def test_tools_have_openai_s_form(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {}}
    tool = {"type": "function", "function": {"name": "w", "description": "d", "parameters": schema}}
    frameless = {"name": "w", "description": "d", "parameters": schema}
    rows: list[dict[str, Any]] = [
        {"tools": [tool]},
        {"tools": json.dumps([frameless])},
        {"functions": [frameless]},
        {"tools": [{"name": "w", "description": "d", "input_schema": schema}]},
    ]
    path = written(tmp_path / "chats.jsonl", *(row | {"messages": READ} for row in rows))
    assert [chat["tools"] for chat in read_chats(path)] == [[tool]] * 4


def test_a_system_text_beside_the_messages_and_other_roles_of_openai_are_read(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"system": "Help.", "messages": [{**QUESTION, "name": "ann"}]},
        {"system": [{"type": "text", "text": "Help."}], "messages": [QUESTION]},
        {"messages": [{"role": "developer", "content": "Help."}, QUESTION]},
    ]
    first, *others = (chat["messages"] for chat in read_chats(written(tmp_path / "chats.jsonl", *rows)))
    system = {"role": "system", "content": "Help."}
    assert first == [system, {**QUESTION, "name": "ann"}]
    assert others == [[system, QUESTION]] * 2


@pytest.mark.parametrize("mark", [{"weight": 0}, {"loss": False}, {"train": False}, {"weight": 1, "loss": False}])
def test_a_mark_leaves_a_reply_out_of_the_loss(tmp_path: Path, mark: dict[str, Any]) -> None:
    chat = {"messages": [QUESTION, called(ARGUMENTS, **mark), READ[2], {"role": "assistant", "content": "H1"}]}
    turns = [{"from": "human", "value": "x", "loss": None}, {"from": "gpt", "value": "y", **mark}]
    marked, talk = read_chats(written(tmp_path / "chats.jsonl", chat, {"conversations": turns}))
    assert [message.get("train", True) for message in marked["messages"]] == [True, False, True, True]
    assert talk["messages"][1] == {"role": "assistant", "content": "y", "train": False}
    with raises("chats.invalid", "contains no call of wish"):
        read_conversations(tmp_path / "chats.jsonl", ["wish"])
    assert json.loads(json.dumps(read(tmp_path / "chats.jsonl")[0].turns[0].info))["message"] == mark


@pytest.mark.parametrize(
    ("message", "fact"),
    [
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "a part of kind image_url"),
        ({"role": "assistant", "content": None, "audio": {"id": "a"}}, "a part of kind audio"),
        ({"role": "user", "content": ["x", 7]}, "a part of kind part"),
        ({"role": "assistant", "content": None}, "a text in 'content', or a call"),
        ({"role": "assistant", "content": []}, "a text in 'content', or a call"),
        ({"role": "user", "content": {"area": "hills"}}, "a text in 'content', or a call"),
        ({"role": "assistant", "content": "x", "weight": 0.5}, "its weight is 0.5"),
        ({"role": "assistant", "content": "x", "train": "no"}, "its train is 'no'"),
        ({"role": "assistant", "content": None, "tool_calls": [{"function": {}}]}, "a tool call has no name"),
        ({"role": "critic", "content": "x"}, "role 'critic'"),
        ("x", "the message is not a JSON object"),
    ],
)
def test_what_cannot_be_trained_on_is_named_with_its_place(tmp_path: Path, message: Any, fact: str) -> None:
    path = written(tmp_path / "chats.jsonl", {"messages": READ}, {"messages": [QUESTION, message]})
    with raises("chats.invalid", "line 2: messages[1]: ", fact) as caught:
        read_chats(path)
    assert "imported" not in str(caught.value)


def test_half_of_a_surrogate_pair_is_refused(tmp_path: Path) -> None:
    (tmp_path / "chats.json").write_text(json.dumps([{"messages": [{"role": "user", "content": "\ud800"}]}]))
    with raises("chats.invalid", "line 1", "surrogate"):
        read_chats(tmp_path / "chats.json")


def test_fields_that_training_does_not_read_are_counted(tmp_path: Path) -> None:
    unread: Counter[str] = Counter()
    messages = [
        {**QUESTION, "weight": 1, "time": 3, "name": {"first": "ann"}},
        {**ANSWERED[1], "annotations": [], "time": 4},
    ]
    read_conversations(written(tmp_path / "chats.jsonl", {"messages": messages}), unread=unread)
    assert unread == {"time": 2, "weight": 1, "name": 1}


def test_an_import_keeps_names_and_further_fields(tmp_path: Path) -> None:
    replies = [{"role": "user", "name": "bob", "content": "hills"}, {"role": "system", "content": "Hurry."}]
    agent = {**ANSWERED[1], "name": "desk", "latency": 3}
    row = {
        "messages": [{**QUESTION, "name": "ann"}, agent, replies[0], agent, *replies],
        "id": 7,
        "tools": [{"name": "w"}],
    }
    (chat,) = read(written(tmp_path / "chats.jsonl", row))
    assert chat.opening == [{**QUESTION, "name": "ann"}]
    assert [turn.observation for turn in chat.turns] == ["user bob: hills", "user bob: hills\nsystem: Hurry."]
    assert chat.turns[0].info == {"message": {"name": "desk", "latency": 3}}
    assert chat.info == {"row": {"id": 7, "tools": [{"name": "w"}]}}


def test_what_an_import_cannot_store_is_named_with_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [image, {"type": "text", "text": "a cat"}]}
    messages = [
        {"role": "user", "content": [image, {"type": "text", "text": "What is it?"}], "time": 3},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {"at": 1}}]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}], "refusal": "No."},
    ]
    path = written(tmp_path / "chats.jsonl", {"messages": messages, "score": 1.0})
    import_(path)
    line = "Not stored: image_url (2), field time (1), redacted_thinking (1)."
    assert line in capsys.readouterr().out
    (again,) = userrl.import_logs(path)
    assert line in str(again)
    (run,) = userrl.import_logs(written(tmp_path / "whole.jsonl", {"messages": READ}))
    assert "Not stored" not in str(run)
    with userrl.warehouse() as warehouse:
        turns = warehouse.rows("FROM turns WHERE run_id = $run ORDER BY turn", run=again.run)
    assert [(turn["choice"], turn["content"], turn["observation"]) for turn in turns] == [
        ("look", '{"at":1}', "[image_url]\na cat"),
        ("message", "[redacted_thinking]\nNo.", ""),
    ]


def bedrock(key: str, **fields: Any) -> dict[str, Any]:
    return {key: {"toolUseId": "t", **fields}}


PARTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Bedrock": (
        bedrock("toolUse", name="interact_with_env", input=ARGUMENTS),
        bedrock("toolResult", content=[{"text": "hills"}]),
    ),
    "Gemini": (
        {"functionCall": {"name": "interact_with_env", "args": ARGUMENTS}},
        {"functionResponse": {"name": "interact_with_env", "response": "hills"}},
    ),
    "AI SDK": (
        {"type": "tool-call", "toolCallId": "t", "toolName": "interact_with_env", "input": ARGUMENTS},
        {"type": "tool-result", "toolCallId": "t", "toolName": "interact_with_env", "output": "hills"},
    ),
    "OpenTelemetry": (
        {"type": "tool_call", "id": "t", "name": "interact_with_env", "arguments": ARGUMENTS},
        {"type": "tool_call_response", "id": "t", "response": "hills"},
    ),
    "MCP": (
        {"type": "mcp_tool_use", "id": "t", "name": "interact_with_env", "input": ARGUMENTS},
        {"type": "mcp_tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "hills"}]},
    ),
}


@pytest.mark.parametrize("key", ["content", "parts"])
@pytest.mark.parametrize("tool", PARTS)
def test_calls_and_results_in_the_parts_of_other_tools_are_read(tmp_path: Path, tool: str, key: str) -> None:
    call, result = PARTS[tool]
    said = {"text": "Let me ask."} if tool in ("Bedrock", "Gemini") else {"type": "text", "text": "Let me ask."}
    messages = [QUESTION, {"role": "assistant", key: [said, call]}, {"role": "user", key: [result]}]
    assert read_chats(written(tmp_path / "chats.jsonl", {"messages": messages}))[0]["messages"] == READ
    (chat,) = read(tmp_path / "chats.jsonl")
    assert [(turn.choice, turn.observation, chat.unread) for turn in chat.turns] == [("interact_with_env", "hills", {})]


def test_results_of_anthropic_follow_in_the_order_of_the_calls() -> None:
    use = [{"type": "tool_use", "id": n, "name": "look", "input": {}} for n in ("a", "b")]
    late = [{"type": "tool_result", "tool_use_id": n, "content": f"text {n}"} for n in ("b", "a")]
    messages = [QUESTION, {"role": "assistant", "content": use}, {"role": "user", "content": [*late, "And?"]}]
    assert [message["content"] for message in model_messages(messages, "x")[2:]] == ["text a", "text b", "And?"]


def test_results_without_the_id_of_a_call_and_of_calls_with_one_id_keep_their_order() -> None:
    def told(*ids: str, answers: tuple[str | None, ...]) -> list[str]:
        calls = [{"id": n, "function": {"name": "f", "arguments": "{}"}} for n in ids]
        results = [{"role": "tool", "tool_call_id": n, "content": f"{place} {n}"} for place, n in enumerate(answers, 1)]
        reply = {"role": "assistant", "tool_calls": calls}
        return [m["content"] for m in model_messages([QUESTION, reply, *results], "x") if m["role"] == "tool"]

    assert told("a", "b", answers=(None, "b", "x", "a")) == ["1 None", "4 a", "3 x", "2 b"]
    assert told("a", "a", answers=("b", "a")) == ["1 b", "2 a"]


@pytest.mark.parametrize("key", ["text", "body", "value"])
def test_a_chat_with_its_words_under_another_key_is_refused(tmp_path: Path, key: str) -> None:
    messages = [{"role": "user", key: "Hi"}, {"role": "assistant", key: "Yes?"}]
    with raises(
        "import.broken_file", f"no message has a text in 'content', or a call, but there are other fields: {key}."
    ):
        read(written(tmp_path / "chats.jsonl", {"messages": messages}))


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ({"type": "text", "value": "sun"}, "sun"),
        ({"type": "json", "value": {"sky": "sun"}}, '{"sky":"sun"}'),
        ({"type": "error-text", "value": "no sky"}, "no sky"),
        ({"type": "error-json", "value": {"code": 3}}, '{"code":3}'),
        ({"type": "execution-denied", "reason": "too late"}, "too late"),
        (
            {"type": "content", "value": [{"type": "text", "text": "sun"}, {"type": "text", "text": "rain"}]},
            "sun\nrain",
        ),
    ],
)
def test_every_result_of_the_ai_sdk_is_imported_and_trained_on(tmp_path: Path, output: Any, text: str) -> None:
    result = {"type": "tool-result", "toolCallId": "t", "toolName": "look", "output": output}
    call = {"type": "tool-call", "toolCallId": "t", "toolName": "look", "input": {}}
    messages = [QUESTION, {"role": "assistant", "content": [call]}, {"role": "tool", "content": [result]}]
    (chat,) = read(written(tmp_path / "chats.jsonl", {"messages": messages}))
    assert (chat.turns[0].observation, chat.unread) == (text, {})
    assert model_messages(messages, "x")[2] == {"role": "tool", "content": text}


def test_a_part_of_text_without_its_text_is_refused_by_a_true_sentence() -> None:
    with raises("import.broken_file", "it has a part of kind text without a text that is read. Remove it."):
        model_messages([{"role": "user", "content": [{"type": "text", "words": "sun"}]}], "x")


@pytest.mark.parametrize("content", [None, "", []])
def test_parts_beside_an_empty_content_are_read(content: object) -> None:
    parts = [{"type": "text", "text": "Let me ask."}]
    (message,) = model_messages([{"role": "assistant", "content": content, "parts": parts}], "x")
    assert message == {"role": "assistant", "content": "Let me ask."}


def test_a_user_s_message_keeps_its_place_among_the_results_of_calls(tmp_path: Path) -> None:
    def told(calls: list[Any], *rest: dict[str, Any]) -> list[str]:
        use = [{"id": n, "function": {"name": "f", "arguments": "{}"}} for n in calls]
        messages = [QUESTION, {"id": 1, "role": "assistant", "tool_calls": use}, *rest]
        (turn,) = read(written(tmp_path / "chats.jsonl", {"messages": messages}))[0].turns
        contents = [f"{message['role']}: {message['content']}" for message in model_messages(messages, "x")[2:]]
        assert (
            turn.observation.splitlines()[1:] == contents[1:]
        )  # a user's answer to a call has the role tool for a model
        return [content.partition(": ")[2] for content in contents]

    results = [{"role": "tool", "tool_call_id": n, "content": f"text {n}"} for n in ("b", "a")]
    asked = {"role": "user", "content": "what about f?", "reply_to": {"id": "a"}}
    assert told(["a", "b"], results[0], asked, results[1]) == ["text a", "what about f?", "text b"]
    late = [{"id": 2, "role": "tool", "tool_call_id": 1, "content": "text 1"}]
    late += [
        {"id": 3, "role": "user", "content": "wait"},
        {"id": 4, "role": "tool", "tool_call_id": 0, "content": "text 0"},
    ]
    assert told([0, 1, 2, 3], *late) == ["text 0", "wait", "text 1"]


def test_parts_of_text_with_ids_are_no_calls_and_move_nothing() -> None:
    parts = [{"type": "text", "id": n, "text": n} for n in ("1", "2")]
    replies = [{"role": role, "id": n, "content": f"{role} {n}"} for role in ("user", "tool") for n in ("2", "1")]
    messages = [QUESTION, {"role": "assistant", "content": parts}, *replies]
    assert [m["content"] for m in model_messages(messages, "x")[2:]] == ["user 2", "user 1", "tool 2", "tool 1"]


def test_parts_of_text_keep_their_place_among_results_in_a_message() -> None:
    use = [{"type": "tool_use", "id": n, "name": "look", "input": {}} for n in ("a", "b")]
    late = [{"type": "tool_result", "tool_use_id": n, "content": f"text {n}"} for n in ("b", "a")]
    said = {"type": "text", "id": "a", "text": "And?", "source": {"id": "b"}}
    messages = [QUESTION, {"role": "assistant", "content": use}, {"role": "user", "content": [late[0], said, late[1]]}]
    assert [message["content"] for message in model_messages(messages, "x")[2:]] == ["text a", "And?", "text b"]


def test_results_of_bedrock_follow_in_the_order_of_the_calls() -> None:
    use = [{"toolUse": {"toolUseId": n, "name": "look", "input": {}}} for n in ("a", "b")]
    late = [{"toolResult": {"toolUseId": n, "content": [{"text": f"text {n}"}]}} for n in ("b", "a")]
    messages = [QUESTION, {"role": "assistant", "content": use}, {"role": "user", "content": late}]
    assert [message["content"] for message in model_messages(messages, "x")[2:]] == ["text a", "text b"]


@pytest.mark.parametrize("empty", [[], None, ""])
def test_an_empty_list_beside_a_chat_hides_no_message(tmp_path: Path, empty: object) -> None:
    row = {"conversations": empty, "messages": ANSWERED, "score": 1}
    (chat,) = read(written(tmp_path / "chats.jsonl", row))
    assert (len(chat.turns), chat.score) == (1, 1.0)
    assert len(read_chats(tmp_path / "chats.jsonl")[0]["messages"]) == 2
    turns = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yes?"}]
    (chat,) = read(written(tmp_path / "chats.jsonl", {"conversations": turns, "messages": empty, "score": 1}))
    assert (len(chat.turns), chat.score) == (1, 1.0)


def test_a_field_of_what_is_said_before_a_call_is_carried_to_the_message_of_both(tmp_path: Path) -> None:
    call = json.dumps({"name": "f", "arguments": {}})
    turns: list[dict[str, Any]] = [
        {"from": "human", "value": "Hi"},
        {"from": "gpt", "value": "Let me see.", "reward": 0.5, "id": "x7", "at": 1},
        {"from": "function_call", "value": call, "at": 2},
    ]
    path = written(tmp_path / "chats.jsonl", {"conversations": turns})
    (turn,) = read(path)[0].turns
    assert turn.info["message"] == {"reward": 0.5, "at": [1, 2]}
    unread: Counter[str] = Counter()
    read_chats(path, unread)
    assert unread == {"reward": 1, "at": 1}


@pytest.mark.parametrize(
    ("audio", "read_as", "counted"), [("rec.wav", "rec.wav", {}), ([{"id": "a"}], None, {"audio": 2})]
)
def test_a_recording_that_is_no_object_is_stored_or_counted(
    tmp_path: Path, audio: Any, read_as: str | None, counted: dict[str, int]
) -> None:
    path = written(
        tmp_path / "chats.jsonl", {"messages": [QUESTION | {"audio": audio}, {**ANSWERED[1], "audio": audio}]}
    )
    (chat,) = read(path)
    assert (chat.unread, chat.turns[0].info["message"]) == ({"field audio": 1}, {"audio": audio})
    unread: Counter[str] = Counter()
    chats = read_chats(path, unread)
    assert [message.get("audio") for message in chats[0]["messages"]] == [read_as, read_as]
    assert unread == counted


def test_a_mark_of_another_message_is_counted_by_import(tmp_path: Path) -> None:
    path = written(tmp_path / "chats.jsonl", {"messages": [QUESTION | {"weight": 0}, *ANSWERED[1:]]})
    assert read(path)[0].unread == {"field weight": 1}


@pytest.mark.parametrize(
    ("call", "read_as", "fields"),
    [
        ({"function": {"name": "f"}, "arguments": {"q": 1}}, ("f", '{"q":1}'), {}),
        ({"function": {"arguments": {"q": 1}}, "name": "f"}, ("f", '{"q":1}'), {}),
        ({"name": "f", "arguments": {}, "input": {"q": 1}}, ("f", '{"q":1}'), {}),
        ({"name": "f", "arguments": {"q": 1}, "args": {"q": 2}}, ("f", '{"q":1}'), {"args": 1}),
        ({"function": {"name": "f"}, "name": "g"}, ("f", "{}"), {"name": 1}),
        ({"function": "f", "name": "g", "input": {"q": 1}}, ("f", '{"q":1}'), {"name": 1}),
        ({"custom": "f", "input": "x"}, ("f", "x"), {}),
        ({"function": {"name": "f"}, "custom": "g"}, ("f", "{}"), {"custom": 1}),
        ({"function": {"name": ""}, "name": "g"}, ("g", "{}"), {}),
        ({"function": {"name": "f", "arguments": {}}, "input": 0}, ("f", "{}"), {"input": 1}),
        ('{"name": "f", "arguments": {}, "strict": true}', ("f", "{}"), {"strict": 1}),
    ],
)
def test_arguments_of_a_call_are_found_wherever_they_are_and_second_ones_counted(
    call: Any, read_as: tuple[str, str], fields: dict[str, int]
) -> None:
    (message,) = read_message({"role": "assistant", "tool_calls": [call]}, "x")
    assert (message.calls, message.fields) == ([read_as], fields)
