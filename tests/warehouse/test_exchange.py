"""Conversations in other tools' formats, and ours read back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from analysis.foreign.formats import conversations as conversations_of
from analysis.foreign.formats import recognised
from flows.cli.main import app
from tests.makers import raises
from tests.places import TESTS
from tests.warehouse.kills import kill_at
from tests.warehouse.makers import make_task, play
from userrl_core.errors import ConfigError
from userrl_core.records import Flag
from warehouse import TurnLog, open_warehouse
from warehouse.files.layout import ARRIVING, STAGING, run_folders
from warehouse.upkeep.check import check
from warehouse.upkeep.compact import compact
from warehouse.upkeep.exchange.atif import trajectory
from warehouse.upkeep.exchange.conversations import (
    ExportedConversation,
    conversations,
    write_messages,
    write_parquet,
)
from warehouse.upkeep.exchange.imported import store
from warehouse.upkeep.exchange.inspect_log import write_inspect
from warehouse.upkeep.exchange.own_exports import bring_in, read_conversations
from warehouse.upkeep.exchange.staging import finish


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six evaluated conversations, one of which could not be scored, and one of training with its credits."""
    root = tmp_path_factory.mktemp("exchange")
    with TurnLog.open(root, "r1", run_fields={"recipe": "mine", "seed": 7, "gamma": 0.9}) as log:
        log.tasks([make_task(id=f"t{n}", split="test") for n in range(3)])
        for n in range(6):
            rewards = [0.5, None] if n == 5 else [0.25, n / 10]
            place = {"stage": "evaluate", "phase": "evaluate", "split": "test", "policy": "RL"}
            play(log, rewards, task=f"t{n % 3}", attempt=n // 3, score=n / 5, calls=1, text=f"<b>{n}</b>", **place)  # type: ignore[arg-type]
        play(log, [1.0, 0.0], credits=[0.5, 0.25])
    return root


def of(root: Path, phase: str | None = None) -> list[ExportedConversation]:
    with open_warehouse(root) as warehouse:
        return list(conversations(warehouse, "r1", phase=phase))


@pytest.mark.parametrize("write", [write_messages, write_parquet])
def test_what_was_exported_is_read_back_as_it_was(root: Path, tmp_path: Path, write) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "conversations"
    assert write(of(root), file) == 7
    assert bring_in(tmp_path / "other", read_conversations(file)) == {"r1": 7}
    for table, order in (
        ("trajectories", "group_id, task_id, attempt"),
        ("turns", "group_id, task_id, attempt, turn"),
        ("model_calls", "ALL"),
    ):
        new = "traj_id, incarnation, writer, seq, logged_at"
        new += ", started_at" if table == "trajectories" else ""
        text = f"SELECT * EXCLUDE ({new}) FROM {table} ORDER BY {order}"
        with open_warehouse(root) as here, open_warehouse(tmp_path / "other") as there:
            assert there.sql(text).fetchall() == here.sql(text).fetchall()
            row = "SELECT recipe, seed, gamma FROM runs"
            assert there.sql(row).fetchall() == here.sql(row).fetchall() == [("mine", 7, 0.9)]


def test_a_run_that_is_here_is_not_read_in_again(root: Path, tmp_path: Path) -> None:
    write_messages(of(root), tmp_path / "file")
    with raises("import.run_exists"):
        bring_in(root, read_conversations(tmp_path / "file"))
    (tmp_path / "foreign").write_text('{"messages": []}\n')
    with raises("import.broken_file", "line 1: userrl is not a JSON object"):
        list(read_conversations(tmp_path / "foreign"))
    with raises("file.unreadable"):
        list(read_conversations(tmp_path / "absent"))


def test_the_same_file_changes_nothing_and_a_broken_one_leaves_nothing(root: Path, tmp_path: Path) -> None:
    write_messages(of(root), tmp_path / "file")
    other = tmp_path / "other"
    for _ in range(2):
        assert bring_in(other, read_conversations(tmp_path / "file"), digest="d") == {"r1": 7}
    with open_warehouse(other) as warehouse:
        assert warehouse.rows("SELECT count(*) AS n FROM trajectories_all") == [{"n": 7}]
    lines = (tmp_path / "file").read_text().splitlines()
    with_null = lines[1].replace('"token_ids":[1,2,1]', '"token_ids":[1,null,1]')
    (tmp_path / "null").write_text("\n".join([lines[0], with_null]))
    assert bring_in(tmp_path / "fourth", read_conversations(tmp_path / "null")) == {"r1": 2}
    broken = {
        '"score":0.2': ('"score":"high"', "score of a trajectory does not fit"),
        '"turn":2,': ('"turn":1,', "numbered from 1"),
        '"run_id":"r1"': ('"run_id":"../r1"', "cannot be used"),
        '"reward":0.25': ('"reward":NaN', "reward of a turn is not a finite number"),
        '"logprobs":[-0.5,': ('"logprobs":[-Infinity,', "logprobs of a turn does not fit"),
        '"token_ids":[1,2,1]': ('"token_ids":[1,-7,1]', "turn 1 has the token id -7, which no vocabulary has"),
        '"admitted":true': ('"admitted":1', "not a conversation that userrl wrote"),
    }
    for old, (new, fact) in broken.items():
        assert old in lines[1]
        (tmp_path / "broken").write_text("\n".join([lines[0], lines[1].replace(old, new)]))
        with pytest.raises(ConfigError, match=re.escape(fact)):
            bring_in(tmp_path / "third", read_conversations(tmp_path / "broken"))
        assert not list((tmp_path / "third").glob("*/run=*"))


def test_a_run_that_begins_during_an_import_of_its_id_stays(root: Path, tmp_path: Path) -> None:
    write_messages(of(root), tmp_path / "file")
    other = tmp_path / "other"

    def read_while_it_begins() -> Iterator[ExportedConversation]:
        for number, item in enumerate(read_conversations(tmp_path / "file")):
            if number == 1:
                with TurnLog.open(other, "r1") as log:
                    play(log, [1.0])
            yield item

    with raises("import.run_exists", "Nothing was imported"):
        bring_in(other, read_while_it_begins())
    with open_warehouse(other) as warehouse:
        assert warehouse.rows("SELECT count(*) AS n FROM trajectories") == [{"n": 1}]
    with raises("import.run_exists"):
        bring_in(other, read_conversations(tmp_path / "file"))


def test_a_killed_import_leaves_out_a_run_that_began_since(root: Path, tmp_path: Path) -> None:
    write_messages(of(root), tmp_path / "file")
    other = tmp_path / "other"
    bring_in(other, read_conversations(tmp_path / "file"), digest="d")
    staged = other / STAGING / "run=r1"
    (other / "runs" / "run=r1").rename(staged)
    (other / ARRIVING).write_text("run=r1")
    (other / "runs" / "run=r1").mkdir()
    (other / "runs" / "run=r1" / "note").write_text("another run's")
    finish(other)
    assert not (other / ARRIVING).exists()
    assert (other / "runs" / "run=r1" / "note").read_text() == "another run's"


BRING_IN = """
from pathlib import Path
from warehouse.upkeep.exchange.own_exports import bring_in, read_conversations
bring_in(Path(argument), read_conversations(Path(argument).with_name("three.jsonl")), digest="d")
"""


@pytest.mark.parametrize(("event", "ending"), [("os.rename", "run=b"), ("os.remove", "arriving")])
def test_an_import_that_is_killed_while_its_runs_arrive_is_there_whole_or_not_at_all(
    tmp_path: Path, event: str, ending: str
) -> None:
    for run in "abc":
        with TurnLog.open(tmp_path / "source", run) as log:
            play(log, [1.0], phase="evaluate", split="test", policy="RL")
    with open_warehouse(tmp_path / "source") as source:
        write_messages([item for run in "abc" for item in conversations(source, run)], tmp_path / "three.jsonl")
    root = tmp_path / "target"
    with TurnLog.open(root, "here") as log:
        play(log, [1.0])
    kill_at(event, ending, root, code=BRING_IN)
    assert [folder.name for folder in run_folders(root)] == ["run=here"]
    with open_warehouse(root) as target:
        assert target.sql("SELECT count(*) FROM trajectories").fetchall() == [(1,)]
    if ending == "run=b":  # any later import finishes it, also a broken one
        assert len(compact(root).packs) == 1  # what has not arrived stays as it is
        with pytest.raises(ConfigError):
            bring_in(root, read_conversations(tmp_path / "missing.jsonl"))
    else:
        bring_in(root, read_conversations(tmp_path / "three.jsonl"), digest="d")
    with open_warehouse(root) as target:
        counts = target.sql("SELECT run_id, count(*) FROM trajectories GROUP BY ALL ORDER BY ALL").fetchall()
    assert counts == [("a", 1), ("b", 1), ("c", 1), ("here", 1)]
    assert check(root).sound
    assert [path.name for path in (root / "importing").glob("*") if path.name != "lock"] == []


STRANGE: list[dict[str, Any]] = [
    {"messages": []},
    {"messages": [{"role": "user", "content": ""}], "score": 1},
    {
        "messages": [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": None}],
        "score": float("nan"),
    },
    {
        "messages": [
            {"role": "assistant", "content": "<think>a</think>b <tool_call>c"},
            {"role": "user", "content": "d"},
        ]
    },
    {"messages": [{"role": "assistant", "tool_calls": [{"name": "f", "arguments": "{"}, {"name": "g"}]}], "score": 0.5},
    {"messages": [{"role": "assistant", "content": "a", "weight": 0, "api_key": "sk-0123456789abcdef"}], "n": 2**70},
    {
        "messages": [{"role": "coach", "content": "\u2028"}, {"role": "assistant", "content": "\x7f\n"}],
        "usage": {"x": 1},
    },
]


@pytest.mark.parametrize("write", [write_messages, write_parquet])
@pytest.mark.parametrize("file", [*sorted((TESTS / "data" / "foreign").iterdir()), "strange"], ids=str)
def test_an_imported_file_is_exported_and_read_back_field_by_field(tmp_path: Path, file: Path | str, write) -> None:  # type: ignore[no-untyped-def]
    path = Path(file)
    if file == "strange":
        path = tmp_path / "strange.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in STRANGE))
    store(tmp_path / "one", "import-x", conversations_of(path, recognised(path)), format="x", name="o4")
    with open_warehouse(tmp_path / "one") as one:
        write(conversations(one, "import-x", phase=None), tmp_path / "file")
        bring_in(tmp_path / "two", read_conversations(tmp_path / "file"))
        with open_warehouse(tmp_path / "two") as two:
            for table in ("trajectories", "turns", "model_calls", "tasks", "events", "runs"):
                columns = "COLUMNS(lambda c: NOT regexp_matches(c, 'traj_id|incarnation|writer|seq|logged_at|run_no'))"
                text = f"SELECT {columns} FROM {table} ORDER BY ALL"
                stored = one.rows(text)
                assert two.rows(text) == stored
                assert stored or table in ("model_calls", "tasks", "events")


def test_messages_are_a_chat_that_other_tools_read(root: Path, tmp_path: Path) -> None:
    write_messages(of(root, "evaluate"), tmp_path / "file")
    first = json.loads((tmp_path / "file").read_text().splitlines()[0])
    assert [message["role"] for message in first["messages"]] == ["system", "assistant", "user", "assistant", "user"]
    assert (first["messages"][1]["content"], first["messages"][2]["content"]) == ("<b>0</b> 1", "observation 1")
    assert first["score"] == 0.0


def test_an_atif_trajectory_numbers_its_steps_and_ties_observations_to_calls(root: Path) -> None:
    made = trajectory(of(root, "evaluate")[1])
    assert made["schema_version"] == "ATIF-v1.4"
    assert [(step["step_id"], step["source"]) for step in made["steps"]] == [(1, "system"), (2, "agent"), (3, "agent")]
    step = made["steps"][1]
    assert step["tool_calls"][0] == {
        "tool_call_id": "turn-1",
        "function_name": "interact_with_env",
        "arguments": {"choice": "action", "content": "<b>1</b>"},
    }
    assert step["observation"] == {"results": [{"source_call_id": "turn-1", "content": "observation 1"}]}
    assert step["metrics"]["completion_token_ids"] == [1, 2, 1]
    assert (made["final_metrics"]["total_prompt_tokens"], made["final_metrics"]["total_steps"]) == (20, 3)


def test_an_inspect_log_has_a_sample_a_conversation_and_no_score_where_there_was_none(
    root: Path, tmp_path: Path
) -> None:
    (path,) = write_inspect(of(root, "evaluate"), tmp_path)
    log = json.loads(path.read_text())
    assert (log["version"], log["status"], log["eval"]["config"]["epochs"]) == (2, "success", 2)
    assert [(sample["id"], sample["epoch"]) for sample in log["samples"]][:4] == [
        ("travel/t0", 1),
        ("travel/t1", 1),
        ("travel/t2", 1),
        ("travel/t0", 2),
    ]
    assert (log["samples"][5]["scores"], log["samples"][5]["error"]["message"]) == ({}, "user_error")
    results = log["results"]["scores"][0]["metrics"]
    assert results["mean"]["value"] == pytest.approx((0.0 + 0.2 + 0.4 + 0.6 + 0.8) / 5)
    assert results["stderr"]["value"] == pytest.approx(0.1 / 3**0.5)  # the samples' means are .3, .5 and .4


@pytest.mark.parametrize(
    ("name", "content", "fact"),
    [
        ("empty.jsonl", b"", "empty.jsonl: the file has no conversation. Nothing was imported."),
        ("list.json", b"[]", "list.json: the file has no conversation. Nothing was imported."),
        ("fake.parquet", b"PAR1" + bytes(100) + b"PAR1", "after row 0: it contains no conversations that userrl wrote"),
    ],
)
def test_an_export_without_a_conversation_is_refused_in_one_line(
    tmp_path: Path, name: str, content: bytes, fact: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with raises("import.broken_file", fact) as caught:
        bring_in(tmp_path / "warehouse", read_conversations(tmp_path / name))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ('{"run": {}, "run": {}}', "row 1: an object has the key 'run' twice"),
        ('{"a": ' * 5000, "row 1: it is nested too deeply"),
        (None, "it contains no conversations that userrl wrote"),
    ],
)
def test_a_broken_row_of_an_export_in_parquet_is_refused(tmp_path: Path, text: str | None, fact: str) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"userrl": pa.array([text], pa.string())}), path)
    with raises("import.broken_file", fact):
        list(read_conversations(path))


