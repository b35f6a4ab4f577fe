"""The mean-advantage bias: how far a rule's advantages are from a mean of 0. And the form that is centred by construction."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from userrl_core.rewards import CreditConfig, assign_credit, measure_bias

GOLDEN_D = [[0.2, 0.4], [0.2, 0.4], [0.2, 0.4], [0.2, 0.45]]
ONE_GROUP = ["g"] * 4

batches = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from([0.0, 0.2, 0.5, 1.0]), st.integers(1, 9)), min_size=1, max_size=6),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=12,
)


def split(members):
    rewards = [[r for r, _ in turns] for turns, _ in members]
    return rewards, [group for _, group in members], [[n for _, n in turns] for turns, _ in members]


def pushed(rewards, groups, tokens=None, **settings):
    credits = assign_credit(rewards, groups, CreditConfig(**settings), turn_tokens=tokens)
    return measure_bias(credits.advantages, groups, credits, tokens)


def test_nearly_equal_turns_are_all_pushed_down_in_form_paper_and_compared_in_form_centred():
    paper = assign_credit(GOLDEN_D, ONE_GROUP, CreditConfig(shaping="r2g", form="paper"))
    seconds = [row[1] for row in paper.advantages]
    assert seconds == pytest.approx([-7.505120] * 3 + [-4.618536], abs=1e-6)
    centred = assign_credit(GOLDEN_D, ONE_GROUP, CreditConfig(shaping="r2g", form="centred"))
    mean = np.mean([row.mean() for row in paper.advantages])
    for row, plain in zip(centred.advantages, paper.advantages, strict=True):
        assert row == pytest.approx(plain - mean, abs=1e-12)
    assert np.mean([row.mean() for row in centred.advantages]) == pytest.approx(0.0, abs=1e-12)


def test_push_of_a_small_group_by_hand():
    # Naive, paper, sum: scores 1 and 0, mean and deviation .5; advantages (-1, 1) and (-1); each trajectory weighs 1.
    push = pushed([[0.0, 1.0], [0.0]], ["g", "g"], [[3, 1], [7]], shaping="naive", score="sum", form="paper")
    assert push.group == pytest.approx(abs(-0.75 + 0.25 - 1.0) / 2.0)
    assert push.turn == pytest.approx((abs(-0.75 - 1.0) + 0.25) / 2.0)
    assert push.silent == 0.0


def test_a_failure_without_reward_is_silent_in_form_released():
    push = pushed([[0, 0, 1], [0, 0.5], [0, 0, 0], [1]], ONE_GROUP, shaping="r2g")
    assert push.silent == 0.5  # below the mean lie the second and the third; the third has no credit to move


def test_without_any_advantage_nothing_is_pushed():
    push = pushed([[1.0], [1.0]], ["g", "g"])
    assert (push.group, push.turn, push.silent) == (0.0, 0.0, 0.0)
    assert set(push.metrics()) == {"credit/push_group/share", "credit/push_turn/share", "credit/silent_below/share"}


@given(batches, st.sampled_from(["naive", "r2g", "em"]), st.sampled_from(["sum", "mean", "r2g"]))
def test_form_centred_pushes_no_group_and_moves_all_turns_of_a_group_by_the_same(members, shaping, score):
    rewards, groups, tokens = split(members)
    paper = assign_credit(rewards, groups, CreditConfig(shaping=shaping, score=score, form="paper"), turn_tokens=tokens)
    centred = assign_credit(
        rewards, groups, CreditConfig(shaping=shaping, score=score, form="centred"), turn_tokens=tokens
    )
    largest = max(float(np.abs(row).max()) for row in paper.advantages)
    for group in set(groups):
        rows = [i for i, other in enumerate(groups) if other == group]
        weights = [np.array(tokens[i]) / sum(tokens[i]) for i in rows]
        net = sum(float((w * centred.advantages[i]).sum()) for i, w in zip(rows, weights, strict=True))
        assert net == pytest.approx(0.0, abs=1e-9 * max(1.0, largest))
        moved = np.concatenate([paper.advantages[i] - centred.advantages[i] for i in rows])
        assert np.ptp(moved) == pytest.approx(0.0, abs=1e-9 * max(1.0, largest))


@given(batches, st.sampled_from(["naive", "equalized", "r2g", "em"]), st.sampled_from(["released", "paper"]))
def test_push_is_a_share_and_that_by_turn_is_never_the_smaller(members, shaping, form):
    rewards, groups, tokens = split(members)
    push = pushed(rewards, groups, tokens, shaping=shaping, form=form)
    assert 0.0 <= push.group <= push.turn + 1e-9
    assert push.turn <= 1.0 + 1e-9
    if shaping == "equalized":
        assert push.group == pytest.approx(0.0, abs=1e-6)
