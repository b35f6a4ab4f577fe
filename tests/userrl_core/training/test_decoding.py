"""The cached decoders, and the local policy."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from analysis.credit.continuations import Prefix, continuations
from analysis.credit.replay import Setting
from tests.makers import raises
from tests.userrl_core.training.toys import TINY, chats, travel
from userrl_core.policies.base import BatchPolicy
from userrl_core.records import ModelCall, Trajectory, Turn
from userrl_core.rollout import run_episodes
from userrl_core.training.local import decode, packing, samples
from userrl_core.training.local.attention import FLOAT32_WHERE_SHORT
from userrl_core.training.local.decode import BlockDecoder, GenericDecoder, make_decoder
from userrl_core.training.local.logprobs import token_logprobs
from userrl_core.training.local.model import build_model
from userrl_core.training.local.policy import LocalPolicy
from userrl_core.training.local.samples import LARGE_VOCABULARY, draw_tokens, nucleus
from userrl_core.training.local.sft import encode_chats
from userrl_core.training.local.text.chat import ChatFormat
from userrl_core.training.local.text.tokenizer import render, train_tokenizer

CHATS = chats(40)
TOKENIZER = train_tokenizer(render(CHATS), TINY.vocab_size)
FORMAT = ChatFormat(TOKENIZER)


def make_model(seed: int = 0, **changes: Any) -> Any:
    return build_model(TINY.model_copy(update=changes), TOKENIZER, seed)


@cache
def speaker() -> Any:
    """Return a model trained on just enough demonstrations to write readable calls."""
    model = make_model()
    examples = encode_chats(FORMAT, CHATS, 256)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    model.train()
    for _ in range(60):
        logprobs, _ = token_logprobs(model, [e.ids for e in examples[:16]], [e.turns for e in examples[:16]])
        (-logprobs.mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


def play(policy: LocalPolicy, count: int = 6, n: int = 2, horizon: int = 5) -> list[Trajectory]:
    return asyncio.run(
        run_episodes(
            travel(count=count), policy, horizon=horizon, n=n, prompt_style="brief", on_format_error="continue"
        )
    )


def test_the_local_policy_is_a_batch_policy() -> None:
    assert isinstance(LocalPolicy(speaker(), TOKENIZER), BatchPolicy)


def make_llama() -> Any:
    shape = LlamaConfig(
        vocab_size=400,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        initializer_range=0.2,
        bos_token_id=None,
        attn_implementation="sdpa",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForCausalLM(shape).eval()


@pytest.mark.parametrize("kind", ["generic", "qwen3", "llama", "llama that skips padding"])
def test_decoding_with_padding_gaps_and_removed_rows_equals_one_forward_pass(kind: str) -> None:
    model = make_llama() if "llama" in kind else make_model()
    torch.manual_seed(1)
    ids = torch.randint(0, 300, (3, 12))
    decoder = GenericDecoder(model, 3) if kind == "generic" else BlockDecoder(model, 3, 4)
    decoder._skips = "skips" in kind
    # Row 1 has two columns of left padding, and row 2 has no token in one column.
    real = torch.ones(3, 5, dtype=torch.bool)
    real[1, :2] = False
    decoder.feed(ids[:, :5], real)
    step = torch.tensor([[True], [True], [False]])
    decoder.feed(ids[:, 5:6], step)
    decoder.keep(torch.tensor([1, 2]))
    last = decoder.feed(ids[1:, 6:9], torch.ones(2, 3, dtype=torch.bool))
    rows = [ids[1, 2:9], torch.cat([ids[2, :5], ids[2, 6:9]])]
    with torch.no_grad():
        expected = torch.stack([model(input_ids=row[None]).logits[0, -1] for row in rows])
    torch.testing.assert_close(last, expected, atol=1e-5, rtol=1e-5)


def test_a_decoder_of_a_large_vocabulary_computes_only_the_rows_that_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "LARGE_VOCABULARY", 399)
    torch.manual_seed(2)
    ids, all_rows = torch.randint(0, 300, (4, 8)), torch.ones(4, 1, dtype=torch.bool)
    model = make_llama()
    decoder, computed = BlockDecoder(model, 4, 4), []
    hook = model.model.layers[0].mlp.register_forward_pre_hook(lambda _, inputs: computed.append(len(inputs[0])))
    decoder.feed(ids[:, :5], all_rows.expand(4, 5))
    logits = decoder.feed(ids[:, 5:6], torch.tensor([[True], [False], [True], [True]]))
    after = decoder.feed(ids[:, 6:7], all_rows)
    hook.remove()
    assert computed == [20, 3, 4]
    rows = [ids[0, :7], torch.cat([ids[1, :5], ids[1, 6:7]]), ids[2, :7], ids[3, :7]]
    with torch.no_grad():
        expected = torch.stack([model(input_ids=row[None]).logits[0, -1] for row in rows])
        earlier = torch.stack([model(input_ids=ids[row : row + 1, :6]).logits[0, -1] for row in (0, 2, 3)])
    torch.testing.assert_close(logits[[0, 2, 3]], earlier, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(after, expected, atol=1e-5, rtol=1e-5)


def test_llama_and_qwen3_have_decoders_and_another_architecture_uses_the_generic_one() -> None:
    shape: dict[str, Any] = {
        "vocab_size": len(TOKENIZER), "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "eos_token_id": 2,
        "pad_token_id": 0, "bos_token_id": None,
    }  # fmt: skip
    llama = LlamaForCausalLM(LlamaConfig(**shape)).eval()
    other = MistralForCausalLM(MistralConfig(**shape, sliding_window=None)).eval()
    assert isinstance(make_decoder(llama, 1, 8), BlockDecoder)
    assert isinstance(make_decoder(other, 1, 8), GenericDecoder)
    assert isinstance(make_decoder(make_model(), 1, 8), BlockDecoder)
    for model in (llama, other):
        policy = LocalPolicy(model, TOKENIZER, temperature=1.0, max_tokens=12, keep_samples=True)
        play(policy)
        assert largest_gap(model, policy) < 1e-4


def largest_gap(model: Any, policy: LocalPolicy, temperature: float = 1.0) -> float:
    played = policy.take_samples()
    with torch.no_grad():
        recomputed, entropies = token_logprobs(model, [s.ids for s in played], [s.turns for s in played], temperature)
    sampled = torch.tensor([x for s in played for x in s.of_agent(s.logprobs)])
    sampled_entropies = torch.tensor([x for s in played for x in s.of_agent(s.entropies)])
    torch.testing.assert_close(sampled_entropies, entropies, atol=1e-4, rtol=1e-4)
    return float((recomputed - sampled).abs().max())


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 1.0), (1.0, 0.8), (0.0, 1.0)])
def test_rollout_log_probabilities_equal_recomputed_ones(temperature: float, top_p: float) -> None:
    policy = LocalPolicy(speaker(), TOKENIZER, temperature=temperature, top_p=top_p, max_tokens=24, keep_samples=True)
    trajectories = play(policy, n=3)
    assert max(len(t.turns) for t in trajectories) > 2
    assert largest_gap(speaker(), policy, temperature or 1.0) < 1e-4


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 0.8), (0.0, 1.0)])
def test_rollout_and_update_of_a_large_vocabulary_agree(
    monkeypatch: pytest.MonkeyPatch, temperature: float, top_p: float
) -> None:
    for module in (decode, packing, samples):
        monkeypatch.setattr(module, "LARGE_VOCABULARY", 0)
    policy = LocalPolicy(
        speaker(),
        TOKENIZER,
        temperature=temperature,
        top_p=top_p,
        max_tokens=24,
        keep_samples=True,
        share_openings=True,
    )
    trajectories = play(policy, n=3)
    assert max(len(t.turns) for t in trajectories) > 2
    assert largest_gap(speaker(), policy, temperature or 1.0) < 1e-4


@pytest.mark.parametrize(
    ("top_p", "drawn"), [(0.5, {2}), (0.51, {0, 2}), (0.8, {0, 2}), (0.81, {0, 1, 2}), (1e-300, {2})]
)
def test_the_nucleus_is_the_fewest_tokens_that_reach_top_p(top_p: float, drawn: set[int]) -> None:
    probabilities = torch.tensor([0.3, 0.2, 0.5], dtype=torch.float64)
    assert set(nucleus(probabilities, top_p).nonzero().flatten().tolist()) == drawn


def test_tokens_of_a_large_vocabulary_are_drawn_with_their_probabilities() -> None:
    probabilities = torch.zeros(1, 2 * LARGE_VOCABULARY + 7)
    tokens, shares = (
        torch.tensor([0, 1023, 1024, 9000, 2 * LARGE_VOCABULARY + 6]),
        torch.tensor([0.1, 0.2, 0.3, 0.15, 0.25]),
    )
    probabilities[0, tokens] = shares
    drawn = draw_tokens(probabilities.expand(2_000, -1), 1.0, torch.Generator().manual_seed(0))
    values, counts = drawn.unique(return_counts=True)
    assert values.tolist() == tokens.tolist()
    # Four standard errors of a share of .3 in 2,000 draws.
    torch.testing.assert_close(counts / 2_000, shares, atol=0.041, rtol=0.0)


@pytest.mark.parametrize("vocabulary", [7, LARGE_VOCABULARY + 7])
def test_the_same_generator_draws_the_same_tokens_and_the_nucleus_bounds_them(vocabulary: int) -> None:
    probabilities = torch.rand(64, vocabulary, generator=torch.Generator().manual_seed(1)).softmax(-1)
    first, again = (draw_tokens(probabilities, 0.3, torch.Generator().manual_seed(2)) for _ in range(2))
    assert first.tolist() == again.tolist()
    assert (nucleus(probabilities, 0.3).gather(1, first[:, None]) > 0).all()


@pytest.mark.parametrize("vocabulary", [7, LARGE_VOCABULARY + 7])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_no_token_is_drawn_from_what_is_no_distribution(vocabulary: int, wrong: float) -> None:
    with pytest.raises(RuntimeError):
        draw_tokens(torch.full((2, vocabulary), wrong), 1.0, None)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_model_whose_logits_are_no_numbers_is_refused_and_not_scored(temperature: float) -> None:
    model = make_model()
    model.config.rms_norm_eps = float("nan")
    with raises("checkpoint.not_finite", "although its weights are"):
        play(LocalPolicy(model, TOKENIZER, temperature=temperature, max_tokens=4), count=1, n=1)


@pytest.mark.parametrize("extreme", [{"top_p": 1e-300}, {"temperature": 1e-300}])
def test_sampling_with_a_number_too_small_for_float32_is_greedy(extreme: dict[str, float]) -> None:
    greedy, sampled = (
        play(LocalPolicy(speaker(), TOKENIZER, max_tokens=24, **settings), count=2, n=1)
        for settings in ({"temperature": 0.0}, {"temperature": 1.0, **extreme})
    )
    assert [[turn.token_ids for turn in t.turns] for t in sampled] == [[x.token_ids for x in t.turns] for t in greedy]


def test_a_sample_holds_the_tokens_of_the_whole_conversation() -> None:
    policy = LocalPolicy(speaker(), TOKENIZER, temperature=1.0, max_tokens=24, keep_samples=True)
    trajectories = play(policy)
    for trajectory, sample in zip(trajectories, policy.take_samples(), strict=True):
        assert len(sample.ids) == len(sample.turns) == len(sample.logprobs) == len(sample.entropies)
        assert [i for i, t in zip(sample.ids, sample.turns, strict=True) if t >= 0] == [
            i for turn in trajectory.turns for i in turn.token_ids or []
        ]
        assert sample.turn_tokens(len(trajectory.turns)) == [turn.completion_tokens for turn in trajectory.turns]
        text = TOKENIZER.decode(sample.ids)
        assert all(FORMAT.text(turn.token_ids or []) == turn.message for turn in trajectory.turns)
        assert all(turn.observation in text for turn in trajectory.turns[:-1])
    assert policy.take_samples() == []


class Objection:
    """Interrupts every step as often as it may."""

    most, text = 2, "wait"

    async def objects(self, trajectory: Trajectory, step: Turn, ledger: list[ModelCall]) -> bool:
        return True


def test_interrupted_attempts_are_tokens_of_the_turn_that_follows() -> None:
    policy = LocalPolicy(speaker(), TOKENIZER, temperature=1.0, max_tokens=24, keep_samples=True)
    played = asyncio.run(
        run_episodes(
            travel(count=4), policy, horizon=3, prompt_style="brief", on_format_error="continue", verifier=Objection()
        )
    )
    samples = policy.take_samples()
    assert any("interrupted" in turn.info for trajectory in played for turn in trajectory.turns)
    for sample, trajectory in zip(samples, played, strict=True):
        assert sample.turn_tokens(len(trajectory.turns)) == [turn.completion_tokens for turn in trajectory.turns]
        assert sum(turn.completion_tokens for turn in trajectory.turns) == sample.agent_tokens


def test_the_same_seed_samples_the_same_tokens_and_the_global_generator_is_unchanged() -> None:
    before = torch.get_rng_state()
    first, second, third = (
        [
            turn.token_ids
            for t in play(LocalPolicy(speaker(), TOKENIZER, temperature=1.0, max_tokens=24, seed=seed))
            for turn in t.turns
        ]
        for seed in (5, 5, 6)
    )
    assert first == second
    assert first != third
    assert torch.equal(torch.get_rng_state(), before)


def test_greedy_rollouts_use_no_generator_and_do_not_depend_on_the_batch() -> None:
    generator = torch.Generator().manual_seed(3)
    state = generator.get_state()
    one_batch = play(LocalPolicy(speaker(), TOKENIZER, max_tokens=24, generator=generator))
    batches = play(LocalPolicy(speaker(), TOKENIZER, max_tokens=24, max_batch=5))
    assert torch.equal(generator.get_state(), state)
    assert [t.turns[-1].message for t in one_batch] == [t.turns[-1].message for t in batches]
    assert [t.stop_reason for t in one_batch] == [t.stop_reason for t in batches]


def test_a_conversation_that_fills_the_context_ends_with_its_score_so_far() -> None:
    model = make_speaker_with_context(64)
    trajectories = play(LocalPolicy(model, TOKENIZER, temperature=1.0, max_tokens=24), n=4, horizon=20)
    cut = [t for t in trajectories if t.stop_reason == "length"]
    assert cut
    assert all(t.admitted and t.score == t.return_sum for t in cut)


def make_speaker_with_context(limit: int) -> Any:
    model = make_model(max_context=limit)
    model.load_state_dict(speaker().state_dict())
    return model


def test_an_opening_longer_than_the_context_ends_the_episode_before_the_first_turn() -> None:
    (trajectory,) = play(LocalPolicy(make_speaker_with_context(4), TOKENIZER), count=1, n=1)
    assert (trajectory.stop_reason, trajectory.turns) == ("length", [])


def test_max_response_tokens_counts_replies_and_observations() -> None:
    policy = LocalPolicy(
        speaker(), TOKENIZER, temperature=1.0, max_tokens=24, max_response_tokens=30, keep_samples=True
    )
    for trajectory, sample in zip(play(policy, n=4), policy.take_samples(), strict=True):
        opening = sample.turns.index(0)
        assert len(sample.ids) - opening <= 30, trajectory.stop_reason


def test_a_reply_without_an_end_token_is_cut_and_closed_by_the_template() -> None:
    model = make_speaker_with_context(2048)
    policy = LocalPolicy(model, TOKENIZER, temperature=1.0, max_tokens=3, keep_samples=True)
    (trajectory,) = play(policy, count=1, n=1)
    (sample,) = policy.take_samples()
    assert all(turn.completion_tokens <= 3 for turn in trajectory.turns)
    assert len(trajectory.turns) == 5
    assert sample.ids.count(FORMAT.end_id) == 2 * 4 + 1
    assert "<|im_start|>assistant\n<|im_start|>" not in TOKENIZER.decode(sample.ids)


@pytest.mark.parametrize("settings", [{"temperature": -0.1}, {"top_p": 0.0}, {"max_tokens": 0}, {"max_batch": 0}])
def test_invalid_sampling_settings_are_refused(settings: dict[str, Any]) -> None:
    with raises("argument.out_of_range"):
        LocalPolicy(speaker(), TOKENIZER, **settings)


def test_continuations_of_a_greedy_conversation_are_its_own_rest_whoever_reads_the_beginning() -> None:
    stored = play(LocalPolicy(speaker(), TOKENIZER, max_tokens=24), n=1)
    longest = max(stored, key=lambda one: len(one.turns))
    assert len(longest.turns) > 2
    prefixes = [Prefix(longest, turns) for turns in range(len(longest.turns))]
    setting = Setting(on_format_error="continue", prompt_style="brief")
    shared = LocalPolicy(speaker(), TOKENIZER, max_tokens=24, share_openings=True)
    for ways in asyncio.run(continuations(prefixes, shared, 3, setting)):
        for way in ways:
            assert [turn.token_ids for turn in way.turns] == [turn.token_ids for turn in longest.turns]
            assert (way.score, way.stop_reason) == (longest.score, longest.stop_reason)
    sampled = LocalPolicy(speaker(), TOKENIZER, temperature=1.0, max_tokens=24, share_openings=True)
    (ways,) = asyncio.run(continuations([Prefix(longest, 1)], sampled, 8, setting))
    assert {tuple(way.turns[0].token_ids or ()) for way in ways} == {tuple(longest.turns[0].token_ids or ())}
    assert len({tuple(way.turns[1].token_ids or ()) for way in ways}) > 1


def gradient(model: Any) -> torch.Tensor:
    examples = encode_chats(FORMAT, CHATS, 256)[:4]
    logprobs, _ = token_logprobs(model, [e.ids for e in examples], [e.turns for e in examples])
    (-logprobs.mean()).backward()
    return torch.cat([p.grad.float().flatten() for p in model.parameters()])


def test_attention_of_16_bit_models_has_gradients_at_least_as_exact_as_torch_s_kernel() -> None:
    exact, ours, kernel = make_model(), make_model(dtype="bfloat16"), make_model(dtype="bfloat16")
    for half in (ours, kernel):
        exact.load_state_dict(half.float().state_dict())  # the rounded weights
        half.bfloat16()
    kernel.set_attn_implementation("sdpa")
    true = gradient(exact)
    assert ours.config._attn_implementation == FLOAT32_WHERE_SHORT
    assert exact.config._attn_implementation == "sdpa"
    assert (gradient(ours) - true).norm() <= 1.05 * (gradient(kernel) - true).norm()
