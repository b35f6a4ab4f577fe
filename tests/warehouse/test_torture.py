from __future__ import annotations

from pathlib import Path

import pytest

from tests.warehouse.torture import torture


def test_fifteen_kills_lose_nothing_double_nothing_and_fool_no_reader(tmp_path: Path) -> None:
    outcome = torture(tmp_path, 15)
    assert outcome.sound, outcome
    assert outcome.kills == 15
    assert outcome.acknowledged > 15
    assert outcome.reader_queries > 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_kills_lose_nothing_double_nothing_and_fool_no_reader(tmp_path: Path) -> None:
    outcome = torture(tmp_path, 100, seed=1)
    assert outcome.sound, outcome
