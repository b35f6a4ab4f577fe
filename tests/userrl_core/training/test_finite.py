"""A training run stops at the first step whose loss or weights are not finite."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.makers import raises
from tests.userrl_core.training.toys import TINY, ListCurriculum, RecordingSink, chats, rl_job, sft_job, travel
from userrl_core.training.config import AlgorithmConfig, SftConfig
from userrl_core.training.finite import check_losses
from userrl_core.training.local.loop import train_rl
from userrl_core.training.local.model import build_model
from userrl_core.training.local.optimizer import adamw
from userrl_core.training.local.sft import train_sft
from userrl_core.training.local.state import TrainState
from userrl_core.training.local.text.tokenizer import render, train_tokenizer


def test_a_cold_start_stops_at_its_first_step_without_a_finite_loss(tmp_path: Path) -> None:
    sink = RecordingSink()
    job = sft_job(tmp_path, model=TINY.model_copy(update={"initializer_range": 1e38}))
    with raises("training.diverged", "step 1"):
        train_sft(job, sink)
    assert sink.measured == []
    assert sink.checkpoints == []


def test_reinforcement_learning_stops_at_the_step_whose_loss_is_not_finite(tmp_path: Path) -> None:
    start = train_sft(sft_job(tmp_path, sft=SftConfig(steps=60, lr=5e-3, batch=16)))
    algorithm = AlgorithmConfig(group=4, batch=4, entropy_coef=1e39, max_tokens=24, max_response_tokens=160)
    sink = RecordingSink()
    with raises("training.diverged", "step 1"):
        train_rl(rl_job(tmp_path, start.checkpoint, algorithm=algorithm), ListCurriculum(travel(count=10)), sink)
    assert sink.checkpoints == []


def test_weights_that_an_update_left_infinite_stop_the_step_too() -> None:
    tokenizer = train_tokenizer(render(chats(20)), TINY.vocab_size)
    model = build_model(TINY, tokenizer, 0)
    state = TrainState(model, tokenizer, adamw(model, 1e-3, (0.9, 0.95), 0.0), torch.Generator(), kind="rl")
    state.check_finite({"policy/loss/mean": 0.1, "policy/grad_norm/mean": float("inf")}, "rl-1", 3)
    with torch.no_grad():
        model.model.norm.weight[0] = float("inf")
    with raises("training.diverged", "step 3", "model.norm.weight"):
        state.check_finite({"policy/loss/mean": 0.1}, "rl-1", 3)


@pytest.mark.parametrize("loss", [None, float("nan"), float("-inf")])
def test_a_loss_that_verl_could_not_write_down_is_not_finite(loss: float | None) -> None:
    check_losses({"actor/pg_loss": 0.5}, "rl-2", 7)
    with raises("training.diverged", "step 7"):
        check_losses({"actor/pg_loss": loss}, "rl-2", 7)
