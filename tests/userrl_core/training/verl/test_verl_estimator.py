"""The estimator that verl calls gives what the product's own advantage function gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.makers import raises
from tests.userrl_core.rewards.test_released import RELEASED, released_code
from userrl_core.rewards import turn_advantages
from userrl_core.training.verl.estimator import estimate, recover_turns

GOLDEN = [[0.0, 0.0, 1.0], [0.0, 0.5], [0.0, 0.0, 0.0], [1.0]]


def lay_out(
    rewards: list[list[float] | None], tokens: list[list[int]], width: int = 64
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rewards on each turn's last token and the response mask; None is a row that is all mask."""
    rewards_NL, mask_NL = torch.zeros(len(rewards), width), torch.zeros(len(rewards), width, dtype=torch.int64)
    for row, (values, counts) in enumerate(zip(rewards, tokens, strict=True)):
        at = 0
        for value, count in zip(values or [], counts, strict=False):
            mask_NL[row, at : at + count] = 1
            rewards_NL[row, at + count - 1] = value
            at += count + 2
    return rewards_NL, mask_NL


def config(**values: object) -> dict[str, object]:
    return {"userrl": {"form": "released", **values}}


def per_turn(advantages: torch.Tensor, mask: torch.Tensor) -> list[list[float]]:
    spans, _, _ = recover_turns(torch.zeros_like(advantages), mask)
    return [[float(row[begin]) for begin, _ in places] for row, places in zip(advantages, spans, strict=True)]


def test_the_golden_vectors_come_out_of_verls_tensors() -> None:
    rewards, mask = lay_out([*GOLDEN], [[1] * len(r) for r in GOLDEN])
    uid = np.array(["a"] * 4, dtype=object)
    equalized, returns = estimate(rewards, mask, config(ddof=1), uid)
    assert [row[0] for row in per_turn(equalized, mask)] == pytest.approx(
        [0.309523, -0.261904, -1.214283, 1.166664], abs=2e-6
    )
    assert torch.equal(equalized, returns)
    shaped, _ = estimate(rewards, mask, config(shaping="r2g", ddof=1), uid)
    assert per_turn(shaped, mask)[0] == pytest.approx([0.243559, 0.304449, 0.380561], abs=2e-6)
    assert per_turn(shaped, mask)[2] == [0.0, 0.0, 0.0]
    paper, _ = estimate(rewards, mask, config(shaping="r2g", form="paper", ddof=1), uid)
    assert per_turn(paper, mask)[1] == pytest.approx([-0.261904, -0.023809], abs=2e-6)


turns = st.lists(
    st.tuples(st.floats(0, 1, width=32), st.integers(1, 5)),
    min_size=1,
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(turns, st.sampled_from("ab")), min_size=2, max_size=9),
    st.sampled_from(
        [
            ("equalized", "released"),
            ("r2g", "released"),
            ("r2g", "paper"),
            ("em", "released"),
            ("naive", "paper"),
            ("r2g", "centred"),
        ]
    ),
    st.sampled_from(["sum", "r2g"]),
    st.sampled_from([0, 1]),
)
def test_verl_and_the_local_trainer_agree_on_any_batch(
    batch: list[tuple[list[tuple[float, int]], str]], kind: tuple[str, str], score: str, ddof: int
) -> None:
    rewards = [[r for r, _ in rows] for rows, _ in batch]
    tokens = [[n for _, n in rows] for rows, _ in batch]
    groups = [group for _, group in batch]
    rewards_NL, mask_NL = lay_out([*rewards], tokens)
    found, _ = estimate(
        rewards_NL,
        mask_NL,
        config(shaping=kind[0], form=kind[1], score=score, ddof=ddof),
        np.array(groups, dtype=object),
    )
    expected = turn_advantages(
        rewards, groups, turn_tokens=tokens, shaping=kind[0], form=kind[1], score=score, ddof=ddof
    )
    for mine, theirs in zip(per_turn(found, mask_NL), expected, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-5, abs=1e-6)
    assert not found[mask_NL == 0].any()


twentieths = st.lists(st.tuples(st.integers(0, 20).map(lambda n: n / 20), st.integers(1, 5)), min_size=1, max_size=12)


