import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from userrl_core.errors import ConfigError
from userrl_core.rewards import CreditConfig, assign_credit, credit, spread_to_tokens, turn_advantages

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
forms = st.sampled_from(["released", "paper"])


def split(members):
    return [list(rewards) for rewards, _ in members], [group for _, group in members]


@pytest.mark.parametrize(("shaping", "form", "ddof", "expected"), GOLDEN)
def test_golden_vectors(shaping, form, ddof, expected):
    found = turn_advantages(REWARDS, ONE_GROUP, shaping=shaping, form=form, ddof=ddof)
    assert [len(row) for row in found] == [3, 2, 3, 1]
    for row, wanted in zip(found, expected, strict=True):
        assert row == pytest.approx(wanted, abs=1e-6)


def test_scores_discount_from_the_first_turn():
    found = assign_credit(REWARDS, ONE_GROUP)
    assert found.scores.tolist() == pytest.approx([0.64, 0.4, 0.0, 1.0])


def test_sum_is_a_sum_and_not_the_released_mean():
    assert assign_credit([[0.2, 0.2, 0.2]], ["g"], score="sum").scores.tolist() == pytest.approx([0.6])


def test_exponential_mapping_keeps_its_ends_and_is_not_rounded():
    found = assign_credit([[0.0, 1.0, 1 / 3]], ["g"], shaping="em", k=2.0)
    assert found.shaped[0].tolist() == pytest.approx([0.5, 1.0, 0.781370843], abs=1e-9)


def test_tokens_weigh_in_the_released_form():
    found = turn_advantages([[0, 1], [0]], ["g", "g"], turn_tokens=[[3, 1], [5]], shaping="r2g", score="sum")
    z = 0.5 / (0.5 + 1e-6)
    total = 3 * 0.8 + 1 * 1.0
    assert found[0] == pytest.approx([0.8 * z * 4 / total, 1.0 * z * 4 / total])


@given(batch, shapings)
def test_the_released_form_only_moves_z_between_turns(members, shaping):
    rewards, groups = split(members)
    found = assign_credit(rewards, groups, shaping=shaping)
    for row, shaped, z in zip(found.advantages, found.shaped, found.z, strict=True):
        counted = shaped != 0
        if counted.any():
            assert row[counted].mean() == pytest.approx(z, abs=1e-9)
        assert (row[~counted] == 0).all()


@given(batch, shapings, forms, st.randoms(use_true_random=False))
def test_the_order_within_a_batch_changes_nothing(members, shaping, form, random):
    order = list(range(len(members)))
    random.shuffle(order)
    plain = turn_advantages(*split(members), shaping=shaping, form=form)
    mixed = turn_advantages(*split([members[i] for i in order]), shaping=shaping, form=form)
    for place, i in enumerate(order):
        assert mixed[place] == pytest.approx(plain[i], abs=1e-6)


@given(batch, batch, shapings, forms)
def test_a_group_does_not_see_its_neighbours(members, others, shaping, form):
    alone = turn_advantages(*split(members), shaping=shaping, form=form)
    beside = turn_advantages(*split(members + [(r, g + 10) for r, g in others]), shaping=shaping, form=form)
    assert beside[: len(alone)] == alone


@given(batch, st.integers(1, 40))
def test_equalized_is_plain_grpo_whatever_the_token_counts(members, tokens):
    rewards, groups = split(members)
    counts = [[tokens + t for t in range(len(row))] for row in rewards]
    found = assign_credit(rewards, groups, turn_tokens=counts, score="sum")
    totals = np.array([sum(row) for row in rewards])
    for i, row in enumerate(found.advantages):
        mates = totals[[g == groups[i] for g in groups]]
        std = mates.std()
        z = (totals[i] - mates.mean()) / (std + 1e-6) if len(mates) > 1 and std >= 1e-6 else 0.0
        assert row.tolist() == pytest.approx([z] * len(row), abs=1e-7)


