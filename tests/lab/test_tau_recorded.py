"""The recorded conversations of tau-bench, judged again."""

from __future__ import annotations

import pytest

from analysis.measure.checkpoints import pass_hat
from lab.benchmarks.tau_recorded import RULES, Recorded, attempts, conversations
from tests.published import published


@pytest.fixture(scope="module")
def scored() -> list[Recorded]:
    return list(conversations(published("tau-bench")))


@pytest.mark.parametrize(
    ("rule", "passed", "estimates"),
    [
        ("recorded", 84, [0.42, 0.273333, 0.22, 0.2]),
        ("database and outputs (tau-bench)", 84, [0.42, 0.273333, 0.22, 0.2]),
        ("writes (TARL)", 85, [0.425, 0.29, 0.24, 0.22]),
        ("writes and outputs", 83, [0.415, 0.273333, 0.22, 0.2]),
    ],
)
def test_pass_hat_k_of_the_recorded_conversations_under_each_verdict(
    rule: str, passed: int, estimates: list[float], scored: list[Recorded]
):
    table = attempts(scored, RULES[rule])
    assert sum(map(sum, table)) == passed
    assert [pass_hat(table, k).estimate for k in range(1, 5)] == pytest.approx(estimates, abs=1e-6)


def test_every_disagreement_with_a_recorded_reward_is_known(scored: list[Recorded]):
    """data/tau/README.md explains each of them."""
    differing = {(o.task, o.trial) for o in scored if RULES["writes (TARL)"](o) != o.reward}
    assert differing == {(5, 1), (44, 1), (44, 3)}
    assert all(RULES["database and outputs (tau-bench)"](one) == one.reward for one in scored)
    assert {(o.task, o.trial) for o in scored if not o.ended} == {(2, 1), (9, 2), (9, 3), (33, 0), (46, 3)}
    assert {(o.task, o.trial) for o in scored if not o.ended and o.verdict.writes} == {(2, 1), (46, 3)}
