"""Each format, read from a small recorded file.

Written by the tools' own packages: inspect.eval and inspect.json (inspect-ai 0.3.285), verifiers_traces.jsonl (verifiers 0.4.0).
Written from the documented schema: tau2.json (tau2-bench), verifiers_results.jsonl, nemo_gym.jsonl.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import userrl
from analysis.foreign.conversation import ForeignConversation
from analysis.foreign.formats import conversations, recognised
from tests.makers import raises
from tests.places import TESTS
from tests.published import published

DATA = TESTS / "data" / "foreign"


def read(file: str | Path, format: str = "auto") -> list[ForeignConversation]:
    path = DATA / file
    return list(conversations(path, recognised(path, format)))


def written(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("file", "format"),
    [
        ("tau2.json", "tau2"),
        ("inspect.eval", "inspect"),
        ("inspect.json", "inspect"),
        ("verifiers_results.jsonl", "verifiers"),
        ("verifiers_traces.jsonl", "verifiers"),
        ("nemo_gym.jsonl", "nemo-gym"),
    ],
)
def test_a_format_is_recognised_by_its_first_object(file: str, format: str) -> None:
    assert recognised(DATA / file) == format


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ('{"messages": []}', "openai-chat"),
        ('[{"messages": []}]', "openai-chat"),
        ('{"conversations": []}', "sharegpt"),
        ('[{"task_id": 0, "traj": []}]', "tau-bench"),
        ('{"messages": [], "score": 1.0, "userrl": {}}', "userrl"),
        ('{"version": 2, "status": "success", "eval": {}}', "inspect"),
    ],
)
def test_a_format_is_recognised_by_its_keys(tmp_path: Path, text: str, format: str) -> None:
    (tmp_path / "log").write_text(text)
    assert recognised(tmp_path / "log") == format


def test_the_refusal_of_an_unknown_format_names_the_keys_or_the_compression(tmp_path: Path) -> None:
    path = written(tmp_path / "pairs.jsonl", {"prompt": "x", "chosen": "y", "rejected": "z"})
    with raises("import.unknown_format", "the keys prompt, chosen, rejected", "JSON lines with 'messages'"):
        recognised(path)
    (tmp_path / "chats.jsonl.gz").write_bytes(gzip.compress(b'{"messages": []}'))
    with raises("import.unknown_format", "It is compressed: unpack it first."):
        recognised(tmp_path / "chats.jsonl.gz")
    (tmp_path / "empty.jsonl").write_text("\n")
    with raises("import.unknown_format", "empty.jsonl is empty. Give a file with at least one conversation."):
        recognised(tmp_path / "empty.jsonl")


def test_a_parquet_file_of_another_tool_is_refused_with_the_remedy(tmp_path: Path) -> None:
    pq.write_table(pa.table({"messages": ["x"]}), tmp_path / "chats.parquet")
    with raises("import.broken_file", "userrl did not write this Parquet file", "JSON lines"):
        userrl.import_logs(tmp_path / "chats.parquet")


def test_a_file_in_no_known_format_is_refused(tmp_path: Path) -> None:
    for text in ("", "plain text", '{"a": 1}', "[]", "3"):
        (tmp_path / "log").write_text(text)
        with raises("import.unknown_format", "log"):
            recognised(tmp_path / "log")
    with raises("file.unreadable"):
        recognised(tmp_path / "absent")
    with raises("argument.unknown_value", "tau-bench"):
        recognised(tmp_path / "log", "tau-bensh")


def test_the_recorded_airline_conversations_keep_their_rewards() -> None:
    path = published("tau-bench") / "trajectories_gpt-4o-airline.json"
    rows = json.loads(path.read_text())
    found = list(conversations(path, recognised(path)))
    assert [(item.task_id, item.attempt, item.score) for item in found] == [
        (str(row["task_id"]), row["trial"], row["reward"]) for row in rows
    ]
    assert sum(len(item.turns) for item in found) == 2454
    assert [len(item.opening) for item in found] == [2] * 200  # the policy and the customer's first message
    assert {turn.reward for item in found for turn in item.turns} == {None}
    costs = [call.price for item in found for call in item.calls]
    assert costs == [row["info"]["user_cost"] for row in rows if row["info"]["user_cost"] is not None]


def test_tau2_gives_scores_models_tokens_and_costs() -> None:
    first, second, third, fourth = read("tau2.json")
    assert [item.score for item in (first, second, third, fourth)] == [1.0, 0.0, 0.0, None]
    assert [item.ending for item in (first, second, third)] == ["success", "ended", "horizon"]
    assert fourth.reject_reason == "the attempt failed: infrastructure_error"
    assert (first.gym, first.policy, first.user) == ("tau2-telecom", "o4-mini", "gpt-4.1")
    assert (first.task_id, first.attempt, first.seed) == ("slow-data", 0, 4_000_000_000)
    assert first.payload["description"] == {"purpose": "Slow data"}
    greeting, call, reply = first.turns
    assert (greeting.choice, greeting.prompt_tokens, greeting.observation) == ("message", None, "My data is slow.")
    assert (call.choice, call.content, call.observation) == ("get_line", '{"line":"L1"}', '{"data": "throttled"}')
    assert (call.prompt_tokens, call.completion_tokens, call.seconds) == (120, 12, 1.5)
    assert [(part.role, part.model, part.price) for part in call.calls] == [("policy", "o4-mini", 0.005)]
    assert [(part.role, part.price) for part in reply.calls] == [("policy", 0.005), ("user", 0.001)]
    assert reply.observation.splitlines() == [
        *("user: <tool_call>", '{"name": "toggle_data", "arguments": {}}', "</tool_call>"),
        *("tool: Data is now on.", "user: It works. ###STOP###"),
    ]
    assert first.calls == []  # the costs of the messages are not counted again


def test_tau2_reads_simulations_that_come_before_what_describes_them(tmp_path: Path) -> None:
    content = json.loads((DATA / "tau2.json").read_text())
    (tmp_path / "sorted.json").write_text(json.dumps(dict(sorted(content.items(), reverse=True)) | {}))
    found = read(tmp_path / "sorted.json")
    assert [(item.gym, item.score) for item in found] == [(item.gym, item.score) for item in read("tau2.json")]
    assert found[0].payload == read("tau2.json")[0].payload


@pytest.mark.parametrize("file", ["inspect.eval", "inspect.json"])
def test_inspect_gives_samples_epochs_and_scores(file: str) -> None:
    """The members of the .eval archive are compressed by zstandard (method 93)."""
    right, wrong = read(file)
    assert [(item.task_id, item.attempt, item.score) for item in (right, wrong)] == [
        ("two-and-two", 0, 1.0),
        ("two-and-two", 1, 0.0),
    ]
    assert (right.gym, right.policy, right.payload["target"]) == ("sums", "mockllm/model", "4")
    assert [message["role"] for message in right.opening] == ["system", "user"]
    call, answer = right.turns
    assert (call.choice, call.content, call.observation) == ("add", '{"x":2,"y":2}', "4")
    assert answer.content == "The sum is 4. <b>bold</b>"
    assert right.prompt_tokens is not None
    assert right.info["scores"]["includes"]["value"] == "C"


def test_verifiers_results_give_turn_rewards_where_the_steps_have_them() -> None:
    right, wrong, failed = read("verifiers_results.jsonl")
    assert [item.score for item in (right, wrong, failed)] == [1.0, 0.25, None]
    assert [[turn.reward for turn in item.turns] for item in (right, wrong, failed)] == [
        [0.0, 1.0],
        [0.25, 0.0],
        [None, None],
    ]
    assert (right.prompt_tokens, right.completion_tokens) == (40, 12)
    assert failed.reject_reason == "the rollout failed: ModelError"
    assert (wrong.ending, right.turns[0].choice, right.task_id) == ("horizon", "add", "7")


@pytest.mark.parametrize(
    ("row", "stop"),
    [
        ({}, "ended"),
        ({"is_truncated": True}, "length"),
        ({"is_truncated": True, "stop_condition": "max_turns_reached"}, "horizon"),
    ],
)
def test_a_cut_reply_of_verifiers_ended_by_length(tmp_path: Path, row: dict[str, Any], stop: str) -> None:
    talk = {"prompt": [{"role": "user", "content": "Hi"}], "completion": [{"role": "assistant", "content": "Yes?"}]}
    (item,) = read(written(tmp_path / "results.jsonl", {"example_id": 0, "reward": 1.0, **talk, **row}))
    assert item.stop_reason == stop


def test_verifiers_metadata_names_the_model_and_the_environment(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_bytes((DATA / "verifiers_results.jsonl").read_bytes())
    (tmp_path / "metadata.json").write_text('{"env_id": "sums", "model": "qwen3-8b"}')
    assert {(item.gym, item.policy) for item in read(tmp_path / "results.jsonl")} == {("sums", "qwen3-8b")}


def test_verifiers_traces_follow_the_last_branch() -> None:
    right, wrong = read("verifiers_traces.jsonl")
    assert [item.score for item in (right, wrong)] == pytest.approx([1.0, 0.2])
    assert (right.gym, right.policy, right.task_id) == ("sums", "qwen3-8b", "two-and-two")
    call, answer = right.turns
    assert (call.choice, call.prompt_tokens, call.completion_tokens, call.seconds) == ("add", 25, 8, 1.0)
    assert (answer.content, answer.thought) == ("The sum is 4.", "The tool says 4.")
    assert [call.completion_tokens for call in right.calls] == [4]  # of the dropped branch


SEARCHED = {
    "role": "assistant",
    "content": [
        {"type": "text", "text": "a"},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": "r"},
        {"type": "text", "text": "b"},
    ],
}
"""Two turns: Anthropic stores the result of a server's tool in the agent's message."""
RESULT_ALONE = {"role": "assistant", "content": [{"type": "web_search_tool_result", "content": "r"}]}
"""No turn."""


def test_tokens_of_a_message_of_several_turns_or_none_are_stored_with_its_first_turn_or_none(tmp_path: Path) -> None:
    asked = {"role": "user", "content": "q"}
    messages = [RESULT_ALONE, asked, SEARCHED, asked, {"role": "assistant", "content": "last"}]
    tokens = [(5, 6), None, (1, 2), (3, 4), (10, 20)]
    usages = [pair and {"prompt_tokens": pair[0], "completion_tokens": pair[1]} for pair in tokens]
    nodes = [{"message": message, "parent": at - 1 if at else None} for at, message in enumerate(messages)]
    calls = [{"node": at, "model": "m", "usage": usage} for at, usage in enumerate(usages) if usage]
    trace = {"nodes": [node | {"sampled": True} for node in nodes], "calls": calls, "rewards": {"r": 1}}
    used = [message | {"usage": usage} for message, usage in zip(messages, usages, strict=True)]
    simulation = {"task_id": "1", "messages": used, "reward_info": {"reward": 1}}
    document = {"info": {}, "tasks": [], "simulations": [simulation]}
    (traced,), (simulated,) = read(written(tmp_path / "a", trace)), read(written(tmp_path / "b", document))
    for item in (traced, simulated):
        assert [(turn.message.partition("\n")[0], turn.prompt_tokens) for turn in item.turns] == [
            ("a", 1),
            ("b", None),
            ("last", 10),
        ]
    read_tokens = [[call.prompt_tokens for call in turn.calls] for turn in simulated.turns]
    assert (read_tokens, [call.prompt_tokens for call in simulated.calls]) == ([[1], [3], [10]], [5])
    read_tokens = [[call.prompt_tokens for call in turn.calls] for turn in traced.turns]
    assert (read_tokens, [call.prompt_tokens for call in traced.calls]) == ([[1], [], [10]], [5, 3])


def test_rewards_of_steps_are_not_stored_where_a_message_is_several_turns(tmp_path: Path) -> None:
    steps = [{"reward": 0.5}, {"reward": 0.5}]
    row = {"prompt": "q", "completion": [RESULT_ALONE, SEARCHED], "reward": 1, "trajectory": steps}
    (item,) = read(written(tmp_path / "results.jsonl", row))
    assert [turn.reward for turn in item.turns] == [None, None]


def test_nemo_gym_joins_items_to_messages() -> None:
    right, wrong = read("nemo_gym.jsonl")
    assert [(item.task_id, item.attempt, item.score) for item in (right, wrong)] == [("0", 0, 1.0), ("0", 1, 0.0)]
    assert (right.gym, right.policy) == ("sum_agent", "gpt-4.1-2025-04-14")
    call, answer = right.turns
    assert (call.choice, call.thought, call.observation) == ("add", "Use the tool.", "4")
    assert answer.content == "The sum is 4."
    assert (right.prompt_tokens, right.completion_tokens) == (60, 14)


def test_chat_lines_without_a_score_are_not_admitted(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [{"type": "text", "text": "Yes?"}]}]
    path = written(
        tmp_path / "chats.jsonl", {"messages": messages}, {"messages": messages, "score": 0.5, "model": "gpt-4o"}
    )
    unscored, scored = read(path)
    assert (unscored.score, unscored.reject_reason) == (None, "the file has no score")
    assert (scored.score, scored.reject_reason, scored.policy) == (0.5, None, "gpt-4o")
    assert unscored.task_id == scored.task_id  # attempts at one prompt
    assert [turn.content for turn in scored.turns] == ["Yes?"]


def test_sharegpt_conversations(tmp_path: Path) -> None:
    turns = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yes?"}, {"from": "human", "value": "Bye"}]
    (tmp_path / "chats.json").write_text(json.dumps([{"conversations": turns, "system": "Be kind."}]))
    (chat,) = read(tmp_path / "chats.json")
    assert chat.opening == [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    assert [(turn.content, turn.observation) for turn in chat.turns] == [("Yes?", "Bye")]