@given(batch, shapings)
def test_gamma_one_makes_the_r2g_score_the_sum_to_the_last_bit(members, shaping):
    rewards, groups = split(members)
    one = assign_credit(rewards, groups, shaping=shaping, score="r2g", gamma=1.0)
    plain = assign_credit(rewards, groups, shaping=shaping, score="sum", gamma=1.0)
    assert one.scores.tolist() == plain.scores.tolist()


@given(batch, st.sampled_from([0.25, 4.0, 100.0]), st.sampled_from(["naive", "equalized", "r2g"]), forms)
def test_scaling_all_rewards_changes_advantages_only_through_epsilon(members, factor, shaping, form):
    rewards, groups = split(members)
    found = assign_credit(rewards, groups, shaping=shaping, form=form)
    scaled = assign_credit([[r * factor for r in row] for row in rewards], groups, shaping=shaping, form=form)
    for i in np.flatnonzero(found.signal & scaled.signal):
        if min(found.std[i], scaled.std[i]) > 0.01:
            assert scaled.advantages[i] == pytest.approx(found.advantages[i], rel=1e-3, abs=1e-3)


@given(batch, shapings, forms)
def test_masked_turns_without_tokens_change_no_other_turn(members, shaping, form):
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
    for row, wanted in zip(longer, plain, strict=True):
        assert row[:-1] == pytest.approx(wanted, abs=1e-9)


def test_a_null_reward_voids_its_trajectory_and_counts_nowhere():
    found = assign_credit([[0, None], [1], [0]], ["g"] * 3)
    assert found.advantages[0].tolist() == [0.0, 0.0]
    assert found.diagnostics.null == (0,)
    assert np.isnan(found.scores[0])
    assert found.mean[1] == 0.5
    assert found.z.tolist() == pytest.approx([0.0, 1.0, -1.0], abs=1e-5)


def test_rejected_trajectories_count_nowhere_even_with_all_rewards_present():
    found = assign_credit([[5.0], [1], [0]], ["g"] * 3, admitted=[False, True, True])
    assert found.mean[1] == 0.5
    assert found.advantages[0].tolist() == [0.0]


@pytest.mark.parametrize("form", ["released", "paper"])
def test_without_a_signal_every_advantage_is_zero_in_both_forms(form):
    equal = assign_credit([[0, 1], [0, 1]], ["g", "g"], shaping="r2g", form=form)
    lonely = assign_credit([[0, 1], [None]], ["g", "g"], shaping="r2g", form=form)
    single = assign_credit([[0, 1]], ["g"], shaping="r2g", form=form)
    for found in (equal, lonely, single):
        assert all((row == 0).all() for row in found.advantages)
    assert equal.diagnostics.zero_variance == ("g",)
    assert lonely.diagnostics.too_small == ("g",)
    assert single.diagnostics.too_small == ("g",)


def test_a_failure_without_reward_has_no_gradient_in_the_released_form_and_is_counted():
    found = assign_credit([[0, 1], [0, 0]], ["g", "g"], shaping="r2g")
    assert found.z[1] < 0
    assert found.advantages[1].tolist() == [0.0, 0.0]
    assert found.diagnostics.zero_credit == (1,)


def test_groups_are_told_apart_as_good_bad_and_mixed():
    rewards = [[1], [1], [0], [0], [0], [1]]
    groups = ["won", "won", "lost", "lost", "mixed", "mixed"]
    found = assign_credit(rewards, groups).diagnostics
    assert (found.all_good, found.all_bad, found.mixed) == (1, 1, 1)
    told = assign_credit(rewards, groups, good=[True, True, False, False, False, False]).diagnostics
    assert (told.all_good, told.all_bad, told.mixed) == (1, 2, 0)
    assert found.metrics()["groups/zero_variance/share"] == pytest.approx(2 / 3)


