"""Hostile and damaged files: one sentence with the place, and nothing of the file is kept."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

import userrl
from analysis.foreign.formats import conversations
from flows.cli.main import app
from tests.analysis.foreign.test_formats import DATA
from tests.makers import raises
from userrl_core.chats import stream
from userrl_core.errors import ConfigError

CHAT = '{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}], "score": 1}\n'


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def refused(path: Path, home: Path, code: str, *facts: str, format: str = "auto") -> None:
    with raises(code, *facts) as caught:
        userrl.import_logs(path, format=format)
    assert "\n" not in str(caught.value)
    assert not list(home.glob("warehouse/runs/*"))
    assert not list(home.glob("warehouse/importing/run=*"))


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ('{"messages": [{"role": "user", "content": "Hi"}, {"role": "assis', "line 3: it is not JSON"),
        ('{"messages": [], "score": nan}', "line 3: it is not JSON"),
        ('{"messages": [], "id": "\\ud83d"}', "line 3: a text holds half of a character"),
        ('{"messages": [], "\\uDE00": NaN}', "line 3: a text holds half of a character"),
        ('{"messages": [], "score": "high"}', "line 3: score is not a number"),
        ('{"messages": {}}', "line 3: a chat needs a list 'messages'"),
        ('{"messages": [7]}', "line 3: message 1 is not a JSON object"),
        ('{"messages": [{"content": "Hi"}]}', "line 3: message 1 has no role"),
        ('{"messages": [{"role": "assistant", "tool_calls": [{}]}]}', "line 3: a tool call has no name"),
        ('{"messages": [], "usage": {"prompt_tokens": -1}}', "line 3: usage.prompt_tokens is not a whole number"),
        ("[1, 2]", "line 3: the line is not a JSON object"),
        ('{"messages": ' + "[" * 100_000 + "]" * 100_000 + "}", "line 3: it is nested too deeply"),
        ('{"a": "\udcff"}', "line 3: it is not UTF-8 text"),
        ('{"messages": [], "score": 0, "score": 1}', "line 3: an object has the key 'score' twice"),
        (
            '{"messages": [{"role": "user", "content": "Hi", "content": "Ho"}]}',
            "line 3: an object has the key 'content' twice",
        ),
    ],
)
def test_a_broken_line_is_named_and_nothing_is_kept(tmp_path: Path, home: Path, line: str, fact: str) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text(CHAT + CHAT + line + "\n", encoding="utf-8", errors="surrogateescape")
    refused(path, home, "import.broken_file", fact, "Nothing was imported.")


def test_content_nested_deeper_than_json_can_be_written_is_refused(tmp_path: Path, home: Path) -> None:
    deep = "[" * 900 + "]" * 900
    path = tmp_path / "results.jsonl"
    path.write_text(f'{{"prompt": [], "completion": "Yes?", "reward": 1, "metrics": {deep}}}\n')
    refused(path, home, "import.broken_file", "nested too deeply")


@pytest.mark.parametrize("cut", [0.3, 0.6, 0.99])
def test_a_truncated_document_is_named_by_its_line(tmp_path: Path, home: Path, cut: float) -> None:
    content = (DATA / "tau2.json").read_text()
    path = tmp_path / "results.json"
    path.write_text(content[: int(cut * len(content))])
    refused(path, home, "import.broken_file", "line ", "Nothing was imported.")


def test_half_of_a_character_in_a_document_is_named_by_its_line(tmp_path: Path, home: Path) -> None:
    path = tmp_path / "results.json"
    lines = (DATA / "tau2.json").read_text().splitlines()
    at = next(n for n, line in enumerate(lines) if '"duration": 60.0' in line)
    lines[at] = lines[at].replace("60.0", '"\\ud83d\\ude00 \\udc00"')
    path.write_text("\n".join(lines))
    refused(path, home, "import.broken_file", "a text holds half of a character (a lone surrogate)")
    path.write_text("\n".join(lines).replace(" \\udc00", ""))
    userrl.import_logs(path)


def test_a_deeply_nested_document_is_refused(tmp_path: Path, home: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text('{"info": ' + "[" * 100_000 + "]" * 100_000 + ', "tasks": [], "simulations": []}')
    refused(path, home, "import.broken_file", "line 1: it is nested too deeply")


def test_text_after_the_document_is_refused(tmp_path: Path, home: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text((DATA / "tau2.json").read_text() + "{}")
    refused(path, home, "import.broken_file", "text follows the end")


def test_an_attempt_that_occurs_twice_is_refused(tmp_path: Path, home: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    path.write_text((DATA / "nemo_gym.jsonl").read_text() + (DATA / "nemo_gym.jsonl").read_text())
    refused(path, home, "import.broken_file", "line 3: attempt 1 at task 0 occurs twice")


def test_a_file_without_conversations_is_refused(tmp_path: Path, home: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text('{"info": {}, "tasks": [], "simulations": []}')
    refused(path, home, "import.broken_file", "no conversation")


def test_what_is_not_a_file_is_refused_without_reading_it(tmp_path: Path, home: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    device = "a pipe or a device"
    for path, fact in ((tmp_path / "pipe", device), (Path("/dev/zero"), device), (tmp_path, "directory")):
        refused(path, home, "file.unreadable", fact, format="openai-chat")
    refused(tmp_path / "loop", home, "file.unreadable", "symbolic links")
    (tmp_path / "empty").touch()
    refused(tmp_path / "empty", home, "import.broken_file", "no conversation", format="openai-chat")


def test_a_link_to_a_file_is_the_file(tmp_path: Path) -> None:
    (tmp_path / "chats.jsonl").write_text(CHAT)
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "chats.jsonl")
    (run,) = userrl.import_logs(tmp_path / "link.jsonl")
    assert userrl.import_logs(tmp_path / "chats.jsonl")[0].run == run.run


def test_a_line_of_a_gigabyte_is_refused_in_little_memory(tmp_path: Path, home: Path) -> None:
    path = tmp_path / "chats.jsonl"
    with path.open("wb") as file:
        file.write(CHAT.encode() + b'{"messages": "')
        file.truncate(2**30)  # a sparse file: zeros without a line end
    script = (  # VmHWM, because ru_maxrss also counts the process that started this one
        "import re, sys, userrl\n"
        "from userrl_core.errors import ConfigError\n"
        "try: userrl.import_logs(sys.argv[1])\n"
        "except ConfigError as error: print(error)\n"
        "print(int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]) // 1024)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    sentence, peak = done.stdout.splitlines()
    assert "line 2: the line is larger than 64 MB" in sentence
    assert int(peak) < 500


def test_a_line_and_a_value_beyond_the_limit_are_not_read_whole(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MAX_BYTES", 2**20)
    path = tmp_path / "chats.jsonl"
    path.write_text(CHAT + '{"messages": "' + "x" * 2**21 + '"}\n')
    refused(path, home, "import.too_large", "line 2: the line is larger than 1 MB")
    path.write_text('{"info": {}, "tasks": [],\n "simulations": ["' + "x" * 2**22 + '"]}\n')
    refused(path, home, "import.too_large", "line 2: a value is larger than 1 MB")


def archive(path: Path, **members: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("header.json", '{"version": 2, "eval": {"task": "sums", "model": "m"}}')
        for name, text in members.items():
            file.writestr(f"samples/{name}.json", text)
    return path


def test_an_archive_that_inflates_too_far_is_refused(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "FREE_INFLATION", 2**20)
    sample = '{"id": 1, "epoch": 1, "messages": [], "events": [' + ",".join(['"' + "0" * 2**16 + '"'] * 200) + "]}"
    refused(archive(tmp_path / "bomb.eval", one=sample), home, "import.too_large", "inflates", "one.json")


@pytest.mark.parametrize(
    ("filling", "members"),
    [
        ('"events": [' + "{}," * 200_000 + "{}]", 1),
        ('"events": [' + "{}," * 60_000 + "{}]", 2),
        (",".join(f'"{number}":1' for number in range(120_000)), 1),
    ],
)
def test_millions_of_empty_values_are_not_read(tmp_path: Path, home: Path, filling: str, members: int) -> None:
    samples = {f"s{n}": f'{{"id": {n}, "epoch": 1, "messages": [], {filling}}}' for n in range(members)}
    refused(archive(tmp_path / "empty.eval", **samples), home, "import.too_large", "more than 100,000 values", "member")
    document = tmp_path / "empty.json"
    document.write_text(f'{{"eval": {{}}, {filling}, "stats": [{"{}," * 60_000 + "{}"}]}}')
    refused(document, home, "import.too_large", "more than 100,000 values", format="inspect")


def test_many_values_of_a_usual_length_are_read(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "FREE_VALUES", 10)
    events = ",".join(['{"event": "state", "n": 1}'] * 100_000)
    sample = f'{{"id": 1, "epoch": 1, "messages": [{{"role": "assistant", "content": "Hi"}}], "events": [{events}]}}'
    (run,) = userrl.import_logs(archive(tmp_path / "long.eval", one=sample))
    assert run.run


def test_a_value_of_an_archive_is_not_held_beyond_the_limit(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MAX_BYTES", 2**20)
    for name, filling in (("zeros", '"' + "0" * 2**23 + '"'), ("spaces", " " * 2**23)):
        sample = '{"id": 1, "epoch": 1, "messages": [], "events": [' + filling + "]}"
        refused(
            archive(tmp_path / f"{name}.eval", one=sample), home, "import.too_large", "is larger than 1 MB", "one.json"
        )


def test_a_damaged_archive_is_refused(tmp_path: Path, home: Path) -> None:
    content = bytearray((DATA / "inspect.eval").read_bytes())
    (tmp_path / "cut.eval").write_bytes(content[: len(content) // 2])
    refused(tmp_path / "cut.eval", home, "import.broken_file", "not a complete zip archive")
    with zipfile.ZipFile(DATA / "inspect.eval") as file:
        info = next(info for info in file.infolist() if info.filename.startswith("samples/"))
    for at in range(info.header_offset + 200, info.header_offset + 230):
        content[at] ^= 0xFF
    (tmp_path / "bad.eval").write_bytes(content)
    refused(tmp_path / "bad.eval", home, "import.broken_file", info.filename)


def test_a_member_of_an_unknown_compression_is_refused(tmp_path: Path, home: Path) -> None:
    path = archive(tmp_path / "odd.eval", one='{"id": 1, "epoch": 1, "messages": []}')
    content = path.read_bytes()
    at = content.rindex(b"PK\x01\x02")  # the last entry of the directory, with the method ten bytes into it
    path.write_bytes(content[: at + 10] + struct.pack("<H", 99) + content[at + 12 :])
    refused(path, home, "import.broken_file", "cannot be read")


def test_an_archive_that_is_no_log_is_refused(tmp_path: Path, home: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as file:
        file.writestr("a.txt", "text")
    refused(tmp_path / "other.zip", home, "import.broken_file", "no header.json")


def test_a_trace_whose_nodes_form_a_circle_is_refused(tmp_path: Path, home: Path) -> None:
    message = {"role": "user", "content": "Hi"}
    trace = {"nodes": [{"parent": 1, "message": message}, {"parent": 0, "message": message}]}
    (tmp_path / "traces.jsonl").write_text(json.dumps({"traces": [trace]}))
    refused(tmp_path / "traces.jsonl", home, "import.broken_file", "form a circle")


@pytest.mark.parametrize("file", sorted(path.name for path in DATA.iterdir()))
def test_no_mutation_of_a_file_ends_in_anything_but_a_sentence(tmp_path: Path, home: Path, file: str) -> None:
    """Values all over a document are replaced in turn by values of other kinds."""
    if file.endswith(".eval"):
        pytest.skip("an archive; inspect.json has the same content")
    text = (DATA / file).read_text()
    lines = text.splitlines() if file.endswith(".jsonl") else [text]
    rows = [json.loads(line) for line in lines]
    format = "tau2" if file.startswith("tau2") else "inspect" if file.startswith("inspect") else "verifiers"
    format = "nemo-gym" if file.startswith("nemo") else format
    from analysis.foreign.formats import conversations

    path = tmp_path / file
    found = places(rows[0])
    for holder, key in found[:: max(1, len(found) // 80)]:
        kept = holder[key]
        for other in (None, -1.5, "text", [7], {"role": 3}):
            holder[key] = other
            path.write_text("\n".join(map(json.dumps, rows)))
            with suppress(ConfigError):
                list(conversations(path, format))
        holder[key] = kept


def places(value: object) -> list[tuple[dict, str]]:  # type: ignore[type-arg]
    """Every key of every object inside a value, except those of events, which are not read."""
    if isinstance(value, list):
        return [place for item in value for place in places(item)]
    if not isinstance(value, dict):
        return []
    own = [(value, key) for key in value]
    return own + [place for key, item in value.items() if key not in ("events", "plan") for place in places(item)]


def test_null_in_place_of_the_tasks_of_tau2_is_no_task(tmp_path: Path) -> None:
    results = json.loads((DATA / "tau2.json").read_text())
    path = tmp_path / "results.json"
    path.write_text(json.dumps({**results, "tasks": None}))
    assert len(list(conversations(path, "tau2"))) == len(results["simulations"])


@pytest.mark.parametrize("form", ["messages", "parquet", "atif", "inspect"])
def test_an_import_without_times_and_tokens_is_exported_in_every_form(form: str, tmp_path: Path) -> None:
    (tmp_path / "chats.jsonl").write_text(CHAT)
    userrl.import_logs(tmp_path / "chats.jsonl", name="mine")
    words = ["warehouse", "export", str(tmp_path / "out"), "--format", form, "--run", "mine", "--phase", "all"]
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, "Wrote 1 conversations" in done.output) == (0, True), done.output
