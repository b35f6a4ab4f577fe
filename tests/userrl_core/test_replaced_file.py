"""Files that are replaced whole."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from userrl_core.replaced_file import replacing


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
    reader = threading.Thread(target=lambda: contents.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    with replacing(tmp_path / "pipe") as pipe:
        pipe.write(b"rows")
    reader.join()
    assert contents == [b"rows"]
    assert (tmp_path / "pipe").is_fifo()
