"""A tenth of what ``python -m tests.userrl_core.served.faulty`` plays, at each of its shares."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server_faults import FAULTS
from tests.userrl_core.served.faulty import play


@pytest.mark.slow
@pytest.mark.parametrize("share", [pytest.param(share, marks=pytest.mark.full) for share in (0.2, 0.5)] + [0.3])
def test_no_fault_of_a_server_becomes_a_reward_and_every_request_is_in_the_ledger(tmp_path: Path, share: float) -> None:
    outcome = play(40, share, tmp_path, timeout=60.0)
    assert outcome.wrong == []
    assert outcome.requests * share / 2 < outcome.injected.total() < outcome.requests * share * 2
    assert 0 < outcome.scored < outcome.conversations
    assert outcome.estimated > 0
    assert len(FAULTS) == 42
