"""A report's file that cannot be read is refused in a sentence, whatever is in it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.makers import raises
from userrl.reports.run_report import read_report


@pytest.mark.parametrize("contents", [b"", b"null", b"[1]", b'{"a": 1}', b"\xff["])
def test_a_damaged_report_is_named_with_what_writes_it_anew(tmp_path: Path, contents: bytes) -> None:
    (tmp_path / "report.json").write_bytes(contents)
    run: Any = SimpleNamespace(folder=tmp_path, id="r")
    with raises("file.damaged", f"{tmp_path}/report.json cannot be read. Start the run again, which writes it anew."):
        read_report(run)