CHAT = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "What name?", "reasoning_content": "I need a name."},
    {"role": "user", "content": "Bo"},
    {
        "role": "assistant",
        "content": "Let me see.",
        "reasoning_content": "Look it up.",
        "tool_calls": [
            {"id": "c1", "function": {"name": "find", "arguments": '{"a":1}'}},
            {"id": "c2", "function": {"name": "list", "arguments": "not JSON"}},
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "found"},
    {"role": "assistant", "content": "Done."},
]


def imported_chat(folder: Path, **row: object) -> list[ExportedConversation]:
    """Return a chat of another tool as it is exported, after an import."""
    (folder / "chat.jsonl").write_text(json.dumps({"messages": CHAT, "model": "x1", **row}) + "\n")
    chats = conversations_of(folder / "chat.jsonl", "openai-chat")
    store(folder / "home", "import-x", chats, format="openai-chat", name="chat")
    with open_warehouse(folder / "home") as warehouse:
        return list(conversations(warehouse, "import-x", phase=None))


def test_an_import_is_exported_with_its_own_calls_and_plain_replies(tmp_path: Path) -> None:
    (exported,) = imported_chat(tmp_path)
    calls = [("turn-2", "find", {"a": 1}), ("turn-2-2", "list", {"arguments": "not JSON"})]
    steps = [
        {
            key: step[key]
            for key in ("source", "message", "reasoning_content", "tool_calls", "observation")
            if key in step
        }
        for step in trajectory(exported)["steps"]
    ]
    assert steps == [
        {"source": "user", "message": "hi"},
        {"source": "agent", "message": "What name?", "reasoning_content": "I need a name."},
        {"source": "user", "message": "Bo"},
        {
            "source": "agent",
            "message": "Let me see.",
            "reasoning_content": "Look it up.",
            "tool_calls": [{"tool_call_id": c, "function_name": n, "arguments": a} for c, n, a in calls],
            "observation": {"results": [{"source_call_id": "turn-2", "content": "found"}]},
        },
        {"source": "agent", "message": "Done."},
    ]
    (path,) = write_inspect([exported], tmp_path / "logs")
    (sample,) = json.loads(path.read_text())["samples"]
    messages = [{key: m[key] for key in ("role", "content", "tool_calls") if key in m} for m in sample["messages"]]
    reasoned = [
        [{"type": "reasoning", "reasoning": thought}, {"type": "text", "text": text}]
        for thought, text in (("I need a name.", "What name?"), ("Look it up.", "Let me see."))
    ]
    assert messages == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": reasoned[0]},
        {"role": "user", "content": "Bo"},
        {
            "role": "assistant",
            "content": reasoned[1],
            "tool_calls": [{"id": c, "function": n, "arguments": a, "type": "function"} for c, n, a in calls],
        },
        {"role": "tool", "content": "found"},
        {"role": "assistant", "content": "Done."},
    ]
    assert [message["role"] for message in exported.messages] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


