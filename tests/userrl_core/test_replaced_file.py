"""Files that are replaced whole."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from userrl_core.replaced_file import remove_folder, replacing


def test_a_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    with replacing(tmp_path / "link") as draft:
        draft.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    contents: list[bytes] = []
    reader = threading.Thread(target=lambda: contents.append((tmp_path / "pipe").read_bytes()), daemon=True)
    reader.start()
    with replacing(tmp_path / "pipe") as pipe:
        pipe.write(b"rows")
    reader.join(60)
    assert contents == [b"rows"]
    assert (tmp_path / "pipe").is_fifo()


def test_a_pipe_that_has_a_number_alone_is_written_to() -> None:
    to_read, to_write = os.pipe()
    with replacing(Path(f"/dev/fd/{to_write}")) as pipe:
        pipe.write(b"rows")
    os.close(to_write)
    with os.fdopen(to_read, "rb") as read:
        assert read.read() == b"rows"


def test_a_file_that_others_may_not_read_stays_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0o600)
    with replacing(tmp_path / "file") as draft:
        draft.write(b"new")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_an_error_of_the_folder_names_the_file_and_not_its_draft() -> None:
    with pytest.raises(OSError, match="its folder") as caught, replacing(Path("/proc/self/comm")):
        pass
    assert caught.value.filename == f"/proc/{os.getpid()}/comm"


def test_a_linked_folder_is_removed_by_its_link_alone(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk")
    remove_folder(tmp_path / "link")
    assert [path.name for path in tmp_path.iterdir()] == ["disk"]


def test_a_folder_is_removed_with_what_a_killed_removal_left_beside_it(tmp_path: Path) -> None:
    for folder in ("new/below", ".new.deleted/below", ".old.deleted/below"):
        (tmp_path / folder).mkdir(parents=True)
    remove_folder(tmp_path / "new")
    remove_folder(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
