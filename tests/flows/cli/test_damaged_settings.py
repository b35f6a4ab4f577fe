"""Damaged files of the working folder and outputs that cannot be written."""

from __future__ import annotations

import contextlib
import random
import re
import resource
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import userrl
from flows.cli.answers.rows import ENDINGS, Format, Rows, save
from flows.cli.doctor import examine
from flows.cli.invocation import deployments
from flows.cli.main import app
from flows.server.own_server import configured_url
from flows.server.password import listens, write_dotenv
from tests.makers import raises
from tests.warehouse.makers import play
from userrl.reports.document import Document, Text
from warehouse import TurnLog


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


@contextlib.contextmanager
def small_disk() -> Iterator[None]:
    """Limit files to 4 kB while the block runs: a larger one fails as on a full disk."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


@pytest.mark.parametrize(
    "words",
    [
        *(f"sql 'select range, md5(range::varchar) from range(900)' --out {{}}.{ending}" for ending in ENDINGS),
        *(
            f"warehouse export {{}}/x --phase all --format {form}"
            for form in ("messages", "parquet", "atif", "inspect")
        ),
        "tasks generate errand -n 90 --out {}.jsonl",
    ],
)
def test_a_file_that_does_not_fit_is_one_sentence_and_no_part_of_it_is_left(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))
    with TurnLog.open(tmp_path / "home" / "warehouse", "run") as log:
        play(log, [1.0], text=random.Random(1).randbytes(9000).hex())
    target = tmp_path / "target" / "rows"
    with small_disk():
        done = CliRunner().invoke(app, shlex.split(words.format(target)))
    assert done.exit_code == 1
    assert re.search(rf"{target}\S* cannot be written \(File too large\)", done.output)
    assert not [path for path in target.parent.rglob("*") if path.is_file()]


def test_a_page_and_a_plot_that_do_not_fit_leave_no_part(tmp_path: Path) -> None:
    document = Document("title", (Text("word " * 2000),))
    with small_disk():
        for name in ("page.html", "page.md"):
            with raises("file.not_writable", "File too large"):
                document.write(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_place_where_nothing_can_be_written_is_refused_before_an_evaluation(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for out in (tmp_path / "file" / "a.csv", tmp_path):
        with raises("file.not_writable"):
            userrl.evaluate("demonstrator", gyms=["errand"], tasks=1, out=str(out), progress=False)
    with raises("argument.malformed", "Name the .csv file"):
        userrl.evaluate("demonstrator", gyms=["errand"], tasks=1, out="plot.svg", progress=False)


@pytest.mark.parametrize("kind", ["file", "link to itself"])
def test_a_home_that_is_no_folder_is_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    if kind == "file":
        home.write_text("not a folder")
    else:
        home.symlink_to(home)
    monkeypatch.setenv("USERRL_HOME", str(home))
    for command in (["runs", "list"], ["report"], ["train", "equalized-r2g", "--dry-run"]):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 1
        assert ("is not a folder" if kind == "file" else "is not a folder but a loop of links") in done.output