@settings(max_examples=200, deadline=None)
@given(st.lists(twentieths, min_size=2, max_size=8), st.sampled_from(["equalized", "em"]))
def test_rounded_scores_are_those_of_the_released_code_though_verl_carries_float32(
    group: list[list[tuple[float, int]]], shaping: str
) -> None:
    rewards = [[r for r, _ in rows] for rows in group]
    tokens = [[n for _, n in rows] for rows in group]
    rewards_NL, mask_NL = lay_out([*rewards], tokens, 96)
    found, _ = estimate(rewards_NL, mask_NL, config(shaping=shaping, **RELEASED), np.array(["a"] * len(group), object))
    for mine, theirs in zip(per_turn(found, mask_NL), released_code(rewards, tokens, shaping), strict=True):
        assert mine == pytest.approx(theirs, abs=1e-5)


def test_a_tie_at_the_fifth_digit_falls_to_the_side_of_the_gyms_rewards() -> None:
    rewards = [[0.15] + [0.0] * 7, [0.05] * 8, [1.0]]  # 0.15 / 8 = 0.01875 is a tie at four digits
    rewards_NL, mask_NL = lay_out([*rewards], [[1] * len(row) for row in rewards])
    found, _ = estimate(rewards_NL, mask_NL, config(**RELEASED), np.array(["a"] * 3, object))
    expected = released_code(rewards, [[1] * len(row) for row in rewards], "equalized")
    assert [row[0] for row in per_turn(found, mask_NL)] == pytest.approx([row[0] for row in expected], abs=1e-6)


def test_a_null_trajectory_counts_in_no_mean_and_has_no_gradient() -> None:
    tokens = [[2, 3], [1, 1], [4], [2]]
    rewards_NL, mask_NL = lay_out([[0.0, 1.0], [0.5, 0.0], None, [0.0]], tokens)
    found, _ = estimate(rewards_NL, mask_NL, config(), np.array(["a"] * 4, dtype=object))
    expected = turn_advantages([[0.0, 1.0], [0.5, 0.0], [None], [0.0]], ["a"] * 4, turn_tokens=tokens)
    assert not found[2].any()
    for row in (0, 1, 3):
        assert per_turn(found, mask_NL)[row] == pytest.approx(expected[row], rel=1e-5)


def test_verls_padding_rows_change_nothing() -> None:
    rewards_NL, mask_NL = lay_out([[1.0], [0.0], None, None], [[2], [3], [], []])
    whole, _ = estimate(rewards_NL, mask_NL, config(), np.array(["a", "a", "pad1f", "pad1f"], dtype=object))
    part, _ = estimate(rewards_NL[:2], mask_NL[:2], config(), np.array(["a", "a"], dtype=object))
    assert torch.equal(whole[:2], part)
    assert not whole[2:].any()


def test_a_turns_reward_is_the_sum_over_its_tokens_so_a_penalty_per_token_counts() -> None:
    rewards_NL, mask_NL = lay_out([[1.0], [0.0]], [[4], [4]])
    rewards_NL -= 0.01 * mask_NL
    _, sums, counts = recover_turns(rewards_NL, mask_NL)
    assert sums[0] == pytest.approx([0.96])
    assert counts == [[4], [4]]


def test_negative_credit_is_refused_in_the_released_form_with_the_way_out() -> None:
    rewards_NL, mask_NL = lay_out([[-0.5, 0.2], [0.0]], [[1, 1], [1]])
    with raises("credit.negative"):
        estimate(rewards_NL, mask_NL, config(shaping="naive"), np.array(["a", "a"], dtype=object))


def test_without_group_ids_the_estimator_says_what_is_missing() -> None:
    with raises("training.bad_call"):
        estimate(torch.zeros(1, 2), torch.zeros(1, 2))


def test_settings_arrive_through_verls_own_config_object() -> None:
    from omegaconf import OmegaConf

    from userrl_core.training.verl.estimator import read_config

    block = OmegaConf.create({"userrl": {"shaping": "em", "k": 3.0, "ddof": 1, "stage_file": "/s/stage.json"}})
    credit, path = read_config(block)
    assert (credit.shaping, credit.k, credit.ddof, path) == ("em", 3.0, 1, "/s/stage.json")
    assert read_config(None)[0].shaping == "equalized"
