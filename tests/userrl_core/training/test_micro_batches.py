"""Micro-batches of a large model, computed at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from userrl_core.training.local import micro_batches
from userrl_core.training.local.logprobs import token_logprobs
from userrl_core.training.local.micro_batches import add_gradients

PARTS = [[[1, 2, 3, 4, 5]], [[6, 7, 8], [9, 1, 2]], [[3, 3, 3, 3]], [[5, 4, 3, 2, 1, 2]], [[2, 8]]]
"""Five micro-batches: with two threads the last one is alone."""


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    threads = torch.get_num_threads()
    monkeypatch.setattr(micro_batches, "LARGE_VOCABULARY", 4)
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


def model_of(dtype: torch.dtype = torch.bfloat16) -> LlamaForCausalLM:
    torch.manual_seed(0)
    shape = {"vocab_size": 12, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    config = LlamaConfig(**shape, num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True)
    return LlamaForCausalLM(config).to(dtype)


def gradients(model: LlamaForCausalLM, names: set[str]) -> tuple[list[Tensor], list[int]]:
    def loss_of(part: list[list[int]]) -> tuple[Tensor, int]:
        names.add(threading.current_thread().name)
        logprobs, _ = token_logprobs(model, part, [[-1] + [0] * (len(row) - 1) for row in part])
        return -logprobs.sum() / 16, len(part)

    model.zero_grad()
    rows = add_gradients(model, PARTS, loss_of)
    return [p.grad.clone() for p in model.parameters() if p.grad is not None], rows


def test_two_threads_give_the_bits_of_one_and_each_has_a_micro_batch_of_its_own() -> None:
    model, side_by_side, alone = model_of(), set[str](), set[str]()
    added, rows = gradients(model, side_by_side)
    assert (rows, torch.get_num_threads()) == ([1, 2, 1, 1, 1], 2)
    torch.set_num_threads(1)
    expected, _ = gradients(model, alone)
    assert all(torch.equal(a, b) for a, b in zip(added, expected, strict=True))
    assert alone == {threading.current_thread().name}
    assert not alone & side_by_side


@pytest.mark.parametrize(("dtype", "vocabulary"), [(torch.bfloat16, 12), (torch.float32, 4)])
def test_a_small_vocabulary_and_float32_keep_their_order_of_operations(
    dtype: torch.dtype, vocabulary: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(micro_batches, "LARGE_VOCABULARY", vocabulary)
    names = set[str]()
    gradients(model_of(dtype), names)
    assert names == {threading.current_thread().name}


def test_frozen_and_unused_weights_get_no_gradient_and_a_gradient_that_was_there_stays_in_the_sum() -> None:
    model = model_of()
    model.unused = nn.Parameter(torch.ones(2))
    model.model.norm.weight.requires_grad_(False)
    first, _ = gradients(model, set())
    assert model.unused.grad is model.model.norm.weight.grad is None
    before = [p.grad for p in model.parameters() if p.grad is not None]
    add_gradients(model, PARTS[:2], lambda part: (model.lm_head.weight.sum() * 2, None))
    assert torch.equal(model.lm_head.weight.grad, first[0] + 2 + 2)
    assert all(torch.equal(a, b) for a, b in zip(before[1:], first[1:], strict=True))


def test_an_error_in_one_micro_batch_is_raised_and_the_threads_end() -> None:
    model, before = model_of(), threading.active_count()

    def loss_of(part: list[list[int]]) -> tuple[Tensor, None]:
        raise ValueError(f"{len(part)} rows")

    with pytest.raises(ValueError, match="1 rows"):
        add_gradients(model, PARTS, loss_of)
    assert threading.active_count() == before
