"""The arithmetic of a step's time, beside figures that were computed apart from it."""

from __future__ import annotations

import pytest

from userrl_core.training.config import AlgorithmConfig, Cluster
from userrl_core.training.shapes import SHAPES
from userrl_core.training.verl.machine.step_time import ServedCopies, gpus_per_copy, step_time

EIGHT = "Qwen/Qwen3-8B"


@pytest.mark.parametrize(
    ("gpu", "gpus", "share", "users", "seconds"),
    [("H100", 8, 0.5, 0, 194), ("H100", 8, 0.78, 0, 179), ("H100", 4, 0.5, 4, 473), ("H200", 4, 0.5, 4, 444)],
)
def test_a_step_of_the_papers_batch_takes_what_was_computed_by_hand(
    gpu: str, gpus: int, share: float, users: int, seconds: float
) -> None:
    """128 x 8 conversations; the user's model cut over all of its GPUs."""
    cluster = Cluster(gpus=gpus, gpu=gpu, engine_memory=share)
    user = ServedCopies(SHAPES["Qwen3-32B"], users, users, 0.9 * cluster.memory_gb) if users else None
    assert step_time(cluster, AlgorithmConfig(minibatches=8), EIGHT, user=user) == pytest.approx(seconds, rel=0.05)
    assert step_time(Cluster(gpu="L40", gpu_memory=48), AlgorithmConfig(), EIGHT) is None


def test_a_users_model_is_cut_over_as_few_gpus_as_leave_room_for_its_cache() -> None:
    shape = SHAPES["Qwen3-32B"]
    assert [gpus_per_copy(shape, gpus, 141.0) for gpus in (1, 3, 4)] == [1, 1, 1]
    assert [gpus_per_copy(shape, gpus, 80.0) for gpus in (1, 2, 3, 4, 6)] == [1, 2, 2, 2, 2]
    assert gpus_per_copy(SHAPES["Qwen3-8B"], 4, 80.0) == 1
