"""What keeps the local backend within one card: the output layer in chunks, a packed cache, batches sized by free memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import Qwen3Config, Qwen3ForCausalLM

from userrl_core.training.config import LoraSettings
from userrl_core.training.local.logprobs import token_logprobs
from userrl_core.training.local.lora import adapt
from userrl_core.training.local.optimizer import adamw, trained

VOCAB = 500
IDS = [
    torch.randint(0, VOCAB, (length,), generator=torch.Generator().manual_seed(length)).tolist()
    for length in (90, 61, 75)
]
TURNS = [[-1] * 5 + [0] * (len(row) - 5) for row in IDS]
AGENT_TOKENS = sum(len(row) - 5 for row in IDS)


def make_model(**changes: Any) -> Any:
    shape = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = Qwen3Config(
        vocab_size=VOCAB, num_key_value_heads=2, head_dim=8, max_position_embeddings=512, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=1, initializer_range=0.2, attn_implementation="sdpa", **shape | changes,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Qwen3ForCausalLM(config).eval()


def logprobs_and_gradients(entries: int, *, entropy_grad: bool) -> tuple[Tensor, Tensor, list[Tensor], int]:
    """Log-probabilities, entropies, gradients, and the most entries of a tensor that was kept for the backward pass."""
    model, largest = make_model(), 0

    def keep(tensor: Tensor) -> Tensor:
        nonlocal largest
        largest = max(largest, tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logprobs, entropies = token_logprobs(model, IDS, TURNS, 0.8, entropy_grad=entropy_grad, entries=entries)
    loss = -(logprobs * torch.linspace(-1, 1, len(logprobs))).sum()
    (loss - 0.3 * entropies.sum() if entropy_grad else loss).backward()
    return logprobs.detach(), entropies.detach(), [p.grad for p in model.parameters()], largest


@pytest.mark.parametrize("entropy_grad", [False, True])
def test_an_output_layer_in_chunks_gives_the_same_and_keeps_nothing_of_all_tokens_times_the_vocabulary(
    entropy_grad: bool,
) -> None:
    whole = logprobs_and_gradients(VOCAB * AGENT_TOKENS, entropy_grad=entropy_grad)
    chunked = logprobs_and_gradients(VOCAB * 32, entropy_grad=entropy_grad)
    for one, other in zip([*whole[:2], *whole[2]], [*chunked[:2], *chunked[2]], strict=True):
        torch.testing.assert_close(other, one, atol=1e-5, rtol=1e-5)
    assert whole[3] == VOCAB * AGENT_TOKENS
    assert chunked[3] < VOCAB * 32


def test_no_chunk_of_the_backward_pass_is_larger_than_the_bound() -> None:
    softmaxes: list[int] = []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            if "log_softmax" in str(func):
                softmaxes.append(out.numel())
            return out

    with Sizes():
        logprobs, _ = token_logprobs(make_model(), IDS, TURNS, entries=VOCAB * 64)
        logprobs.sum().backward()
    chunks = [VOCAB * 64] * 3 + [VOCAB * (AGENT_TOKENS - 3 * 64)]
    # Forward; and backward from the last chunk on, each computed again before its gradient is taken.
    assert softmaxes == chunks + [size for size in reversed(chunks) for _ in range(2)]


def test_training_attends_without_a_mask_so_that_flash_kernels_are_free_to_be_taken() -> None:
    calls: list[dict[str, Any]] = []

    class Attention(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.nn.functional.scaled_dot_product_attention:
                calls.append(kwargs)
            return func(*args, **(kwargs or {}))

    model = make_model().train()
    model.gradient_checkpointing_enable()
    with Attention():
        token_logprobs(model, IDS, TURNS)
    assert len(calls) == model.config.num_hidden_layers
    assert {(call["attn_mask"], call["is_causal"], call["enable_gqa"]) for call in calls} == {(None, True, True)}


def test_adapters_have_the_same_gradients_with_gradient_checkpointing() -> None:
    def gradients(checkpointed: bool) -> list[Tensor]:
        model = make_model()
        adapt(model, LoraSettings(rank=2), seed=1)
        for name, parameter in trained(model).items():
            torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(len(name)))
        if checkpointed:
            model.gradient_checkpointing_enable()
        token_logprobs(model.train(), IDS, TURNS)[0].sum().backward()
        return [p.grad for p in trained(model).values()]

    plain = gradients(False)
    assert all(bool(gradient.abs().sum() > 0) for gradient in plain)
    for one, other in zip(plain, gradients(True), strict=True):
        torch.testing.assert_close(other, one)


def test_a_step_of_16_bit_weights_taken_tensor_by_tensor_is_one_step_of_all_and_leaves_no_gradient() -> None:
    model = make_model().to(torch.bfloat16)
    optimizer = adamw(model, 1e-3, (0.9, 0.95), 0.0)
    token_logprobs(model, IDS, TURNS)[0].sum().backward()
    whole = [torch.nn.Parameter(parameter.detach().float()) for parameter in model.parameters()]
    for copy, parameter in zip(whole, model.parameters(), strict=True):
        copy.grad = parameter.grad.float()
    torch.optim.AdamW(whole, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0).step()
    optimizer.step()
    for copy, parameter in zip(whole, model.parameters(), strict=True):
        assert torch.equal(parameter, copy.to(torch.bfloat16))
        assert parameter.grad is None
