"""What a file has besides the fields that a reader knows is stored, named with its number, or refused."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import userrl
from analysis.foreign.conversation import ForeignConversation
from tests.analysis.foreign.test_formats import read, written
from tests.makers import raises
from userrl_core.distill import read_chats
from userrl_core.key_names import holds_a_key

ASKED = {"role": "user", "content": "Hi"}
SAID = {"role": "assistant", "content": "Yes?"}
CALLED = {"role": "assistant", "tool_calls": [{"id": "c", "name": "f", "arguments": {}}]}
TALK = [ASKED, SAID]
SAMPLE = {"id": 1, "messages": TALK, "output": {"model": "m"}, "events": [{"event": "state"}], "model_usage": {}}
ROWS: dict[str, Any] = {
    "chats": {"messages": TALK, "score": 1},
    "sharegpt": {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yes?"}]},
    "tau-bench": {"task_id": 1, "reward": 1, "traj": TALK},
    "verifiers": {"prompt": TALK[:1], "completion": TALK[1:], "reward": 1},
    "traces": {"nodes": [{"message": SAID, "sampled": True}], "rewards": {"r": 1}},
    "nemo-gym": {"responses_create_params": {"input": "Hi"}, "response": {"output": [SAID]}, "reward": 1},
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_fields_of_a_row_that_no_reader_knows_are_stored_as_they_are(tmp_path: Path, row: dict[str, Any]) -> None:
    others = {"lab": {"name": "x"}, "seconds": 3.5, "passed": False}
    (chat,) = read(written(tmp_path / "log.jsonl", row | others | {"note": None}))
    assert chat.info["row"].items() >= others.items()
    assert "note" not in chat.info["row"]


def test_fields_of_a_simulation_and_of_its_messages_are_stored_or_counted(tmp_path: Path) -> None:
    messages = [
        ASKED | {"turn_idx": 1},
        SAID | {"raw_data": {"id": "r"}, "usage": {"prompt_tokens": 2, "audio_tokens": 1}},
    ]
    simulation = {"task_id": "1", "messages": messages, "duration": 60.5}
    path = written(tmp_path / "log.json", {"info": {}, "tasks": [], "simulations": [simulation]})
    (chat,) = read(path)
    assert chat.info["row"] == {"duration": 60.5}
    assert chat.turns[0].info == {"message": {"raw_data": {"id": "r"}}}
    assert chat.unread == {"field turn_idx": 1, "field usage.audio_tokens": 1}


def test_metadata_of_a_sample_is_stored_and_its_events_are_counted(tmp_path: Path) -> None:
    sample = SAMPLE | {"metadata": {"difficulty": "hard"}, "choices": ["a", "b"], "uuid": "u"}
    path = written(tmp_path / "log.json", {"eval": {"task": "t", "model": "m"}, "samples": [sample]})
    (chat,) = read(path)
    assert chat.info["row"] == {"metadata": {"difficulty": "hard"}, "choices": ["a", "b"], "uuid": "u"}
    assert chat.unread == {"field events": 1, "field output": 1}


def test_the_words_of_a_tool_s_error_in_a_sample_are_its_result(tmp_path: Path) -> None:
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": "bash", "arguments": {}}]}
    failed = {"role": "tool", "tool_call_id": "c", "error": {"type": "timeout", "message": "It timed out."}}
    sample = {"id": 1, "messages": [call, failed | {"content": ""}, call, failed | {"content": "half"}, SAID]}
    (chat,) = read(written(tmp_path / "log.json", {"eval": {"task": "t"}, "samples": [sample]}))
    assert [turn.observation for turn in chat.turns] == ["It timed out.", "half\nIt timed out.", ""]
    assert chat.unread == {"field error.type": 2}


def test_every_member_of_an_archive_is_stored_or_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = {
        "header.json": {"eval": {"task": "t"}},
        "reductions.json": [{"scorer": "s", "samples": []}],
        "summaries.json": [],
        "_journal/start.json": {"eval": {"task": "t"}},
        "_journal/summaries/1.json": [],
        "notes.json": {"by": "bob"},
        "samples/plot.png": "x",
        "samples/1_epoch_1.json": {"id": 1, "epoch": 1, "messages": TALK},
        "samples/1_epoch_2.json": {"id": 1, "epoch": 2, "messages": TALK},
    }
    with zipfile.ZipFile(tmp_path / "log.eval", "w") as file:
        for name, value in members.items():
            file.writestr(name, json.dumps(value))
    facts = about_file(tmp_path / "home", tmp_path / "log.eval", monkeypatch)
    assert facts == {"eval": {"task": "t"}, "reductions": members["reductions.json"]}
    (run,) = userrl.import_logs(tmp_path / "log.eval")
    assert run.not_stored == {"member notes.json": 1, "member samples/plot.png": 1}


def test_messages_of_other_branches_and_fields_of_nodes_are_counted(tmp_path: Path) -> None:
    nodes = [
        {"message": ASKED},
        {"message": SAID, "parent": 0, "sampled": True},
        {"message": SAID, "parent": 0, "sampled": True, "token_ids": [1]},
    ]
    (chat,) = read(written(tmp_path / "traces.jsonl", {"nodes": nodes, "rewards": {"r": 1}}))
    assert chat.unread == {"field node.token_ids": 1, "message of another branch": 1}


def test_fields_of_parts_and_calls_are_counted_for_import_and_training(tmp_path: Path) -> None:
    reply = {
        "role": "assistant",
        "content": [{"type": "text", "text": "It is", "annotations": [{"url": "x"}]}],
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}", "strict": True}}],
    }
    result = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c", "content": "no", "is_error": True}],
    }
    path = written(tmp_path / "chats.jsonl", {"messages": [ASKED, reply, result]})
    assert read(path)[0].unread == {"field annotations": 1, "field strict": 1, "field is_error": 1}
    unread: Counter[str] = Counter()
    read_chats(path, unread)
    assert unread == {"annotations": 1, "strict": 1, "is_error": 1}


def test_training_counts_fields_of_a_row_and_refuses_a_mark_for_a_whole_chat(tmp_path: Path) -> None:
    unread: Counter[str] = Counter()
    read_chats(written(tmp_path / "chats.jsonl", {"messages": TALK, "rejected": TALK, "score": 1, "weight": 1}), unread)
    assert unread == {"rejected": 1}
    for mark in ({"weight": 0}, {"train": False}, {"weight": 0.5}):
        with raises("chats.invalid", "line 1: ", "for the whole chat"):
            read_chats(written(tmp_path / "chats.jsonl", {"messages": TALK, **mark}))


def test_fields_of_a_conversation_without_a_turn_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))
    (run,) = userrl.import_logs(written(tmp_path / "chats.jsonl", {"messages": [ASKED], "score": 1, "annotator": 7}))
    assert run.not_stored == {"field annotator": 1}


def test_a_second_score_and_anthropic_s_usage_are_read(tmp_path: Path) -> None:
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7, "cache_read_input_tokens": 2}
    (chat,) = read(written(tmp_path / "chats.jsonl", {"messages": TALK, "score": 0.5, "reward": 1, "usage": usage}))
    assert (chat.score, chat.info["row"], chat.prompt_tokens, chat.completion_tokens) == (0.5, {"reward": 1}, 3, 4)
    assert chat.unread == {"field usage.cache_read_input_tokens": 1}


def test_all_reasoning_of_a_message_is_kept(tmp_path: Path) -> None:
    part = {"type": "thinking", "thinking": "c"}
    reply = {"role": "assistant", "content": [part], "reasoning_content": "a", "reasoning": "b", "thinking": "a"}
    assert read(written(tmp_path / "chats.jsonl", {"messages": [ASKED, reply]}))[0].turns[0].thought == "a\nb\nc"


def read_row(folder: Path, row: str) -> ForeignConversation:
    (folder / "log.jsonl").write_text(row + "\n")
    return read(folder / "log.jsonl")[0]


def test_large_integers_and_nan_keep_their_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))
    call = '{"function": {"name": "f", "arguments": {"n": 18446744073709551617}}}'
    messages = f'[{{"role": "user", "content": "Hi"}}, {{"role": "assistant", "tool_calls": [{call}]}}]'
    row = f'{{"messages": {messages}, "task_id": 18446744073709551617, "at": -9223372036854775809, "loss": NaN}}'
    chat = read_row(tmp_path, row)
    assert (chat.task_id, chat.turns[0].content) == ("18446744073709551617", '{"n":18446744073709551617}')
    (run,) = userrl.import_logs(tmp_path / "log.jsonl")
    with userrl.warehouse() as warehouse:
        (turn,) = warehouse.rows("FROM turns WHERE run_id = $run", run=run.run)
    assert json.loads(turn["info"])["row"] == {"at": "-9223372036854775809", "loss": "nan"}


def test_calls_that_verifiers_saved_as_text_are_calls(tmp_path: Path) -> None:
    call = json.dumps({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}})
    row = {"prompt": "Hi", "completion": [{"role": "assistant", "content": "", "tool_calls": [call]}], "reward": 1}
    assert read(written(tmp_path / "results.jsonl", row))[0].turns[0].choice == "f"


@pytest.mark.parametrize("roles", [("human", "ai"), ("User", "Assistant"), ("user", "model")])
def test_a_chat_whose_agent_has_an_unknown_role_is_refused(tmp_path: Path, roles: tuple[str, str]) -> None:
    messages = [{"role": role, "content": "x"} for role in roles]
    with raises("import.broken_file", "no message has the role assistant", roles[1]):
        read(written(tmp_path / "chats.jsonl", {"messages": messages, "score": 1}))


def test_another_role_beside_the_agent_is_shown_by_its_name(tmp_path: Path) -> None:
    messages = [*TALK, {"role": "environment", "content": "rain"}]
    assert (
        read(written(tmp_path / "chats.jsonl", {"messages": messages}))[0].turns[0].observation == "environment: rain"
    )


def test_a_row_with_messages_and_conversations_is_refused(tmp_path: Path) -> None:
    row = {"messages": TALK, **ROWS["sharegpt"]}
    with raises("import.broken_file", "line 1: it has both 'messages' and 'conversations'"):
        read(written(tmp_path / "chats.jsonl", row))


@pytest.mark.parametrize("row", [{"messages": []}, {"prompt": [], "completion": []}])
def test_a_score_of_no_messages_is_no_score(tmp_path: Path, row: dict[str, Any]) -> None:
    (chat,) = read(written(tmp_path / "log.jsonl", row | {"reward": 1}))
    assert (chat.score, chat.reject_reason) == (None, "the attempt has no messages")


def test_the_reasoning_of_another_message_and_the_result_in_a_call_are_counted(tmp_path: Path) -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": "{}"}, "result": "rain"}
    messages = [ASKED | {"reasoning_content": "secret"}, {"role": "assistant", "tool_calls": [call]}]
    (chat,) = read(written(tmp_path / "chats.jsonl", {"messages": messages}))
    assert chat.unread == {"reasoning of another message": 1, "field result": 1}


def test_a_second_text_of_a_part_is_counted(tmp_path: Path) -> None:
    part = {"type": "text", "text": "a", "refusal": "b", "thinking": "c"}
    (chat,) = read(written(tmp_path / "chats.jsonl", {"messages": [ASKED, {"role": "assistant", "content": [part]}]}))
    assert (chat.turns[0].message, chat.unread) == ("a", {"field refusal": 1, "field thinking": 1})


def test_one_chat_of_unknown_roles_among_others_has_no_score(tmp_path: Path) -> None:
    strange = [{"role": role, "content": "x"} for role in ("human", "ai")]
    path = written(tmp_path / "chats.jsonl", {"messages": TALK, "score": 1}, {"messages": strange, "score": 1})
    _, chat = read(path)
    assert (chat.score, chat.reject_reason) == (
        None,
        "no message has the role assistant, and other roles are unknown: human, ai",
    )


REPLY = {"choices": [{"message": SAID}]}


@pytest.mark.parametrize("row", [{"messages": [ASKED], **REPLY}, {"messages": [ASKED], "response": "Yes?"}])
def test_a_chat_whose_reply_may_be_in_another_field_has_no_score(tmp_path: Path, row: dict[str, Any]) -> None:
    reason = f"no message has the role assistant, but there are other fields: {[*row][1]}"
    row = row | {"reward": 1}
    _, chat = read(written(tmp_path / "chats.jsonl", {"messages": TALK, "score": 1}, row))
    assert (chat.score, chat.reject_reason) == (None, reason)
    with raises("import.broken_file", f"line 1: {reason}. The agent's messages have the role assistant"):
        read(written(tmp_path / "chats.jsonl", row, {"messages": [ASKED]}))
    (chat,) = read(written(tmp_path / "chats.jsonl", {"messages": [ASKED], "reward": 0, "seconds": 3}))
    assert (chat.score, chat.turns) == (0, [])  # an attempt at which the agent says nothing


@pytest.mark.parametrize(("output", "score"), [(REPLY, None), ({"choices": []}, 1)])
def test_a_sample_whose_reply_is_in_its_output_alone_has_no_score(
    tmp_path: Path, output: dict[str, Any], score: int | None
) -> None:
    sample = {"id": 1, "messages": [ASKED], "output": output, "scores": {"s": {"value": "C"}}}
    talk = {"id": 2, "messages": TALK, "scores": {"s": {"value": "C"}}}
    path = written(tmp_path / "log.json", {"eval": {"task": "t"}, "samples": [talk, sample]})
    assert [chat.score for chat in read(path)] == [1, score]


@pytest.mark.parametrize("mark", [{"finish_reason": "error"}, {"timestamp": 3}])
def test_one_chat_without_words_among_others_has_no_score(tmp_path: Path, mark: dict[str, Any]) -> None:
    silent = {"messages": [ASKED | {"content": ""}, SAID | {"content": "", **mark}], "score": 0}
    first, chat = read(written(tmp_path / "chats.jsonl", {"messages": TALK, "score": 1}, silent))
    reason = f"no message has a text in 'content', or a call, but there are other fields: {next(iter(mark))}"
    assert (first.score, chat.score, chat.reject_reason, len(chat.turns)) == (1, None, reason, 1)
    assert len(read(written(tmp_path / "chats.jsonl", silent, {"messages": [ASKED]}))) == 2
    with raises("import.broken_file", f"line 1: {reason}. Nothing was imported."):
        read(written(tmp_path / "chats.jsonl", silent, silent))


def about_file(home: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("USERRL_HOME", str(home))
    (run,) = userrl.import_logs(path)
    with userrl.warehouse() as warehouse:
        (event,) = warehouse.rows("FROM events WHERE run_id = $run AND kind = 'about_file'", run=run.run)
    return json.loads(event["fields"])["facts"]


@pytest.mark.parametrize("late", [False, True])
def test_what_a_log_of_inspect_says_of_all_its_samples_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    facts = {"version": 2, "eval": {"task": "t", "model": "m", "tags": ["night"]}, "results": {"scores": [1.5]}}
    samples = {"samples": [SAMPLE]}
    path = written(tmp_path / "log.json", samples | facts if late else facts | samples)
    assert about_file(tmp_path / "home", path, monkeypatch) == facts


def test_what_results_of_tau2_say_of_all_simulations_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = {"task_id": "1", "messages": [SAID | {"cost": 0.25}], "agent_cost": 0.5}
    info = {"git_commit": "abc", "max_steps": 100, "seed": float("nan")}
    log = {"timestamp": "now", "info": info, "tasks": [{"id": "1"}, {"id": "2"}], "simulations": [simulation]}
    path = written(tmp_path / "log.json", log)
    assert about_file(tmp_path / "home", path, monkeypatch) == {
        "timestamp": "now",
        "info": info | {"seed": "nan"},
        "tasks": [{"id": "2"}],
    }
    assert read(path)[0].info["row"] == {"agent_cost": 0.5}


def test_a_task_of_tau2_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    log = {"info": {}, "tasks": [{"id": "1"}, {"id": "1", "goal": "x"}], "simulations": []}
    with raises("import.broken_file", "task 1 occurs twice, with different content"):
        read(written(tmp_path / "log.json", log))


def test_equal_tasks_of_tau2_are_one_and_tasks_without_an_id_are_all_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, nameless = {"id": "1", "weight": float("nan")}, [{"goal": "x"}, {"goal": "y"}, {"goal": "x", "id": None}]
    log = {"info": {}, "tasks": [task, *nameless, task], "simulations": [{"task_id": "1", "messages": TALK}]}
    path = written(tmp_path / "log.json", log)
    assert about_file(tmp_path / "home", path, monkeypatch) == {"info": {}, "tasks": nameless}
    assert read(path)[0].payload.keys() == {"id", "weight"}


SETTINGS = {
    "api_key": "sk-proj-abc",
    "headers": [{"Authorization": "Bearer x"}],
    "apiKeyEnv": "KEY",
    "temperature": 0.5,
}
EMPTIED = SETTINGS | {"api_key": "", "headers": [{"Authorization": ""}]}


def test_keys_in_a_file_s_settings_tasks_and_fields_are_not_stored_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = SAID | {"raw_data": SETTINGS}
    simulation = {"task_id": "1", "messages": [ASKED, said], "reward_info": {"reward": 1}, "setup": SETTINGS}
    task = {"id": "1", "user": {"password": "hunter2", "answer_key": "B"}}
    info = {"agent_info": {"llm": "m", "llm_args": SETTINGS}}
    log = {"info": info, "tasks": [task], "simulations": [simulation]}
    path = written(tmp_path / "log.json", log)
    assert about_file(tmp_path / "home", path, monkeypatch) == {
        "info": {"agent_info": {"llm": "m", "llm_args": EMPTIED}}
    }
    (run,) = userrl.import_logs(path)
    assert run.not_stored == {"value of api_key": 3, "value of Authorization": 3, "value of password": 1}
    assert "Not stored: value of api_key (3), value of Authorization (3), value of password (1)." in str(run)
    with userrl.warehouse() as warehouse:
        (turn,) = warehouse.rows("FROM turns WHERE run_id = $run", run=run.run)
        (stored,) = warehouse.rows("SELECT payload FROM tasks WHERE run_id = $run", run=run.run)
    turn_info = json.loads(turn["info"])
    assert (turn_info["message"], turn_info["row"]) == ({"raw_data": EMPTIED}, {"setup": EMPTIED})
    assert json.loads(stored["payload"]) == {"id": "1", "user": {"password": "", "answer_key": "B"}}
    files = [file for file in (tmp_path / "home").rglob("*") if file.is_file()]
    assert [file for file in files if b"sk-proj-abc" in file.read_bytes()] == []


def test_an_error_that_is_an_object_is_a_reason_without_its_keys(tmp_path: Path) -> None:
    row = {"task_id": 1, "reward": 0, "traj": TALK, "info": {"error": {"headers": {"Authorization": "Bearer x"}}}}
    (chat,) = read(written(tmp_path / "log.jsonl", row))
    assert chat.reject_reason == 'the attempt failed: {"headers": {"Authorization": ""}}'
    assert chat.unread == {"value of Authorization": 1}


@pytest.mark.parametrize(
    ("name", "value", "holds"),
    [
        ("openaiApiKey", "x", True),
        ("credentials", {"user": "a", "pass": "b"}, True),
        ("hf_token", "hf_0123456789abcdef", True),
        ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", True),
        ("token", "sk-proj-0123456789", True),
        ("token", " Hi", False),
        ("eos_token", "<|begin_of_text|>", False),
        ("answerKey", ["A", "B"], False),
        ("sort_key", "name", False),
        ("max_tokens", 5, False),
        ("password", "", False),
        ("requires_password", True, False),
        ("api_key_env", "OPENAI_API_KEY", False),
    ],
)
def test_a_field_holds_a_key_by_its_name_and_its_value(name: str, value: Any, holds: bool) -> None:
    assert holds_a_key(name, value) is holds


def test_the_metadata_beside_rollouts_of_verifiers_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "metadata.json", {"model": "m", "env_id": "e", "sampling_args": {"n": 2}})
    path = written(tmp_path / "results.jsonl", ROWS["verifiers"])
    facts = about_file(tmp_path / "home", path, monkeypatch)
    assert facts == {"metadata": {"model": "m", "env_id": "e", "sampling_args": {"n": 2}}}


def test_the_metadata_is_stored_also_if_the_file_ends_with_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "metadata.json", {"model": "m"})
    path = written(tmp_path / "results.jsonl", ROWS["verifiers"], ROWS["traces"])
    assert about_file(tmp_path / "home", path, monkeypatch) == {"metadata": {"model": "m"}}


def test_an_episode_whose_traces_are_null_is_refused(tmp_path: Path) -> None:
    with raises("import.broken_file", "a rollout of verifiers needs 'prompt' and 'completion'"):
        read(written(tmp_path / "traces.jsonl", {"traces": None}))


@pytest.mark.parametrize(
    ("instructions", "opening", "unread"),
    [
        ("Be brief.", [{"role": "system", "content": "Be brief."}], {}),
        (5, [], {"field responses_create_params.instructions": 1}),
        ({"a": 1}, [], {"field responses_create_params.instructions": 1}),
        ("", [], {}),
    ],
)
def test_instructions_of_nemo_gym_are_a_system_message_or_counted(
    tmp_path: Path, instructions: Any, opening: list[dict[str, str]], unread: dict[str, int]
) -> None:
    row = ROWS["nemo-gym"] | {"responses_create_params": {"input": "Hi", "instructions": instructions}}
    (chat,) = read(written(tmp_path / "rollouts.jsonl", row))
    assert chat.opening == [*opening, {"role": "user", "content": "Hi"}]
    assert chat.unread == unread


@pytest.mark.parametrize(
    ("value", "score", "reason"),
    [
        ("C", 1.0, None),
        ("yes", 1.0, None),
        ("False", 0.0, None),
        ("0.25", 0.25, None),
        (True, 1.0, None),
        ("good", None, 'the score is not one number: "good"'),
        ({"a": 1}, None, 'the score is not one number: {"a":1}'),
        ([1, 0], None, "the score is not one number: [1,0]"),
        ("nan", None, "the score is not a finite number"),
        (None, None, "the file has no score"),
    ],
)
def test_a_score_of_inspect_is_read_as_its_own_metrics_read_it(
    tmp_path: Path, value: Any, score: float | None, reason: str | None
) -> None:
    sample = SAMPLE | {"scores": {"first": {"value": value}}}
    (chat,) = read(written(tmp_path / "log.json", {"eval": {"task": "t"}, "samples": [sample]}))
    assert (chat.score, chat.reject_reason) == (score, reason)


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (b"", "is empty. Give a file with at least one conversation."),
        (b"\n \n", "is empty. Give a file with at least one conversation."),
        ("{}".encode("utf-16"), "It is UTF-16 or UTF-32 text: save it as UTF-8."),
    ],
)
def test_what_cannot_be_recognised_is_named_with_its_remedy(tmp_path: Path, content: bytes, fact: str) -> None:
    (tmp_path / "log.jsonl").write_bytes(content)
    with raises("import.unknown_format", fact):
        read(tmp_path / "log.jsonl")


def test_a_log_without_a_conversation_is_named_by_its_path(tmp_path: Path) -> None:
    with raises("import.broken_file", f"{tmp_path / 'log.json'}: the file has no conversation"):
        read(written(tmp_path / "log.json", {"eval": {"task": "t"}, "samples": []}))


TRACE = {"nodes": [{"message": SAID, "sampled": True}], "rewards": {"r": 1}, "task": {"key": "k"}}


def test_fields_of_an_episode_are_stored_with_its_traces(tmp_path: Path) -> None:
    env = {"id": "e", "args": {"x": 1}}
    episode = {"env": env, "id": "ep9", "reward": 0.5, "task": {"key": "k"}, "errors": [], "traces": [TRACE, TRACE]}
    chats = read(written(tmp_path / "traces.jsonl", episode))
    assert [chat.gym for chat in chats] == ["e", "e"]
    assert [chat.info["episode"] for chat in chats] == [{"env": {"args": {"x": 1}}, "id": "ep9", "reward": 0.5}] * 2


def test_an_episode_without_a_trace_is_a_conversation_without_a_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))
    failed = {"env": {"id": "e"}, "task": {"key": "k"}, "errors": [{"type": "Timeout"}], "reward": 0, "traces": []}
    path = written(tmp_path / "traces.jsonl", {"env": {"id": "e"}, "traces": [TRACE]}, failed)
    _, chat = read(path)
    assert (chat.gym, chat.task_id, chat.score, chat.reject_reason, chat.turns) == (
        *("e", "k", None),
        *("the rollout failed: Timeout", []),
    )
    (run,) = userrl.import_logs(path)
    assert (run.policies[0].conversations, run.policies[0].scored) == (2, 1)
    assert run.not_stored == {"field errors": 1, "field reward": 1}


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (b'{"env_id": "e"', "metadata.json: it is not JSON"),
        (b"[]", "metadata.json: it is not a JSON object"),
        (b"\xff", "metadata.json: it is not UTF-8 text"),
        (None, "metadata.json: it cannot be read"),
    ],
)
def test_metadata_beside_rollouts_that_cannot_be_read_is_refused(
    tmp_path: Path, content: bytes | None, fact: str
) -> None:
    path = written(tmp_path / "results.jsonl", ROWS["verifiers"])
    if content is None:
        (tmp_path / "metadata.json").symlink_to(tmp_path / "absent")
    else:
        (tmp_path / "metadata.json").write_bytes(content)
    with raises("import.broken_file", fact):
        read(path)
    assert len(read(written(tmp_path / "traces.jsonl", TRACE))) == 1  # says itself what it is


def test_metadata_of_more_than_a_megabyte_is_read_whole(tmp_path: Path) -> None:
    written(tmp_path / "metadata.json", {"notes": "x" * 2**20, "env_id": "e"})
    assert read(written(tmp_path / "results.jsonl", ROWS["verifiers"]))[0].gym == "e"


@pytest.mark.parametrize(
    ("row", "kept"),
    [
        (ROWS["verifiers"] | {"reward": 0.7, "error": "timeout", "is_truncated": True}, {"is_truncated": True}),
        (ROWS["tau-bench"] | {"reward": 0.7, "error": "timeout"}, {}),
        (
            ROWS["nemo-gym"] | {"reward": 0.7, "_ng_failure_class": "timeout", "_ng_rollout_index": 3},
            {"_ng_rollout_index": 3},
        ),
    ],
)
def test_the_reward_of_a_failed_attempt_is_stored_beside_it(
    tmp_path: Path, row: dict[str, Any], kept: dict[str, Any]
) -> None:
    (chat,) = read(written(tmp_path / "log.jsonl", row))
    assert (chat.score, (chat.reject_reason or "")[-7:]) == (None, "timeout")
    assert chat.info["row"].items() >= {"reward": 0.7, **kept}.items()


def test_a_score_of_a_chat_that_has_none_is_stored_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "chats.jsonl").write_text(json.dumps({"messages": TALK, "score": float("nan"), "reward": 0.5}))
    assert read(tmp_path / "chats.jsonl")[0].info["row"]["reward"] == 0.5
    assert str(read(tmp_path / "chats.jsonl")[0].info["row"]["score"]) == "nan"
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))
    (run,) = userrl.import_logs(written(tmp_path / "empty.jsonl", {"messages": [], "score": 0.5}))
    assert run.not_stored == {"field score": 1}


def test_an_answer_of_zero_and_seconds_of_zero_are_values(tmp_path: Path) -> None:
    (chat,) = read(written(tmp_path / "results.jsonl", ROWS["verifiers"] | {"answer": 0, "info": 0}))
    assert (chat.payload["answer"], chat.info["info"]) == (0, 0)
    sample = SAMPLE | {"target": 0, "working_time": 0, "total_time": 9}
    (chat,) = read(written(tmp_path / "log.json", {"eval": {"task": "t"}, "samples": [sample]}))
    assert (chat.payload["target"], chat.seconds) == (0, 0.0)


def in_formats(value: Any) -> dict[str, Any]:
    """Return a file of each format that has a value where a count, a cost or a time is expected."""
    call = {"node": 0, "usage": {"prompt_tokens": value, "cost": value}, "time": {"start": value}}
    said = SAID | {"usage": {"prompt_tokens": value}, "cost": value}
    usage = {"m": {"input_tokens": value, "total_cost": value}}
    return {
        "chats": ROWS["chats"] | {"usage": {"prompt_tokens": value}},
        "tau-bench": ROWS["tau-bench"] | {"trial": value, "info": {"user_cost": value}},
        "verifiers": ROWS["verifiers"] | {"token_usage": {"input_tokens": value}},
        "traces": ROWS["traces"] | {"calls": [call]},
        "nemo-gym": ROWS["nemo-gym"] | {"response": {"output": [SAID], "usage": {"output_tokens": value}}},
        "tau2": {"info": {}, "tasks": [], "simulations": [{"task_id": "1", "seed": value, "messages": [said]}]},
        "inspect": {"eval": {"model": "m"}, "samples": [SAMPLE | {"epoch": value, "model_usage": usage}]},
    }


NOT_FINITE = {
    "chats": {"usage.prompt_tokens"},
    "tau-bench": {"trial", "info.user_cost"},
    "verifiers": {"token_usage.input_tokens"},
    "traces": {"usage.prompt_tokens", "usage.cost", "time.start"},
    "nemo-gym": {"usage.output_tokens"},
    "tau2": {"seed", "usage.prompt_tokens", "cost"},
    "inspect": {"epoch", "model_usage.input_tokens", "model_usage.total_cost"},
}


@pytest.mark.parametrize("format", NOT_FINITE)
def test_a_count_or_cost_that_is_not_finite_is_counted_and_a_truth_value_is_refused(
    tmp_path: Path, format: str
) -> None:
    for value in (float("nan"), "NaN", 10**400):
        (chat,) = read(written(tmp_path / "log.json", in_formats(value)[format]))
        fields = {name.removeprefix("field ") for name in +chat.unread}
        assert NOT_FINITE[format] == fields - {"events", "output"}
    with raises("import.broken_file", "is not a number"):
        read(written(tmp_path / "log.json", in_formats(True)[format]))


def test_a_total_without_its_parts_is_counted(tmp_path: Path) -> None:
    row = ROWS["chats"] | {"usage": {"total_tokens": 9}}
    assert read(written(tmp_path / "chats.jsonl", row))[0].unread == {"field usage.total_tokens": 1}


def test_costs_of_a_tool_are_counted_and_seconds_of_a_user_are_stored(tmp_path: Path) -> None:
    call = SAID | {"tool_calls": [{"id": "c", "name": "f", "arguments": {}}]}
    messages = [call, {"role": "tool", "id": "c", "content": "x", "cost": 1}, ASKED | {"generation_time_seconds": 0.5}]
    simulation = {"task_id": "1", "messages": messages}
    (chat,) = read(written(tmp_path / "log.json", {"info": {}, "tasks": [], "simulations": [simulation]}))
    assert chat.unread == {"field cost": 1}
    assert [(item.role, item.seconds) for item in chat.turns[0].calls] == [("user", 0.5)]


def test_instructions_of_any_form_and_another_requested_model_are_kept(tmp_path: Path) -> None:
    params = {"input": "Hi", "instructions": [{"type": "input_text", "text": "Be kind."}], "model": "asked"}
    row = {"responses_create_params": params, "response": {"output": [SAID], "model": "answered"}, "reward": 1}
    (chat,) = read(written(tmp_path / "log.jsonl", row))
    assert chat.opening[0] == {"role": "system", "content": "Be kind."}
    assert (chat.policy, chat.info["row"]["responses_create_params"]) == ("answered", {"model": "asked"})


@pytest.mark.parametrize(
    ("reply", "role", "observation"),
    [
        (SAID, "user", "Stop."),
        (SAID, "developer", "developer: Stop."),
        (SAID, "system", "system: Stop."),
        (SAID, "tool", "tool: Stop."),
        (CALLED, "user", "user: Stop."),
        (CALLED, "tool", "Stop."),
        (CALLED, "function", "Stop."),
        ({"role": "assistant", "content": '<tool_call>{"name": "f"}</tool_call>'}, "tool", "Stop."),
    ],
)
def test_a_reply_has_its_speaker_unless_the_turn_says_who_replies(
    tmp_path: Path, reply: dict[str, Any], role: str, observation: str
) -> None:
    messages = [ASKED, reply, {"role": role, "content": "Stop."}, SAID]
    (chat,) = read(written(tmp_path / "chats.jsonl", {"messages": messages}))
    assert [turn.observation for turn in chat.turns] == [observation, ""]


@pytest.mark.parametrize(
    ("role", "shown"), [("system", "system night"), ("developer", "developer night"), ("tool", "tool")]
)
def test_the_name_of_a_later_message_is_shown_and_a_tool_s_is_in_its_call(
    tmp_path: Path, role: str, shown: str
) -> None:
    messages = [*TALK, {"role": role, "name": "night", "content": "x"}]
    (chat,) = read(written(tmp_path / "chats.jsonl", {"messages": messages}))
    assert chat.turns[0].observation.removesuffix(": x") == shown
