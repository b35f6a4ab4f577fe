"""The loop of examples/loop.py is the product's: the same weights after every step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import curricula
from examples.loop import SETTINGS, cold_start, train
from tests.userrl_core.training.toys import RecordingSink
from userrl.worker.curriculum import RecipeCurriculum
from userrl_core.training.jobs import RlJob
from userrl_core.training.local.loop import train_rl

SMALL = {"cold_start.steps": 60, "model.hidden_size": 32, "model.head_dim": 8, "model.mlp": 64}


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cold_start(recipe(), tmp_path_factory.mktemp("cold"))


def recipe(**changes: Any) -> curricula.Recipe:
    return curricula.load("equalized-r2g", profile="laptop", overrides=SETTINGS | SMALL | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"credit.shaping": "r2g", "algorithm.minibatches": 3, "algorithm.inner_epochs": 2, "algorithm.micro_batch": 8},
    ],
    ids=["default", "r2g"],
)
def test_three_updates_of_the_example_equal_the_product_s_bit_for_bit(
    tmp_path: Path, start: Path, changes: dict[str, Any]
) -> None:
    settings = recipe(**changes)
    job = RlJob(
        model=settings.model, algorithm=settings.algorithm, credit=settings.credit, out_dir=tmp_path, seed=7, threads=1,
        init=start, last_step=3, checkpoint_every=1, keep_checkpoints=3,
        gym_config={"errand": settings.gym("errand").config},
    )  # fmt: skip
    sink = RecordingSink()
    train_rl(job, RecipeCurriculum(settings, (), 7), sink)
    for step, (model, played) in enumerate(train(settings, start, seed=7, steps=3), start=1):
        logged = [t for t in sink.begun if t.context.step == step]
        assert [[turn.token_ids for turn in t.turns] for t in played] == [
            [turn.token_ids for turn in t.turns] for t in logged
        ]
        saved = load_file(tmp_path / "checkpoints" / f"step-{step:06d}" / "model.safetensors")
        own = dict(model.named_parameters())
        assert all(torch.equal(own[name], tensor) for name, tensor in saved.items() if name in own)
        assert len(saved.keys() & own.keys()) == len(own)
    assert sum(values["policy/updates/count"] for _, _, values in sink.measured) >= 3
