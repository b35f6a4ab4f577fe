"""The bound beside which the benchmark of rollouts prints its efficiency."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lab.benchmarks.rollout import list_scheduled


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=30), st.integers(1, 8))
def test_list_scheduling_lies_between_the_ideal_and_grahams_bound(jobs: list[float], slots: int) -> None:
    ends = list_scheduled(jobs, slots)
    ideal = max(sum(jobs) / slots, max(jobs))
    assert ideal - 1e-9 <= ends <= (2 - 1 / slots) * ideal + 1e-9