@pytest.mark.parametrize(
    ("content", "arguments", "reasoning"),
    [
        ("Look.", {"t": "a</tool_call>b"}, ""),
        ("I use <tool_call> tags", {"a": 1}, ""),
        ("", {"a": 1}, "Hm."),
        ("", {"t": "\ud800\n"}, ""),
    ],
)
def test_tags_in_the_text_or_in_arguments_end_no_call_of_an_import(
    tmp_path: Path, content: str, arguments: dict[str, Any], reasoning: str
) -> None:
    calls = [{"name": "f", "arguments": json.dumps(arguments)}, {"name": "g", "arguments": '{"t": "</tool_call>"}'}]
    reply = {"role": "assistant", "content": content, "reasoning": reasoning, "tool_calls": calls}
    (exported,) = imported_chat(tmp_path, messages=[CHAT[0], reply])
    step = trajectory(exported)["steps"][1]
    assert (step["message"], step.get("reasoning_content", "")) == (content, reasoning)
    read_calls = [(call["function_name"], call["arguments"]) for call in step["tool_calls"]]
    assert read_calls == [("f", arguments), ("g", {"t": "</tool_call>"})]


def test_what_an_import_does_not_say_is_in_no_export(tmp_path: Path) -> None:
    (exported,) = imported_chat(tmp_path)
    (path,) = write_inspect([exported], tmp_path / "logs")
    log = json.loads(path.read_text())
    (sample,) = log["samples"]
    assert log["stats"] == {"started_at": "", "completed_at": "", "model_usage": {}}
    assert (sample["model_usage"], sample["total_time"]) == ({}, None)
    assert "error" not in sample  # it has no score, and nothing failed
    assert not any("timestamp" in step for step in trajectory(exported)["steps"])


