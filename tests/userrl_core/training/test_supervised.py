"""The supervised cold start: its loss, its checkpoints, and its exact resume."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from tests.makers import raises
from tests.userrl_core.training.toys import TINY, RecordingSink, chats, demonstrations, sft_job
from userrl_core.distill import write_chats
from userrl_core.training.config import ModelConfig, SftConfig
from userrl_core.training.local.logprobs import token_logprobs
from userrl_core.training.local.model import build_model
from userrl_core.training.local.sft import encode_chats, learning_rate, train_sft
from userrl_core.training.local.state import load_checkpoint
from userrl_core.training.local.text.chat import ChatFormat
from userrl_core.training.local.text.tokenizer import render, train_tokenizer


class Interrupted(Exception):
    pass


def interrupt_after(step: int) -> object:
    def progress(number: int, total: int, metrics: Mapping[str, float]) -> None:
        if number == step:
            raise Interrupted

    return progress


def test_the_loss_is_on_the_agents_tokens_alone() -> None:
    demonstrated = chats(10)
    tokenizer = train_tokenizer(render(demonstrated), TINY.vocab_size)
    model = build_model(TINY, tokenizer, 0)
    example = encode_chats(ChatFormat(tokenizer), demonstrated[:1], 256)[0]
    logprobs, _ = token_logprobs(model, [example.ids], [example.turns])
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([example.ids])).logits[0].log_softmax(-1)
    expected = [logits[i - 1, example.ids[i]] for i, turn in enumerate(example.turns) if turn >= 0]
    torch.testing.assert_close(logprobs, torch.stack(expected), atol=1e-5, rtol=1e-5)


def test_a_cold_start_lowers_the_loss_and_writes_a_loadable_model(tmp_path: Path) -> None:
    sink = RecordingSink()
    result = train_sft(sft_job(tmp_path), sink)
    losses = [values["sft/loss/mean"] for _, _, values in sink.measured]
    assert len(losses) == result.step == 6
    assert losses[-1] < losses[0] - 0.5
    model, tokenizer = load_checkpoint(result.checkpoint, TINY, "cpu")
    assert model.config.model_type == "qwen3"
    assert ChatFormat(tokenizer).end_id == tokenizer.eos_token_id
    assert [record.sha256 for record in sink.checkpoints] == [result.sha256]


def test_an_interrupted_cold_start_ends_with_the_same_weights(tmp_path: Path) -> None:
    uninterrupted = train_sft(sft_job(tmp_path / "uninterrupted"))
    job = sft_job(tmp_path / "interrupted", checkpoint_every=2)
    for step in (2, 3, 5):
        with pytest.raises(Interrupted):
            train_sft(job, progress=interrupt_after(step))  # type: ignore[arg-type]
    sink = RecordingSink()
    resumed = train_sft(job, sink)
    assert sink.events[0] == ("rewind", {"stage": "sft", "step": 4})
    assert [step for _, step, _ in sink.measured] == [5, 6]
    assert resumed.sha256 == uninterrupted.sha256


def test_a_cold_start_without_a_checkpoint_voids_the_steps_that_it_logged(tmp_path: Path) -> None:
    job, sink = sft_job(tmp_path), RecordingSink()
    for _ in range(2):
        with pytest.raises(Interrupted):
            train_sft(job, sink, interrupt_after(1))  # type: ignore[arg-type]
    assert sink.events == [("rewind", {"stage": "sft", "step": 0})]
    train_sft(job, sink)
    shutil.rmtree(job.out_dir)
    with pytest.raises(Interrupted):
        train_sft(job, sink, interrupt_after(1))  # type: ignore[arg-type]
    assert sink.events == [("rewind", {"stage": "sft", "step": 0})] * 3


def test_a_finished_cold_start_is_not_trained_again(tmp_path: Path) -> None:
    job = sft_job(tmp_path)
    first, sink = train_sft(job), RecordingSink()
    assert train_sft(job, sink).sha256 == first.sha256
    assert (sink.measured, sink.events) == ([], [])
    assert [(record.id, record.sha256) for record in sink.checkpoints] == [(first.id, first.sha256)]


class Killed(BaseException):
    pass


def test_a_checkpoint_is_logged_before_older_ones_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(shutil, "rmtree", lambda path, **_: killed() if path.name.endswith(".deleted") else None)
    sink = RecordingSink()
    with pytest.raises(Killed):
        train_sft(sft_job(tmp_path, checkpoint_every=1, keep_checkpoints=1), sink)
    assert [record.step for record in sink.checkpoints] == [1, 2]


def test_without_a_cold_start_the_untrained_model_is_written(tmp_path: Path) -> None:
    result = train_sft(sft_job(tmp_path, sft=SftConfig(enabled=False)))
    again = train_sft(sft_job(tmp_path / "again", sft=SftConfig(enabled=False)))
    trained = train_sft(sft_job(tmp_path / "trained"))
    assert result.step == 0
    assert result.sha256 == again.sha256 != trained.sha256


def test_a_pretrained_model_without_a_cold_start_needs_no_demonstrations(tmp_path: Path) -> None:
    first = train_sft(sft_job(tmp_path))
    off = SftConfig(enabled=False)
    second = train_sft(sft_job(tmp_path / "b", sft=off, chats=None, model=ModelConfig(path=str(first.checkpoint))))
    assert second.sha256 == first.sha256
    with pytest.raises(ValueError, match="both need chats"):
        sft_job(tmp_path / "c", sft=off, chats=None)


def test_another_seed_starts_from_other_weights(tmp_path: Path) -> None:
    off = SftConfig(enabled=False)
    first = train_sft(sft_job(tmp_path, sft=off))
    assert train_sft(sft_job(tmp_path / "b", sft=off, seed=1)).sha256 != first.sha256


def test_a_model_from_a_folder_keeps_its_own_tokenizer(tmp_path: Path) -> None:
    first = train_sft(sft_job(tmp_path))
    model = ModelConfig(path=str(first.checkpoint), prompt_style="brief")
    second = train_sft(sft_job(tmp_path / "b", model=model))
    a, b = (load_checkpoint(r.checkpoint, model, "cpu")[1] for r in (first, second))
    assert a.get_vocab() == b.get_vocab()


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("cosine", [0.5, 1.0, 1.0, (2 + 2**0.5) / 4, 0.5, (2 - 2**0.5) / 4, 0.0]),
        ("linear", [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]),
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_the_rate_rises_and_then_follows_its_schedule(schedule: str, expected: list[float]) -> None:
    config = SftConfig(lr=1.0, schedule=schedule, warmup=10)  # type: ignore[arg-type]
    rates = [learning_rate(config, number, 110) for number in (5, 10, 11, 36, 61, 86, 111)]
    assert rates == pytest.approx(expected)
    assert learning_rate(SftConfig(lr=1.0, warmup=0.5), 5, 20) == pytest.approx(0.5)


def test_epochs_become_steps(tmp_path: Path) -> None:
    assert train_sft(sft_job(tmp_path, sft=SftConfig(epochs=0.5, batch=10))).step == 2


def test_demonstrations_without_a_reply_within_the_cutoff_are_refused(tmp_path: Path) -> None:
    with raises("demonstrations.too_few", "cold_start.cutoff"):
        train_sft(sft_job(tmp_path, sft=SftConfig(cutoff=3)))


def test_missing_demonstrations_and_checkpoints_are_named(tmp_path: Path) -> None:
    with raises("chats.invalid"):
        train_sft(sft_job(tmp_path, chats=tmp_path / "nothing.jsonl"))
    with raises("checkpoint.missing"):
        train_sft(sft_job(tmp_path, init=tmp_path / "nothing"))


def test_demonstrations_are_written_atomically(tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    write_chats(path, demonstrations(2))
    before = path.read_text()
    with pytest.raises(AttributeError):
        write_chats(path, [*demonstrations(1), None])  # type: ignore[list-item]
    assert path.read_text() == before