def test_negative_credit_is_refused_in_the_released_form_with_the_way_out():
    worse_and_better = [[-0.5, 0.2], [-1.0, 0.0]]
    for shaping in ("naive", "r2g"):
        with pytest.raises(ConfigError, match=r"set credit\.form to paper"):
            turn_advantages(worse_and_better, ["g", "g"], shaping=shaping)
    paper = turn_advantages(worse_and_better, ["g", "g"], shaping="naive", form="paper")
    assert paper[0][1] > 0
    assert turn_advantages(worse_and_better, ["g", "g"], shaping="equalized")[0][0] > 0


@pytest.mark.parametrize("wrong", [[[1.5], [0]], [[-0.1], [0]]])
def test_em_refuses_rewards_outside_zero_to_one(wrong):
    with pytest.raises(ConfigError, match=r"needs rewards in \[0, 1\]"):
        turn_advantages(wrong, ["g", "g"], shaping="em")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gamma": 1.5}, "gamma must lie in"),
        ({"gamma": float("nan")}, "gamma must lie in"),
        ({"shaping": "em", "k": 0.0}, "k must be above 0"),
        ({"form": "printed"}, "released or paper"),
        ({"shaping": "flat"}, "Unknown shaping"),
        ({"score": "mean"}, "Unknown score"),
        ({"ddof": 2}, "ddof must be 0 or 1"),
    ],
)
def test_settings_that_do_not_exist_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        turn_advantages([[0], [1]], ["g", "g"], **arguments)


def test_misshapen_batches_are_refused():
    with pytest.raises(ValueError, match="1 group ids for 2"):
        turn_advantages([[0], [1]], ["g"])
    with pytest.raises(ValueError, match="numbers of turns"):
        turn_advantages([[0, 1]], ["g"], turn_tokens=[[1]])
    with pytest.raises(ValueError, match="negative count"):
        turn_advantages([[0, 1]], ["g"], turn_tokens=[[1, -1]])
    with pytest.raises(ValueError, match="no finite number"):
        turn_advantages([[float("nan")], [1]], ["g", "g"])
    with pytest.raises(ValueError, match="no finite number"):
        turn_advantages([[float("inf")], [1]], ["g", "g"])


def test_tiny_credits_do_not_overflow_and_huge_rewards_are_refused():
    tiny = turn_advantages(
        [[1e-310, 1e-310, 1.0], [1e-310], [0.0]], ["g"] * 3, shaping="naive", turn_tokens=[[0, 0, 1], [1], [1]]
    )
    assert np.isfinite([a for row in tiny for a in row]).all()
    with pytest.raises(ValueError, match="too large to compare"):
        turn_advantages([[1e300], [0]], ["g", "g"])


def test_empty_batches_and_trajectories_without_turns_are_taken():
    assert turn_advantages([], []) == []
    found = assign_credit([[], [1], [0]], ["g"] * 3)
    assert found.diagnostics.null == (0,)
    assert found.advantages[0].tolist() == []


def test_the_recipe_block_says_the_same_as_keywords():
    config = CreditConfig(shaping="r2g", form="paper", ddof=1)
    found = credit(REWARDS, ONE_GROUP, config)
    assert [row.tolist() for row in found.advantages] == turn_advantages(
        REWARDS, ONE_GROUP, shaping="r2g", form="paper", ddof=1
    )


@settings(max_examples=30, deadline=None)
@given(batch)
def test_spreading_repeats_each_turn_over_its_tokens(members):
    rewards, groups = split(members)
    counts = [[(t * 3) % 5 for t in range(len(row))] for row in rewards]
    advantages = turn_advantages(rewards, groups, turn_tokens=counts)
    flat = spread_to_tokens(advantages, counts, dtype=np.float64)
    wanted = [
        a for row, n in zip(advantages, counts, strict=True) for a, k in zip(row, n, strict=True) for _ in range(k)
    ]
    assert flat.tolist() == wanted


def test_spreading_refuses_other_numbers_of_turns():
    with pytest.raises(ValueError, match="numbers of turns"):
        spread_to_tokens([[0.5]], [[2, 1]])
    assert spread_to_tokens([], []).shape == (0,)