def test_an_inspect_log_of_an_import_is_read_back_as_the_same_turns(tmp_path: Path) -> None:
    (exported,) = imported_chat(tmp_path, score=0.5, usage={"prompt_tokens": 7, "completion_tokens": 3})
    (path,) = write_inspect([exported], tmp_path / "logs")
    log = json.loads(path.read_text())
    models = {log["eval"]["model"], *log["stats"]["model_usage"], *log["samples"][0]["model_usage"]}
    assert models == {"x1"}
    (first,) = conversations_of(tmp_path / "chat.jsonl", "openai-chat")
    (again,) = conversations_of(path, "inspect")
    assert [(c.role, c.model, c.prompt_tokens, c.completion_tokens) for c in again.calls] == [("policy", "x1", 7, 3)]
    assert (again.policy, again.score, again.prompt_tokens, again.completion_tokens) == ("x1", 0.5, 7, 3)
    assert [turn.choice for turn in again.turns] == ["message", "find", "message"]
    for one, two in zip(first.turns, again.turns, strict=True):
        assert (two.content, two.thought, two.observation) == (one.content, one.thought, one.observation)


def test_a_call_of_a_gym_is_in_no_text_of_an_export(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        place = {"stage": "evaluate", "phase": "evaluate", "split": "test", "policy": "RL"}
        play(
            log,
            [1.0],
            text='<think>\nA room?\n</think>\n\nI ask.\n<tool_call>\n{"name": "interact_with_env"}\n</tool_call>',
            **place,
        )  # type: ignore[arg-type]
    (exported,) = of(tmp_path)
    (step,) = trajectory(exported)["steps"][1:]
    assert (step["message"], step["reasoning_content"], len(step["tool_calls"])) == ("I ask.", "A room?", 1)
    assert step["timestamp"]


def imported_log(root: Path) -> None:
    """Import a log of Inspect, which says something of all its samples, and has events that are not stored."""
    chats = conversations_of(TESTS / "data" / "foreign" / "inspect.json", "inspect")
    store(root, "import-x", chats, format="inspect", name="log")


@pytest.mark.parametrize("write", [write_messages, write_parquet])
def test_what_was_said_of_an_imported_file_is_exported_and_read_back(tmp_path: Path, write) -> None:  # type: ignore[no-untyped-def]
    imported_log(tmp_path / "one")
    with open_warehouse(tmp_path / "one") as one:
        exported = list(conversations(one, "import-x"))
        assert [bool(item.file) for item in exported] == [True, False]
        write(exported, tmp_path / "file")
        bring_in(tmp_path / "two", read_conversations(tmp_path / "file"))
        text = "SELECT kind, fields FROM events ORDER BY kind"
        with open_warehouse(tmp_path / "two") as two:
            assert two.sql(text).fetchall() == one.sql(text).fetchall()
            assert [row["kind"] for row in two.rows(text)] == ["about_file", "not_stored"]


def edited(value: dict[str, Any], place: str, field: str, new: object) -> dict[str, Any]:
    for key in place.split(".") if place else []:
        value = value[int(key) if key.isdigit() else key]
    value[field] = new
    return value


@pytest.mark.parametrize(
    ("place", "field", "new", "fact"),
    [
        ("", "score", 0.75, "its score is not the score in userrl.trajectory"),
        ("", "note", "x", "the line has the field 'note'"),
        ("messages.1", "content", "x", "its messages are not those in userrl"),
        ("messages.0", "content", "", "its messages are not those in userrl"),
        ("messages.1", "content", "<b>0", "its messages are not those in userrl"),
        ("messages.2", "content", "observation", "its messages are not those in userrl"),
        ("messages.2", "role", "system", "its messages are not those in userrl"),
        ("userrl", "note", 0, "userrl has the field 'note'"),
        ("userrl.run", "note", "x", "the run has the field 'note'"),
        ("userrl.trajectory", "note", "x", "the trajectory has the field 'note'"),
        ("userrl.turns.0", "note", "x", "a turn has the field 'note'"),
        ("userrl.turns.0", "task_id", "t9", "task_id of a turn is not its trajectory's"),
        ("userrl.calls.0", "note", "x", "a model call has the field 'note'"),
        ("userrl.task", "note", "x", "the task has the field 'note'"),
        ("userrl", "file", {"note": {"a": 1}}, "userrl.file has the field 'note'"),
        ("userrl", "file", {"not_stored": {"field a": "x"}}, "not_stored.field a is not a number"),
    ],
)
def test_a_field_of_an_export_that_is_not_read_or_contradicts_another_is_refused(
    root: Path, tmp_path: Path, place: str, field: str, new: object, fact: str
) -> None:
    write_messages(of(root, "evaluate")[:1], tmp_path / "file")
    line = json.loads((tmp_path / "file").read_text())
    edited(line, place, field, new)
    (tmp_path / "file").write_text(json.dumps(line))
    with raises("import.broken_file", fact):
        list(read_conversations(tmp_path / "file"))


def test_a_column_of_an_exported_parquet_file_that_is_not_read_or_contradicts_another_is_refused(
    root: Path, tmp_path: Path
) -> None:
    write_parquet(of(root, "evaluate"), tmp_path / "file")
    table = pq.read_table(tmp_path / "file")
    with_note = table.append_column("note", pa.array(["x"] * 6))
    rescored = table.set_column(table.column_names.index("score"), "score", pa.array([0.5] * 6))
    for changed, fact in (
        (with_note, "the file has the field 'note'"),
        (rescored, "row 1: its score is not the score"),
    ):
        pq.write_table(changed, tmp_path / "changed")
        with raises("import.broken_file", fact):
            list(read_conversations(tmp_path / "changed"))


def test_the_index_that_pandas_adds_to_an_exported_parquet_file_is_no_unknown_column(
    root: Path, tmp_path: Path
) -> None:
    write_parquet(of(root, "evaluate"), tmp_path / "file")
    table = pq.read_table(tmp_path / "file").append_column("__index_level_0__", pa.array(range(6)))
    pq.write_table(table, tmp_path / "file")
    assert len(list(read_conversations(tmp_path / "file"))) == 6


def test_an_export_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """It ends with an empty message, calls every reply the user's, and says nothing of the imported file."""
    imported_log(tmp_path / "one")
    with open_warehouse(tmp_path / "one") as one:
        write_messages(conversations(one, "import-x"), tmp_path / "file")
    lines = [json.loads(line) for line in (tmp_path / "file").read_text().splitlines()]
    for line in lines:
        del line["userrl"]["file"]
        line["messages"] = [
            message | {"role": "user"} if message["role"] == "tool" else message for message in line["messages"]
        ]
        line["messages"].append({"role": "user", "content": ""})
    (tmp_path / "file").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert bring_in(tmp_path / "two", read_conversations(tmp_path / "file")) == {"import-x": 2}


@pytest.mark.parametrize(
    ("observations", "is_read"),
    [
        (["", "then", "end"], True),
        ([" two", "then one", "end"], True),
        ([" two", "then", "end"], False),
        (["", "the", "end"], False),
        (["", "then", "en"], False),
    ],
)
def test_an_export_of_an_earlier_version_has_the_turns_left_everywhere_or_nowhere(
    root: Path, tmp_path: Path, observations: list[str], is_read: bool
) -> None:
    (exported, *_) = of(root, "evaluate")
    turns = [
        {**exported.turns[0], "turn": number, "observation": observation, "flags": Flag.TURNS_LEFT}
        for number, observation in enumerate(("", "then", "end"), 1)
    ]
    trajectory_row = {**exported.trajectory, "horizon": 3}
    write_messages([replace(exported, trajectory=trajectory_row, turns=turns, calls=[])], tmp_path / "file")
    line = json.loads((tmp_path / "file").read_text())
    replies = line["messages"][2::2]
    assert [message["content"] for message in replies] == [" two", "then one", "end"]
    for message, observation in zip(replies, observations, strict=True):
        message["content"] = observation
    (tmp_path / "file").write_text(json.dumps(line))
    if is_read:
        assert bring_in(tmp_path / "two", read_conversations(tmp_path / "file")) == {"r1": 1}
    else:
        with raises("import.broken_file", "its messages are not those in userrl"):
            list(read_conversations(tmp_path / "file"))


def test_an_export_says_how_many_people_did_not_consent(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        for policy in ("RL", "human", "human"):
            play(log, [1.0], phase="evaluate", policy=policy)
    words = [
        "warehouse",
        "export",
        str(tmp_path / "out"),
        "--format",
        "messages",
        "--run",
        "r1",
        "--warehouse",
        str(tmp_path),
    ]
    done = CliRunner().invoke(app, words)
    assert "Wrote 1 conversations" in done.output
    assert "Left out 2 conversations of people who did not consent." in done.output
    done = CliRunner().invoke(app, [*words, "--policy", "human"])
    assert (done.exit_code, "2 conversations of people who did not consent are in no export." in done.output) == (
        1,
        True,
    )
