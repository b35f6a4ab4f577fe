"""The horizon at which a frozen checkpoint is audited."""

from __future__ import annotations

import pytest

from curricula import load
from userrl.evaluation.frozen import Frozen


@pytest.mark.parametrize(("stage", "horizon"), [("sft", 6), ("rl-1", 6), ("rl-2-short", 6), ("rl-4-longer", 16)])
def test_a_checkpoint_has_the_horizon_of_its_own_stage_and_a_cold_start_that_before_the_branches(
    stage: str, horizon: int
) -> None:
    recipe = load("horizon-fork", profile="laptop")
    frozen = Frozen("r", recipe, 0, "r", "x", f"/runs/r/stages/{stage}/checkpoints/step-000107")
    assert frozen.horizon == horizon
