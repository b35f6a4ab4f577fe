"""Losses and advantages, with exact values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the customary name
from hypothesis import example, given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import Qwen3Config, Qwen3ForCausalLM

from tests.makers import raises
from userrl_core.records import Task, Trajectory, Turn
from userrl_core.rewards import CreditConfig, turn_advantages
from userrl_core.training.config import AlgorithmConfig
from userrl_core.training.entropy_mask import entropy_threshold
from userrl_core.training.local import update
from userrl_core.training.local.algorithms.choose import advantages_for
from userrl_core.training.local.algorithms.dpo import preference_gradient
from userrl_core.training.local.algorithms.ppo import Critic, gae, place_rewards
from userrl_core.training.local.batch import Advantages, Batch
from userrl_core.training.local.logprobs import token_logprobs
from userrl_core.training.local.samples import Sample
from userrl_core.training.local.update import (
    Item,
    items_of,
    low_var_kl,
    minibatches,
    surrogate,
    token_weights,
    update_policy,
)

REWARDS: list[list[float | None]] = [[0, 0, 1], [0, 0.5], [0, 0, 0], [1]]


def make_batch(rewards: list[list[float | None]], groups: list[int], tokens: int = 2) -> Batch:
    trajectories, samples = [], []
    for attempt, row in enumerate(rewards):
        turns = [
            Turn(n, "action", "x", "", "", "", reward, completion_tokens=tokens) for n, reward in enumerate(row, 1)
        ]
        is_null = None in row
        trajectories.append(
            Trajectory(
                Task("travel", str(groups[attempt]), "train", {}),
                attempt,
                6,
                0,
                turns=turns,
                admitted=not is_null,
                stop_reason="error" if is_null else "success",
                score=None if is_null else 1.0,
            )
        )
        sample = Sample()
        sample.append_environment([1, 2])
        for turn in range(len(row)):
            sample.append_reply(turn, [3] * tokens, [-1.0] * tokens, [0.5] * tokens)
            sample.append_environment([4])
        samples.append(sample)
    return Batch(trajectories, samples, groups)


def advantages(
    name: Any,
    rewards: list[list[float | None]],
    groups: list[int],
    *,
    baselines: list[float] | None = None,
    **credit: Any,
) -> Advantages:
    batch = make_batch(rewards, groups)
    batch.baselines = baselines
    config = CreditConfig(**credit)
    return advantages_for(AlgorithmConfig(name=name), batch, batch.credits(config), config, None)


def tiny_qwen() -> Any:
    torch.manual_seed(0)
    shape = Qwen3Config(
        vocab_size=8,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=8,
    )
    return Qwen3ForCausalLM(shape)


def test_grpo_spreads_the_advantage_of_a_turn_over_its_tokens() -> None:
    spread = advantages("grpo", REWARDS, [0] * 4, shaping="r2g", ddof=1)
    expected = turn_advantages(REWARDS, [0] * 4, turn_tokens=[[2] * len(r) for r in REWARDS], shaping="r2g", ddof=1)
    for tokens, turns, row in zip(spread.tokens, spread.turns, expected, strict=True):
        np.testing.assert_allclose(turns, row)
        np.testing.assert_allclose(tokens, np.repeat(row, 2), rtol=1e-6)


def test_groups_without_a_signal_are_not_trained_on_unless_the_filter_keeps_them() -> None:
    rewards: list[list[float | None]] = [[1], [1], [0], [1]]
    assert advantages("grpo", rewards, [0, 0, 1, 1]).trains.tolist() == [False, False, True, True]
    assert advantages("grpo", rewards, [0, 0, 1, 1], filter="keep").trains.all()


@pytest.mark.parametrize("name", ["grpo", "rloo", "reinforce_pp"])
def test_a_trajectory_without_a_score_is_not_trained_on_and_changes_no_other(name: str) -> None:
    with_null = advantages(name, [[0.0], [1.0], [None]], [0, 0, 0])
    without = advantages(name, [[0.0], [1.0]], [0, 0])
    assert with_null.trains.tolist() == [True, True, False]
    np.testing.assert_array_equal(np.concatenate(with_null.tokens[:2]), np.concatenate(without.tokens))
    assert not with_null.tokens[2].any()


def test_rloo_compares_with_the_mean_of_the_others() -> None:
    rloo = advantages("rloo", [[1.0], [0.0], [0.5]], [0, 0, 0])
    np.testing.assert_allclose([row[0] for row in rloo.tokens], [0.75, -0.75, 0.0])


def test_reinforce_pp_compares_with_the_whole_batch() -> None:
    reinforce_pp = advantages("reinforce_pp", [[1.0], [1.0], [0.0], [0.0]], [0, 0, 1, 1])
    np.testing.assert_allclose([row[0] for row in reinforce_pp.tokens], [1, 1, -1, -1], atol=1e-5)
    assert reinforce_pp.trains.all()
    assert not advantages("reinforce_pp", [[1.0], [1.0]], [0, 1]).trains.any()


def test_remax_compares_with_the_greedy_conversation_of_the_same_task() -> None:
    # The greedy conversation earns [0, .5]: .5 as a sum, .4 discounted by .8 a turn.
    remax = advantages("remax", REWARDS, [0] * 4, baselines=[0.5] * 4, score="sum")
    np.testing.assert_allclose([row[0] for row in remax.tokens], [0.5, 0.0, -0.5, 0.5])
    assert remax.turns[0].tolist() == [0.5, 0.5, 0.5]
    discounted = advantages("remax", REWARDS, [0] * 4, baselines=[0.4] * 4, score="r2g", gamma=0.8)
    np.testing.assert_allclose([row[0] for row in discounted.tokens], [0.24, 0.0, -0.4, 0.6], atol=1e-7)
    assert remax.metrics == {"credit/baseline_missing/count": 0.0, "credit/baseline/mean": 0.5}


def test_remax_learns_from_a_group_of_equal_scores_that_the_greedy_one_does_not_reach() -> None:
    rewards: list[list[float | None]] = [[1], [1], [0], [0], [1], [0]]
    baselines = [0.0, 0.0, 0.0, 0.0, float("nan"), float("nan")]
    dropped = advantages("remax", rewards, [0, 0, 1, 1, 2, 2], baselines=baselines)
    assert [row[0] for row in dropped.turns] == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert dropped.trains.tolist() == [True, True, False, False, False, False]
    assert dropped.metrics == {"credit/baseline_missing/count": 1.0, "credit/baseline/mean": 0.0}
    kept = advantages("remax", rewards, [0, 0, 1, 1, 2, 2], baselines=baselines, filter="keep")
    assert kept.trains.tolist() == [True, True, True, True, False, False]


def test_remax_trains_on_no_trajectory_without_a_score() -> None:
    remax = advantages("remax", [[1.0], [None]], [0, 0], baselines=[0.5, 0.5])
    assert remax.trains.tolist() == [True, False]
    assert not remax.tokens[1].any()


def test_remax_without_greedy_conversations_or_with_resampled_groups_is_refused() -> None:
    with raises("training.bad_call"):
        advantages("remax", REWARDS, [0] * 4)
    with raises("credit.no_effect", "credit.filter"):
        advantages("remax", REWARDS, [0] * 4, baselines=[0.5] * 4, filter="resample")
    with pytest.raises(ValueError, match="whose tokens pay no KL penalty"):
        AlgorithmConfig(name="remax", kl_reward_coef=0.1)


@pytest.mark.parametrize("name", ["rloo", "reinforce_pp", "remax"])
def test_shaping_without_an_effect_is_refused(name: str) -> None:
    with raises("credit.no_effect"):
        advantages(name, REWARDS, [0] * 4, shaping="r2g")


def test_turn_rewards_are_placed_on_the_turns_last_tokens() -> None:
    assert place_rewards([0.1, 0.0, 0.8], [2, 1, 3], "turn").tolist() == pytest.approx([0, 0.1, 0, 0, 0, 0.8])
    assert place_rewards([0.1, 0.0, 0.8], [2, 1, 3], "trajectory").tolist() == pytest.approx([0, 0, 0, 0, 0, 0.9])


def test_with_assignment_group_the_normalised_score_is_the_return_of_every_token() -> None:
    batch, credit = make_batch([[0, 1.0], [0.5]], [0, 0]), CreditConfig(score="sum")
    config = AlgorithmConfig(name="ppo", assignment="group", group=2)
    ppo = advantages_for(config, batch, batch.credits(credit), credit, Critic(tiny_qwen()))
    assert ppo.returns is not None
    np.testing.assert_allclose(ppo.returns[0], [1.0] * 4, rtol=1e-5)
    np.testing.assert_allclose(ppo.returns[1], [-1.0] * 2, rtol=1e-5)
    with pytest.raises(ValueError, match="2 or more"):
        AlgorithmConfig(name="ppo", assignment="group", group=1)


def test_gae_with_gamma_and_lambda_one_is_the_return_less_the_value() -> None:
    advantage, returns = gae(np.float32([0, 0.5, 1]), np.float32([0.3, 0.2, 0.1]), 1.0, 1.0)
    np.testing.assert_allclose(returns, [1.5, 1.5, 1.0], rtol=1e-6)
    np.testing.assert_allclose(advantage, [1.2, 1.3, 0.9], rtol=1e-6)


def test_gae_with_lambda_zero_looks_one_token_ahead() -> None:
    advantage, _ = gae(np.float32([0, 1]), np.float32([0.5, 0.25]), 0.9, 0.0)
    np.testing.assert_allclose(advantage, [0.9 * 0.25 - 0.5, 0.75], rtol=1e-6)


def surrogates(ratio: float, advantage: float, **changes: Any) -> float:
    return float(surrogate(torch.tensor(ratio), torch.tensor(advantage), AlgorithmConfig(**changes)))


@pytest.mark.parametrize(
    ("ratio", "advantage", "changes", "expected"),
    [
        (1.1, 1.0, {}, 1.1),
        (1.5, 1.0, {}, 1.2),
        (1.5, 1.0, {"clip_high": 0.28}, 1.28),
        (0.5, 1.0, {}, 0.5),
        (0.5, -1.0, {}, -0.8),
        (5.0, -1.0, {}, -5.0),
        (5.0, -1.0, {"dual_clip": 3.0}, -3.0),
        (5.0, 1.0, {"dual_clip": 3.0}, 1.2),
    ],
)
def test_the_surrogate_is_clipped(ratio: float, advantage: float, changes: dict[str, Any], expected: float) -> None:
    assert surrogates(ratio, advantage, **changes) == pytest.approx(expected)


@given(st.floats(-30, 0), st.floats(-30, 0))
@example(0.0, -4.377947405055205e-08)
def test_the_kl_estimate_is_never_negative_and_zero_for_equal_models(a: float, b: float) -> None:
    assert float(low_var_kl(torch.tensor(a), torch.tensor(b))) >= 0
    assert float(low_var_kl(torch.tensor(a), torch.tensor(a))) == 0


def test_the_kl_estimate_has_its_exact_value() -> None:
    assert float(low_var_kl(torch.tensor(-1.0), torch.tensor(-2.0))) == pytest.approx(math.e - 2)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20), st.sampled_from(["trajectory_mean", "token_mean"]))
def test_the_token_weights_of_a_minibatch_sum_to_one(tokens: list[int], aggregation: str) -> None:
    weights = token_weights(tokens, aggregation)
    assert sum(w * n for w, n in zip(weights, tokens, strict=True)) == pytest.approx(1)


def test_aggregation_weights_trajectories_or_tokens_equally() -> None:
    assert token_weights([1, 3], "trajectory_mean") == pytest.approx([1 / 2, 1 / 6])
    assert token_weights([1, 3], "token_mean") == pytest.approx([1 / 4, 1 / 4])


def make_item(entropies: list[float]) -> Item:
    zeros = np.zeros(len(entropies), np.float32)
    return Item(Sample(ids=[0] * len(entropies)), zeros, zeros, np.float32(entropies))


def test_the_entropy_mask_keeps_the_given_share_of_the_batch() -> None:
    entropies = np.float32([0.1, 0.9, 0.2, 0.3, 0.8, 0.4, 0.5, 0.6, 0.7, 1.0])
    threshold = entropy_threshold(entropies, 0.2)
    assert threshold == pytest.approx(0.9)
    assert (entropies >= threshold).sum() == 2
    assert entropy_threshold(np.float32([0.5] * 4), 0.25) == 0.5, "ties are kept"


@given(st.integers(1, 30), st.integers(1, 6), st.integers(1, 3))
def test_every_trajectory_is_in_one_minibatch_of_each_pass(count: int, parts: int, epochs: int) -> None:
    items = [make_item([0.0] * (1 + i % 4)) for i in range(count)]
    order = minibatches(items, AlgorithmConfig(minibatches=parts, inner_epochs=epochs), seed=1)
    assert len(order) == epochs * min(parts, count)
    assert sorted(i for part in order for i in part) == sorted(list(range(count)) * epochs)
    assert order == minibatches(items, AlgorithmConfig(minibatches=parts, inner_epochs=epochs), seed=1)


@pytest.mark.parametrize("name", ["grpo", "rloo"])
def test_a_group_of_one_is_refused_where_groups_are_compared(name: str) -> None:
    with pytest.raises(ValueError, match=r"set algorithm\.group to 2 or more"):
        AlgorithmConfig(name=name, group=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["ppo", "reinforce_pp", "remax"])
def test_a_group_of_one_is_accepted_where_they_are_not(name: str) -> None:
    assert AlgorithmConfig(name=name, group=1).group == 1  # type: ignore[arg-type]


GAINS = [0.3, -0.2, 0.1, 0.0]
SCORES = [1.0, 0.0, 0.5, 1.0]


def test_dpo_s_gradient_is_that_of_the_paper_s_loss_over_all_pairs_of_a_group() -> None:
    gain_N = torch.tensor(GAINS, dtype=torch.float64, requires_grad=True)
    # The second group is the last trajectory alone, which is compared with none.
    pairs = [(0, 1), (0, 2), (2, 1)]
    loss = torch.stack([-F.logsigmoid(0.5 * (gain_N[i] - gain_N[j])) for i, j in pairs]).mean()
    loss.backward()
    push_N, sums = preference_gradient(np.array(GAINS), np.array(SCORES), [0, 0, 0, 1], 0.5)
    assert gain_N.grad is not None
    np.testing.assert_allclose(push_N, -gain_N.grad.numpy(), rtol=1e-12)
    # By hand: -log sigmoid of .25, .10 and .15.
    np.testing.assert_allclose(sums["pair_loss"], 0.5759389 + 0.6443967 + 0.6209571, rtol=1e-6)
    assert sums["pairs"] == 3
    np.testing.assert_allclose(sums["margin"], 0.25 + 0.10 + 0.15)


def test_dpo_compares_within_a_group_and_leaves_out_what_is_rejected_or_equal() -> None:
    rewards: list[list[float | None]] = [[1.0], [0.0], [0.0], [None], [1.0], [1.0]]
    compared = advantages("dpo", rewards, [0, 0, 0, 0, 1, 1])
    assert compared.trains.tolist() == [True, True, True, False, False, False]
    np.testing.assert_allclose([row[0] for row in compared.tokens], [1.0, -0.5, -0.5, 0, 0, 0])
    assert compared.metrics == {"dpo/pairs/count": 2.0}


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("micro_batch", [1, 8])
def test_an_update_of_dpo_takes_the_gradient_of_its_loss_in_any_number_of_forward_passes(
    micro_batch: int, normalize: bool
) -> None:
    config = AlgorithmConfig(name="dpo", dpo_beta=0.7, dpo_normalize=normalize, micro_batch=micro_batch, grad_norm=1e9)
    batch = make_batch([[1.0, 0.0], [0.0], [0.5, 0.0, 0.0], [0.0], [1.0]], [0, 0, 0, 1, 1], tokens=3)
    credit = CreditConfig(score="sum")
    items = items_of(batch, advantages_for(config, batch, batch.credits(credit), credit, None))
    model = tiny_qwen()
    model.train()
    turns = [item.sample.turns for item in items]
    logprobs, _ = token_logprobs(model, [item.sample.ids for item in items], turns, 1.0)
    parts = torch.split(logprobs, [len(item.old) for item in items])
    gains = [
        (part - torch.from_numpy(item.old)).sum() / (len(item.old) if normalize else 1)
        for part, item in zip(parts, items, strict=True)
    ]
    pairs = [(0, 1), (0, 2), (2, 1), (4, 3)]
    torch.stack([-F.logsigmoid(0.7 * (gains[i] - gains[j])) for i, j in pairs]).mean().backward()  # type: ignore[no-untyped-call]
    expected = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    gradients: dict[str, torch.Tensor] = {}

    class Kept(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            gradients.update({n: w.grad.clone() for n, w in model.named_parameters() if w.grad is not None})

    metrics = update_policy(model, Kept(model.parameters(), lr=0.1), items, config, minibatches(items, config, 0))
    assert gradients.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-4, atol=1e-6)
    assert metrics["policy/clip/share"] == 0.0
    assert metrics["dpo/loss/mean"] > 0


def test_dpo_keeps_a_group_in_one_minibatch() -> None:
    config = AlgorithmConfig(name="dpo", minibatches=3, inner_epochs=2)
    batch = make_batch([[1.0], [0.0], [0.5]] * 5, [group for group in range(5) for _ in range(3)])
    credit = CreditConfig()
    items = items_of(batch, advantages_for(config, batch, batch.credits(credit), credit, None))
    order = minibatches(items, config, 1)
    assert len(order) == 6
    for part in order:
        assert sorted(part) == [
            row for group in sorted({items[i].group for i in part}) for row in range(group * 3, group * 3 + 3)
        ]
    assert sorted(row for part in order[:3] for row in part) == list(range(15))


def test_dpo_brings_what_was_sampled_to_the_device_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    config, credit = AlgorithmConfig(name="dpo"), CreditConfig(score="sum")
    batch = make_batch([[1.0], [0.0]], [0, 0])
    items = items_of(batch, advantages_for(config, batch, batch.credits(credit), credit, None))
    moved: list[torch.device] = []
    # Tensors of a device that this machine need not have: they have shapes, and sums of two devices are refused.
    with FakeTensorMode(allow_non_fake_inputs=True):
        rows = [torch.zeros(len(item.old), device="cuda") for item in items]
        monkeypatch.setattr(update, "reference_logprobs", lambda *arguments: rows)
        monkeypatch.setattr(torch.Tensor, "numpy", lambda tensor: moved.append(tensor.device) or np.zeros(len(tensor)))
        update._by_preference(None, items, [1.0, 1.0], config)
    assert moved == [torch.device("cpu")]
