"""Credit assignment: golden values, and the properties of shaping, scores and both forms of the advantage."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.makers import raises
from userrl_core.rewards import CreditConfig, assign_credit, spread_to_tokens, turn_advantages

REWARDS = [[0, 0, 1], [0, 0.5], [0, 0, 0], [1]]
ONE_GROUP = ["g"] * 4
GOLDEN = [
    ("equalized", "released", 1, [[0.309523] * 3, [-0.261904] * 2, [-1.214283] * 3, [1.166664]]),
    ("equalized", "released", 0, [[0.357406] * 3, [-0.302421] * 2, [-1.402133] * 3, [1.347147]]),
    ("equalized", "paper", 1, [[0.309523] * 3, [-0.261904] * 2, [-1.214283] * 3, [1.166664]]),
    ("r2g", "released", 1, [[0.243559, 0.304449, 0.380561], [-0.232804, -0.291005], [0, 0, 0], [1.166664]]),
    ("r2g", "paper", 1, [[0.309523, 0.690475, 1.166664], [-0.261904, -0.023809], [-1.214283] * 3, [1.166664]]),
]

reward = st.floats(0, 1, allow_nan=False).map(lambda x: round(x, 3))
trajectory = st.lists(reward, min_size=1, max_size=6)
batch = st.lists(st.tuples(trajectory, st.integers(0, 2)), min_size=1, max_size=12)
shapings = st.sampled_from(["naive", "equalized", "r2g", "em"])
forms = st.sampled_from(["released", "paper", "centred"])


def split(members):
    return [list(rewards) for rewards, _ in members], [group for _, group in members]


@pytest.mark.parametrize(("shaping", "form", "ddof", "expected"), GOLDEN)
def test_golden_vectors(shaping, form, ddof, expected):
    advantages = turn_advantages(REWARDS, ONE_GROUP, shaping=shaping, form=form, ddof=ddof)
    assert [len(row) for row in advantages] == [3, 2, 3, 1]
    for row, expected_row in zip(advantages, expected, strict=True):
        assert row == pytest.approx(expected_row, abs=1e-6)


def test_scores_discount_from_the_first_turn():
    credits = assign_credit(REWARDS, ONE_GROUP, CreditConfig())
    assert credits.scores.tolist() == pytest.approx([0.64, 0.4, 0.0, 1.0])


def test_sum_is_a_sum_and_not_the_released_mean():
    assert assign_credit([[0.2, 0.2, 0.2]], ["g"], CreditConfig(score="sum")).scores.tolist() == pytest.approx([0.6])


def test_exponential_mapping_keeps_its_ends_and_is_not_rounded():
    credits = assign_credit([[0.0, 1.0, 1 / 3]], ["g"], CreditConfig(shaping="em", k=2.0))
    assert credits.shaped[0].tolist() == pytest.approx([0.5, 1.0, 0.781370843], abs=1e-9)


def test_token_counts_weight_the_released_form():
    advantages = turn_advantages([[0, 1], [0]], ["g", "g"], turn_tokens=[[3, 1], [5]], shaping="r2g", score="sum")
    z = 0.5 / (0.5 + 1e-6)
    total = 3 * 0.8 + 1 * 1.0
    assert advantages[0] == pytest.approx([0.8 * z * 4 / total, 1.0 * z * 4 / total])


@given(batch, shapings)
def test_the_released_form_only_redistributes_z_between_turns(members, shaping):
    rewards, groups = split(members)
    credits = assign_credit(rewards, groups, CreditConfig(shaping=shaping))
    for row, shaped, z in zip(credits.advantages, credits.shaped, credits.z, strict=True):
        counted = shaped != 0
        if counted.any():
            assert row[counted].mean() == pytest.approx(z, abs=1e-9)
        assert (row[~counted] == 0).all()


@given(batch, shapings, forms, st.randoms(use_true_random=False))
def test_the_order_within_a_batch_does_not_matter(members, shaping, form, random):
    order = list(range(len(members)))
    random.shuffle(order)
    advantages = turn_advantages(*split(members), shaping=shaping, form=form)
    shuffled = turn_advantages(*split([members[i] for i in order]), shaping=shaping, form=form)
    for place, i in enumerate(order):
        assert shuffled[place] == pytest.approx(advantages[i], abs=1e-6)


@given(batch, batch, shapings, forms)
def test_a_groups_advantages_do_not_depend_on_other_groups(members, others, shaping, form):
    alone = turn_advantages(*split(members), shaping=shaping, form=form)
    together = turn_advantages(*split(members + [(r, g + 10) for r, g in others]), shaping=shaping, form=form)
    assert together[: len(alone)] == alone


@given(batch, st.integers(1, 40))
def test_equalized_is_plain_grpo_for_all_token_counts(members, tokens):
    rewards, groups = split(members)
    counts = [[tokens + t for t in range(len(row))] for row in rewards]
    credits = assign_credit(rewards, groups, CreditConfig(score="sum"), turn_tokens=counts)
    totals = np.array([sum(row) for row in rewards])
    for i, row in enumerate(credits.advantages):
        group = totals[[g == groups[i] for g in groups]]
        std = group.std()
        z = (totals[i] - group.mean()) / (std + 1e-6) if len(group) > 1 and std >= 1e-6 else 0.0
        assert row.tolist() == pytest.approx([z] * len(row), abs=1e-7)


@given(batch, shapings)
def test_with_gamma_one_the_r2g_score_equals_the_sum_to_the_last_bit(members, shaping):
    rewards, groups = split(members)
    r2g = assign_credit(rewards, groups, CreditConfig(shaping=shaping, score="r2g", gamma=1.0))
    total = assign_credit(rewards, groups, CreditConfig(shaping=shaping, score="sum", gamma=1.0))
    assert r2g.scores.tolist() == total.scores.tolist()


@given(batch, st.sampled_from([0.25, 4.0, 100.0]), st.sampled_from(["naive", "equalized", "r2g"]), forms)
def test_scaling_all_rewards_changes_advantages_only_through_epsilon(members, factor, shaping, form):
    rewards, groups = split(members)
    plain = assign_credit(rewards, groups, CreditConfig(shaping=shaping, form=form))
    scaled = assign_credit(
        [[r * factor for r in row] for row in rewards], groups, CreditConfig(shaping=shaping, form=form)
    )
    for i in np.flatnonzero(plain.signal & scaled.signal):
        if min(plain.std[i], scaled.std[i]) > 0.01:
            assert scaled.advantages[i] == pytest.approx(plain.advantages[i], rel=1e-3, abs=1e-3)


@given(batch, shapings, forms)
def test_turns_without_tokens_do_not_change_other_turns(members, shaping, form):
    rewards, groups = split(members)
    counts = [[2] * len(row) for row in rewards]
    plain = turn_advantages(rewards, groups, turn_tokens=counts, shaping=shaping, form=form, score="sum", gamma=1.0)
    longer = turn_advantages(
        [[*row, 0.0] for row in rewards],
        groups,
        turn_tokens=[[*row, 0] for row in counts],
        shaping=shaping,
        form=form,
        score="sum",
        gamma=1.0,
    )
    for row, expected in zip(longer, plain, strict=True):
        assert row[:-1] == pytest.approx(expected, abs=1e-9)


def test_a_null_reward_excludes_its_trajectory_from_all_statistics():
    credits = assign_credit([[0, None], [1], [0]], ["g"] * 3, CreditConfig())
    assert credits.advantages[0].tolist() == [0.0, 0.0]
    assert credits.diagnostics.null == (0,)
    assert np.isnan(credits.scores[0])
    assert credits.mean[1] == 0.5
    assert credits.z.tolist() == pytest.approx([0.0, 1.0, -1.0], abs=1e-5)


def test_rejected_trajectories_are_excluded_even_with_all_rewards_present():
    credits = assign_credit([[5.0], [1], [0]], ["g"] * 3, CreditConfig(), admitted=[False, True, True])
    assert credits.mean[1] == 0.5
    assert credits.advantages[0].tolist() == [0.0]


@pytest.mark.parametrize("form", ["released", "paper", "centred"])
def test_without_a_signal_every_advantage_is_zero_in_every_form(form):
    equal = assign_credit([[0, 1], [0, 1]], ["g", "g"], CreditConfig(shaping="r2g", form=form))
    one_admitted = assign_credit([[0, 1], [None]], ["g", "g"], CreditConfig(shaping="r2g", form=form))
    single = assign_credit([[0, 1]], ["g"], CreditConfig(shaping="r2g", form=form))
    for credits in (equal, one_admitted, single):
        assert all((row == 0).all() for row in credits.advantages)
    assert equal.diagnostics.zero_variance == ("g",)
    assert one_admitted.diagnostics.too_small == ("g",)
    assert single.diagnostics.too_small == ("g",)


def test_a_failure_without_reward_has_no_gradient_in_the_released_form_and_is_counted():
    credits = assign_credit([[0, 1], [0, 0]], ["g", "g"], CreditConfig(shaping="r2g"))
    assert credits.z[1] < 0
    assert credits.advantages[1].tolist() == [0.0, 0.0]
    assert credits.diagnostics.zero_credit == (1,)


def test_groups_are_counted_as_good_bad_and_mixed():
    rewards = [[1], [1], [0], [0], [0], [1]]
    groups = ["won", "won", "lost", "lost", "mixed", "mixed"]
    by_score = assign_credit(rewards, groups, CreditConfig()).diagnostics
    assert (by_score.all_good, by_score.all_bad, by_score.mixed) == (1, 1, 1)
    by_success = assign_credit(
        rewards, groups, CreditConfig(), good=[True, True, False, False, False, False]
    ).diagnostics
    assert (by_success.all_good, by_success.all_bad, by_success.mixed) == (1, 2, 0)
    assert by_score.metrics()["groups/zero_variance/share"] == pytest.approx(2 / 3)


def test_negative_credit_is_refused_in_the_released_form_with_an_alternative():
    rewards = [[-0.5, 0.2], [-1.0, 0.0]]
    for shaping in ("naive", "r2g"):
        with raises("credit.negative", "credit.form"):
            turn_advantages(rewards, ["g", "g"], shaping=shaping)
    paper = turn_advantages(rewards, ["g", "g"], shaping="naive", form="paper")
    assert paper[0][1] > 0
    assert turn_advantages(rewards, ["g", "g"], shaping="equalized")[0][0] > 0


@pytest.mark.parametrize("rewards", [[[1.5], [0]], [[-0.1], [0]]])
def test_em_refuses_rewards_outside_zero_to_one(rewards):
    with raises("credit.out_of_range"):
        turn_advantages(rewards, ["g", "g"], shaping="em")


@pytest.mark.parametrize(
    ("arguments", "code", "fact"),
    [
        ({"gamma": 1.5}, "credit.bad_setting", "gamma"),
        ({"gamma": float("nan")}, "credit.bad_setting", "gamma"),
        ({"shaping": "em", "k": 0.0}, "credit.bad_setting", "credit.k"),
        ({"form": "printed"}, "credit.unknown_rule", "released, paper or centred"),
        ({"shaping": "flat"}, "credit.unknown_rule", "shaping 'flat'"),
        ({"score": "median"}, "credit.unknown_rule", "score 'median'"),
        ({"ddof": 2}, "credit.bad_setting", "ddof"),
    ],
)
def test_invalid_settings_are_refused(arguments, code, fact):
    with raises(code, fact):
        turn_advantages([[0], [1]], ["g", "g"], **arguments)


def test_inconsistent_batches_are_refused():
    with pytest.raises(ValueError, match="1 group ids for 2"):
        turn_advantages([[0], [1]], ["g"])
    with pytest.raises(ValueError, match="numbers of turns"):
        turn_advantages([[0, 1]], ["g"], turn_tokens=[[1]])
    with pytest.raises(ValueError, match="negative count"):
        turn_advantages([[0, 1]], ["g"], turn_tokens=[[1, -1]])
    with raises("credit.out_of_range"):
        turn_advantages([[float("nan")], [1]], ["g", "g"])
    with raises("credit.out_of_range"):
        turn_advantages([[float("inf")], [1]], ["g", "g"])


def test_tiny_credits_do_not_overflow_and_huge_rewards_are_refused():
    tiny = turn_advantages(
        [[1e-310, 1e-310, 1.0], [1e-310], [0.0]], ["g"] * 3, shaping="naive", turn_tokens=[[0, 0, 1], [1], [1]]
    )
    assert np.isfinite([a for row in tiny for a in row]).all()
    with raises("credit.out_of_range"):
        turn_advantages([[1e300], [0]], ["g", "g"])


def test_empty_batches_and_trajectories_without_turns_are_accepted():
    assert turn_advantages([], []) == []
    credits = assign_credit([[], [1], [0]], ["g"] * 3, CreditConfig())
    assert credits.diagnostics.null == (0,)
    assert credits.advantages[0].tolist() == []


def test_the_credit_block_of_a_recipe_equals_keyword_arguments():
    config = CreditConfig(shaping="r2g", form="paper", ddof=1)
    credits = assign_credit(REWARDS, ONE_GROUP, config)
    assert [row.tolist() for row in credits.advantages] == turn_advantages(
        REWARDS, ONE_GROUP, shaping="r2g", form="paper", ddof=1
    )


@settings(max_examples=30, deadline=None)
@given(batch)
def test_spreading_repeats_a_turns_advantage_over_its_tokens(members):
    rewards, groups = split(members)
    counts = [[(t * 3) % 5 for t in range(len(row))] for row in rewards]
    advantages = turn_advantages(rewards, groups, turn_tokens=counts)
    flat = spread_to_tokens(advantages, counts, dtype=np.float64)
    expected = [
        a for row, n in zip(advantages, counts, strict=True) for a, k in zip(row, n, strict=True) for _ in range(k)
    ]
    assert flat.tolist() == expected


def test_spreading_refuses_other_numbers_of_turns():
    with pytest.raises(ValueError, match="numbers of turns"):
        spread_to_tokens([[0.5]], [[2, 1]])
    assert spread_to_tokens([], []).shape == (0,)
