"""The arithmetic of a step's time, beside figures that were computed apart from it."""

from __future__ import annotations

import pytest

import curricula
from userrl.run.estimate import step_rows
from userrl_core.training.config import AlgorithmConfig, Cluster
from userrl_core.training.shapes import SHAPES
from userrl_core.training.verl.machine.step_time import ServedCopies, StepTime, gpus_per_copy, step_time

EIGHT = "Qwen/Qwen3-8B"


def took(gpu: str, gpus: int, share: float = 0.5, users: int = 0) -> StepTime:
    """128 x 8 conversations; the user's model cut over all of its GPUs."""
    cluster = Cluster(gpus=gpus, gpu=gpu, engine_memory=share)
    user = ServedCopies(SHAPES["Qwen3-32B"], users, users, 0.9 * cluster.memory_gb) if users else None
    found = step_time(cluster, AlgorithmConfig(minibatches=8), EIGHT, user=user)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("found", "train", "rollout", "user", "step"),
    [
        (took("H100", 8), 101, 78, None, 194),
        (took("H100", 8, share=0.78), 101, 63, None, 179),
        (took("H100", 4, users=4), 203, 156, 255, 473),
        (took("H200", 4, users=4), 203, 93, 226, 444),
    ],
)
def test_a_step_of_the_papers_batch_takes_what_was_computed_by_hand(
    found: StepTime, train: float, rollout: float, user: float | None, step: float
) -> None:
    assert found.train == pytest.approx(train, rel=0.05)
    assert found.rollout == pytest.approx(rollout, rel=0.05)
    assert found.user == (None if user is None else pytest.approx(user, rel=0.05))
    assert found.step == pytest.approx(step, rel=0.05)
    assert found.longest == ("user" if user else "train")


def test_a_users_model_is_cut_over_as_few_gpus_as_leave_room_for_its_cache() -> None:
    shape = SHAPES["Qwen3-32B"]
    assert [gpus_per_copy(shape, gpus, 141.0) for gpus in (1, 3, 4)] == [1, 1, 1]
    assert [gpus_per_copy(shape, gpus, 80.0) for gpus in (1, 2, 3, 4, 6)] == [1, 2, 2, 2, 2]
    assert gpus_per_copy(SHAPES["Qwen3-8B"], 4, 80.0) == 1


def test_a_dry_run_says_what_is_slow_and_that_it_is_arithmetic() -> None:
    def said(profile: str = "qwen3-8b", **hardware: object) -> dict[str, str]:
        changes = {f"hardware.{key}": value for key, value in hardware.items()}
        return dict(step_rows(curricula.load("equalized-r2g", profile=profile, overrides=changes, check=False)))

    shared = said(gpus=4, user_gpus="4,5,6,7")
    assert shared["estimate of one step"].endswith("user 255 s at the same time, sync 15 s; the longest part is user")
    assert "none of it was measured" in shared["assumptions"]
    assert "user served elsewhere, not included" in said(user_url="http://host/v1")["estimate of one step"]
    assert "GPU 'L40' is not known" in said(gpu="L40", gpu_memory=48)["estimate of one step"]
    assert said("laptop") == {}
