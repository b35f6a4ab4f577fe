"""JSON lines of a file that is still written."""

from pathlib import Path

from userrl_core.json_files import GrowingLines, append_line, read_json


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


def test_no_content_of_a_file_is_more_than_its_reader_can_bear(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    for damaged in (b"[" * 100_000, b'{"a": 1' + b"0" * 5000 + b"}", b'{"a": "\xff"}', b"\x00"):
        path.write_bytes(damaged + b'\n{"step": 2}\n')
        assert list(GrowingLines(path)) == [{"step": 2}]
        path.write_bytes(damaged)
        assert read_json(path) is None
