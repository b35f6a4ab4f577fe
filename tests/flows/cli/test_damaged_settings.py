"""Damaged files of the working folder and outputs that cannot be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.cli.answers.rows import Format, Rows, save
from flows.cli.doctor import examine
from flows.cli.invocation import deployments
from flows.server.own_server import configured_url
from flows.server.password import listens, write_dotenv
from tests.makers import raises


@pytest.mark.parametrize("text", ["[api\nurl = 1", "\udcff", "api = 3"])
def test_a_damaged_prefect_toml_is_a_sentence(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))
    Path("prefect.toml").write_text(text, errors="surrogateescape")
    if text.startswith("api"):
        assert configured_url() is None
        return
    with raises("file.unreadable", "is not readable TOML"):
        configured_url()
    (server, *_) = examine()
    assert (server.what, server.ok) == ("server", False)


@pytest.mark.parametrize("text", ["deployments: [1]", "deployments: {a: 1}", "deployments: [{name: x}]", "[", "a: 1"])
def test_a_damaged_prefect_yaml_is_a_sentence(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prefect.yaml").write_text(text)
    with raises("file.unreadable"):
        deployments()


def test_other_lines_of_an_env_file_keep_each_byte(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    others = b"A=1\r\nB=\xff\x0c2\n"
    file.write_bytes(others)
    write_dotenv("userrl:x", "http://127.0.0.1:1/api", tmp_path, file)
    write_dotenv("userrl:y", "http://127.0.0.1:1/api", tmp_path, file)
    assert file.read_bytes().startswith(others)
    assert (file.read_bytes().count(b"userrl:x"), file.read_bytes().count(b"userrl:y")) == (0, 2)
    assert not listens("http://127.0.0.1:99999/api")


@pytest.mark.parametrize("format", [Format.PARQUET, Format.CSV])
def test_rows_arrive_whole_or_not_at_all(format: Format, tmp_path: Path) -> None:
    rows = Rows(["a"], [[1]], ["INTEGER"])
    (tmp_path / "file").write_text("")
    with raises("file.not_writable"):
        save(rows, format, tmp_path / "file" / "rows")
    save(rows, format, tmp_path / "new" / "rows")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["rows"]
