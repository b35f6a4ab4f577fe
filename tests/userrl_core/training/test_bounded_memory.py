"""What keeps the local backend within one card: the output layer in chunks, a packed cache, batches sized by free memory."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the customary name
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from userrl_core.training.config import AlgorithmConfig
from userrl_core.training.local import attention, decode, packing
from userrl_core.training.local.decode import BlockDecoder, GenericDecoder, column_bytes
from userrl_core.training.local.logprobs import token_logprobs
from userrl_core.training.local.optimizer import adamw
from userrl_core.training.local.samples import Sample, pad
from userrl_core.training.local.update import forward_passes
from userrl_core.training.one_gpu import rows_that_fit

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


def test_a_step_of_16_bit_weights_taken_tensor_by_tensor_is_one_step_of_all_and_leaves_no_gradient() -> None:
    model = make_model().to(torch.bfloat16)
    optimizer = adamw(model, 1e-3, (0.9, 0.95), 0.0)
    token_logprobs(model, IDS, TURNS)[0].sum().backward()
    whole = [torch.nn.Parameter(parameter.detach().float()) for parameter in model.parameters()]
    for copy, parameter in zip(whole, model.parameters(), strict=True):
        copy.grad = parameter.grad.float()
    torch.optim.AdamW(whole, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0, fused=True).step()
    optimizer.step()
    for copy, parameter in zip(whole, model.parameters(), strict=True):
        assert torch.equal(parameter, copy.to(torch.bfloat16))
        assert parameter.grad is None


def talk(decoder: Any, model: Any, turns: int) -> tuple[float, int, int]:
    """Feed three rows pieces and replies of different lengths; after the sixth turn the last row is gone.

    Returns the largest difference to the logits of one forward pass, the tokens of the longest row, and the sum of columns.
    """
    rng, gap, columns = random.Random(7), 0.0, 0
    rows: list[list[int]] = [[], [], []]
    for turn in range(turns):
        if turn == 6:
            rows.pop()
            decoder.keep(torch.tensor([0, 1]))
        pieces = [
            [rng.randrange(VOCAB) for _ in range(40 if turn % len(rows) == row else 3)] for row in range(len(rows))
        ]
        decoder.feed(*pad(pieces, 0, left=True))
        replies = [
            [rng.randrange(VOCAB) for _ in range(9 if turn % len(rows) == row else 2)] for row in range(len(rows))
        ]
        for position in range(max(map(len, replies))):
            real = torch.tensor([[position < len(reply)] for reply in replies])
            ids = torch.tensor([[(reply + [0] * 9)[position]] for reply in replies])
            logits = decoder.feed(ids, real)
        columns += 40 + 9
        rows = [row + piece + reply for row, piece, reply in zip(rows, pieces, replies, strict=True)]
        with torch.no_grad():
            longest = turn % len(rows)  # the row whose reply was the longest, and so whose last column is real
            expected = model(input_ids=torch.tensor([rows[longest]])).logits[0, -1]
        gap = max(gap, float((logits[longest] - expected).abs().max()))
    return gap, max(map(len, rows)), columns


@pytest.mark.parametrize("folds", [False, True])
def test_a_large_cache_is_packed_and_stays_as_long_as_its_longest_conversation(
    monkeypatch: pytest.MonkeyPatch, folds: bool
) -> None:
    monkeypatch.setattr(decode, "DOUBLES_BELOW", 0)
    monkeypatch.setattr(decode, "COLUMNS_AHEAD", 16)
    model = make_model()
    decoder = BlockDecoder(model, 3, 48)
    decoder._folds = folds  # the way of a GPU, where query heads share their keys in one product
    gap, longest, columns = talk(decoder, model, 12)
    assert gap < 1e-5
    assert (longest, columns) == (280, 588)
    assert decoder.capacity <= longest + 40 + 16


def test_a_small_cache_is_not_packed_so_that_its_results_stay_what_they_were() -> None:
    model = make_model()
    decoder = BlockDecoder(model, 3, 48)
    gap, _, columns = talk(decoder, model, 12)
    assert gap < 1e-5
    assert decoder.capacity == 768 > columns


def test_the_cache_of_another_architecture_is_packed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "DOUBLES_BELOW", 0)
    monkeypatch.setattr(decode, "COLUMNS_AHEAD", 16)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, eos_token_id=2, pad_token_id=0, bos_token_id=None,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlamaForCausalLM(config).eval()
    decoder = GenericDecoder(model, 3)
    gap, longest, columns = talk(decoder, model, 12)
    assert gap < 1e-5
    assert decoder._real_BC.shape[1] <= longest + 40 + 16 < columns


def test_a_batch_on_a_gpu_is_as_large_as_free_memory_holds_caches_of_full_length() -> None:
    # Qwen3-4B: 36 layers, 8 key heads of width 128, keys and values in bfloat16.
    column = 2 * 36 * 8 * 128 * 2
    assert rows_that_fit(70_000_000_000, column, 1152 + 8192) == 29
    assert rows_that_fit(70_000_000_000, column, 1152 + 2048) == 82
    assert rows_that_fit(1_000_000, column, 9344) == 0
    assert column_bytes(make_model()) == 2 * 2 * 2 * 8 * 4
    assert column_bytes(make_model().to(torch.bfloat16)) == 2 * 2 * 2 * 8 * 2


@pytest.mark.parametrize("kind", [Qwen3ForCausalLM, Qwen2ForCausalLM, LlamaForCausalLM])
def test_what_conversations_have_in_common_is_computed_once_and_gives_the_same_gradients(kind: Any) -> None:
    opening, reply = IDS[0][:20], IDS[0][20:26]
    ids = [opening + reply + IDS[0][26:50], opening + reply + IDS[1][26:40], opening + IDS[2][20:41]]
    turns = [[-1] * 20 + [0] * (len(row) - 20) for row in ids]
    shape = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
    found = []
    for share in (False, True):
        if kind is Qwen3ForCausalLM:
            model = make_model()
        else:
            torch.manual_seed(0)
            model = kind(kind.config_class(vocab_size=VOCAB, num_key_value_heads=2, **shape))
        products: list[int] = []
        mlp = model.model.layers[0].mlp
        mlp.register_forward_pre_hook(lambda _, inputs, products=products: products.append(inputs[0][..., 0].numel()))
        logprobs, entropies = token_logprobs(model, ids, turns, share=share)
        (logprobs * torch.linspace(-1, 1, len(logprobs))).sum().backward()
        found.append((logprobs.detach(), entropies.detach(), [p.grad for p in model.parameters()]))
        # Three rows of 50 tokens; or the opening, the reply of two, and three ends.
        assert products == ([20 + 6 + 24 + 14 + 21] if share else [3 * 50])
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-4)


def test_gradients_of_a_common_beginning_have_the_same_bits_each_time_with_two_threads() -> None:
    rng, threads = random.Random(3), torch.get_num_threads()
    opening = [rng.randrange(VOCAB) for _ in range(60)]
    ids = [opening + [rng.randrange(VOCAB) for _ in range(40 + row)] for row in range(24)]
    turns = [[-1] * 59 + [0] * (len(row) - 59) for row in ids]
    torch.set_num_threads(2)
    try:
        gradients = []
        for _ in range(6):
            model = make_model()
            token_logprobs(model, ids, turns, share=True)[0].sum().backward()
            gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
        assert all(torch.equal(gradient, gradients[0]) for gradient in gradients)
    finally:
        torch.set_num_threads(threads)


def test_conversations_that_begin_differently_have_the_values_of_computing_each() -> None:
    shared, alone = (token_logprobs(make_model(), IDS, TURNS, share=share) for share in (True, False))
    for of_shared, of_alone in zip(shared, alone, strict=True):
        torch.testing.assert_close(of_shared, of_alone, atol=1e-5, rtol=1e-4)


def test_nothing_is_computed_for_the_padding_of_a_large_vocabularys_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model()
    padded = token_logprobs(model, IDS, TURNS)
    monkeypatch.setattr(packing, "LARGE_VOCABULARY", VOCAB - 1)
    products: list[int] = []
    model.model.layers[0].mlp.register_forward_pre_hook(lambda _, inputs: products.append(len(inputs[0])))
    torch.testing.assert_close(token_logprobs(model, IDS, TURNS), padded, atol=1e-5, rtol=1e-4)
    assert products == [90 + 61 + 75]


@pytest.mark.parametrize("longest", [0, 200])
def test_16_bit_conversations_attend_in_float32_where_they_are_short(
    monkeypatch: pytest.MonkeyPatch, longest: int
) -> None:
    monkeypatch.setattr(attention, "LONGEST", longest)
    model = make_model().to(torch.bfloat16)
    formats: list[torch.dtype] = []
    kernel = F.scaled_dot_product_attention
    monkeypatch.setattr(
        F, "scaled_dot_product_attention", lambda q, *a, **k: formats.append(q.dtype) or kernel(q, *a, **k)
    )
    logprobs, _ = token_logprobs(model, IDS, TURNS, share=True)
    logprobs.sum().backward()
    assert formats == [torch.float32 if longest else torch.bfloat16] * 2
    exact, _ = token_logprobs(make_model(), IDS, TURNS)
    assert float((logprobs - exact).abs().max().detach()) < 0.1


def test_a_forward_pass_of_shared_openings_holds_conversations_of_one_task() -> None:
    samples = [Sample(ids=[opening, 9, 9], turns=[-1, 0, 0]) for opening in (1, 2, 1, 1, 2)]
    settings = {"micro_batch": 2, "group": 2, "batch": 2}
    shared = AlgorithmConfig(share_openings=True, **settings)
    assert forward_passes(samples, shared) == [[0, 2], [3], [1, 4]]
    assert forward_passes(samples, AlgorithmConfig(**settings)) == [[0, 1], [2, 3], [4]]
