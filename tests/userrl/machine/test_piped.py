"""A program of ours behind a pipe: what its caller learns of its end."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from userrl.machine.piped import PipedProcess

DIES = """import os, sys
sys.stderr.write(f"read {sys.stdin.readline().strip()}\\n")
sys.stderr.flush()
os.write(2, b"caf\\xe9 closed\\n")
os.write(1, b'{"text": "half an ans')
os._exit(3)
"""


class Line(BaseModel):
    text: str


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_a_program_that_dies_within_its_answer_gives_none_and_its_last_words(
    locale: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dies.py").write_text(DIES)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("LC_ALL", locale)
    monkeypatch.setenv("PYTHONCOERCECLOCALE", "0")
    monkeypatch.setenv("PYTHONUTF8", "0")
    process = PipedProcess("dies")
    try:
        assert process.ask(Line(text="日本")) == ""
        assert process.ended() == (3, ['read {"text":"日本"}', "caf\ufffd closed"])
    finally:
        process.close()
