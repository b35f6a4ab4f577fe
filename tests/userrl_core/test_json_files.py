"""JSON lines of a file that is still written."""

import os
from pathlib import Path

import pytest

from userrl_core.json_files import GrowingLines, append_line, read_json, write_json


def test_a_torn_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    lines = GrowingLines(path)
    assert list(lines) == []
    path.write_text('{"step": 1}\n{"st')
    assert list(lines) == [{"step": 1}]
    with path.open("a") as file:
        file.write('ep": 2}\n')
    assert list(lines) == [{"step": 2}]


def test_what_a_killed_writer_tore_is_passed_over_and_what_was_there_before_too(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"step": 1}\n')
    lines = GrowingLines(path, from_end=True)
    with path.open("a") as file:
        file.write('{"st\n{"step": 2}\n[3]\n')
    assert list(lines) == [{"step": 2}]


def test_a_line_is_appended_apart_from_what_a_full_disk_left_of_one(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    append_line(path, {"step": 1})
    with path.open("a") as file:
        file.write('{"step": 2, "cp')
    append_line(path, {"step": 2})
    append_line(path, {"step": 3})
    assert list(GrowingLines(path)) == [{"step": 1}, {"step": 2}, {"step": 3}]
    assert path.read_text().splitlines()[1] == '{"step": 2, "cp'


def test_the_folder_of_a_written_object_is_synced_after_the_file_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced = tmp_path / "folder" / "object.json", list[tuple[int, bool]]()
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append((os.fstat(descriptor).st_ino, path.exists())))
    write_json(path, {"step": 1})
    assert synced == [(path.stat().st_ino, False), (path.parent.stat().st_ino, True)]


def test_no_content_of_a_file_is_more_than_its_reader_can_bear(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    for damaged in (b"[" * 100_000, b'{"a": 1' + b"0" * 5000 + b"}", b'{"a": "\xff"}', b"\x00"):
        path.write_bytes(damaged + b'\n{"step": 2}\n')
        assert list(GrowingLines(path)) == [{"step": 2}]
        path.write_bytes(damaged)
        assert read_json(path) is None
