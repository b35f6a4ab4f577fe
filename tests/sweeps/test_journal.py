"""The journal of a study: damage is named with its line, and a line that a kill cut off is as if it was never written."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from sweeps.journal import open_journal
from sweeps.study import open_study
from tests.makers import raises
from tests.sweeps.launching import WritingLauncher, make_space, make_sweep, peak_at_08
from userrl_core.errors import ConfigError


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The journal of a sweep that ended."""
    folder = tmp_path_factory.mktemp("sweep")
    sweep = make_sweep(make_space(), folder, WritingLauncher(folder / "warehouse", peak_at_08, steps=1))
    sweep.run()
    return (folder / "sweeps/gammas/journal.log").read_bytes()


def contents(folder: Path, journal: bytes) -> str:
    """What a study holds, as text."""
    (folder / "journal.log").write_bytes(journal)
    study = open_study(make_space(), folder, queue=False)
    trials = [(t.state.name, t.params, t.values, t.user_attrs, t.system_attrs) for t in study.trials]
    return json.dumps([trials, study.user_attrs], default=str)


def test_a_flipped_bit_anywhere_is_a_sentence_or_harmless(tmp_path: Path, whole: bytes) -> None:
    before, rng, named = contents(tmp_path, whole), random.Random(0), 0
    for _ in range(200):
        damaged, at = bytearray(whole), rng.randrange(len(whole))
        damaged[at] ^= 1 << rng.randrange(8)
        error = refusal(tmp_path, bytes(damaged), before)
        if error is not None:
            assert error.code == "sweep.damaged_journal"
            assert f"Line {whole.count(NEWLINE, 0, at) + 1} of " in str(error)
            named += 1
    assert named > 180


@pytest.mark.parametrize(
    ("old", "new"), [(b'"overrides"', b'"overridgs"'), (b'"op_code":4', b'"oq_code":4'), (b'"seed"', b'"seee"')]
)
def test_damage_without_a_checksum_is_a_sentence_too(tmp_path: Path, whole: bytes, old: bytes, new: bytes) -> None:
    journal = re.sub(rb',"crc":"[0-9a-f]{8}"', b"", whole)
    assert contents(tmp_path, journal) == contents(tmp_path, whole)
    with raises("sweep.damaged_journal", "--fresh"):
        contents(tmp_path, journal.replace(old, new))


NEWLINE = b"\n"


def refusal(folder: Path, journal: bytes, before: str) -> ConfigError | None:
    """The sentence about a damaged journal; without one it holds what it held before."""
    try:
        assert contents(folder, journal) == before
    except ConfigError as error:
        return error
    return None


@pytest.mark.parametrize(
    "line", [b"{}", b"[]", b"0", b"\xff", b'{"op_code":4,"worker_id":"x"}', b"\0" * 40, b"{" * 5000]
)
def test_a_line_that_is_no_operation_is_named(tmp_path: Path, whole: bytes, line: bytes) -> None:
    lines = whole.splitlines()
    with raises("sweep.damaged_journal", "Line 7 of ", "--fresh"):
        contents(tmp_path, b"\n".join([*lines[:6], line, *lines[7:], b""]))


@pytest.mark.parametrize("kept", [1, 30, -2])
def test_a_line_that_a_kill_cut_off_was_never_written(tmp_path: Path, whole: bytes, kept: int) -> None:
    lines = whole.splitlines(keepends=True)
    shorter = b"".join(lines[:-1])
    before = contents(tmp_path, shorter)
    assert contents(tmp_path, shorter + lines[-1][:kept]) == before
    assert (tmp_path / "journal.log").read_bytes() == shorter
    study = open_study(make_space(), tmp_path)
    study.set_user_attr("more", 1)
    assert open_study(make_space(), tmp_path, queue=False).user_attrs["more"] == 1


@pytest.mark.parametrize("end", [b"", b"\x0b", b"\n"])
def test_a_whole_last_line_counts_whatever_became_of_its_end(tmp_path: Path, whole: bytes, end: bytes) -> None:
    assert contents(tmp_path, whole[:-1] + end) == contents(tmp_path, whole)
    assert (tmp_path / "journal.log").read_bytes() == whole


def test_a_line_that_is_cut_off_while_a_study_is_open_spoils_no_later_one(tmp_path: Path) -> None:
    study = open_study(make_space(), tmp_path)
    with (tmp_path / "journal.log").open("ab") as file:
        file.write(b'{"op_code":2,"wor')
    study.set_user_attr("more", 1)
    assert open_study(make_space(), tmp_path, queue=False).user_attrs["more"] == 1


def test_the_journal_is_still_one_of_optuna_in_both_directions(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "journal.log"
    path.write_bytes(whole)
    plain = JournalStorage(JournalFileBackend(str(path)))
    theirs = optuna.load_study(study_name="gammas", storage=plain)
    theirs.set_user_attr("note", "from another program")
    ours = optuna.load_study(study_name="gammas", storage=open_journal(path))
    assert ours.user_attrs["note"] == "from another program"
    assert [t.values for t in ours.trials] == [t.values for t in theirs.trials]
    assert b'"crc"' not in path.read_bytes().splitlines()[-1]


def test_looking_at_a_study_writes_nothing(tmp_path: Path, whole: bytes) -> None:
    contents(tmp_path, whole)
    assert (tmp_path / "journal.log").read_bytes() == whole
